"""Packs in anonymous shared memory: for the workers of a loader, its epochs, and the ranks of a machine.

Takes: an identity, how many samples there are, a bound. Gives: `PackMemory`.
Promises: nothing is in /dev/shm, and nothing is left when the last process has ended, however it ends. Memory is taken
only within the limits of the machine and of the container: if there is none, that is a `problem`, never a bus error;
and what is kept here is given back if batches need it. All packs together never take more than `max_bytes`; the one
that was used least recently goes first.
Not its job: entries and records (packs), how processes meet (memory_by_name).

It is a segment of the arena: slot 0 has the index, slot N the pack with the number N. A number is never used again. The
board has the numbers below, and then a row for each pack: its number (negative while it is being freed), its size, its
last use. Who reads a pack that is being freed reads zeros: so its number is negative first, then `removals` goes up,
and who has read looks at that.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import secrets
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from feedline.arena.limits import room
from feedline.arena.segment import BOARD, Segment, available, givers, reserve_of, to_page
from feedline.errors import MemoryShortage, OptionError
from feedline.machine.finalizers import undisturbed
from feedline.sources.samples.memory_by_name import Where, joined, left
from feedline.sources.samples.packs import ENTRY, PACKS, OpenPacks, Packs, PackWriter

TOKEN, BOUND, NUMBERS, REMOVALS = range(4)
ROWS = range(4, 4 + 3 * 2 * PACKS, 3)
"""Twice as many as packs of full size: what a pack has left when the next record does not fit is given back, and of two
that follow each other one is at least half full."""
LENGTH = 4 + 3 * len(ROWS)
GIVEN = PACKS // 8
"""Packs that are given back at once if batches lack memory, which may be more than one pack has."""


class PackMemory(Packs):
    """The records of one dataset in shared memory. Who opened it last has said how much it may take."""

    def __init__(self, identity: str, count: int, max_bytes: int | None) -> None:
        super().__init__(identity, count, max_bytes or 0)
        self._asked = max_bytes
        self._join(None)

    def __str__(self) -> str:
        return "memory"

    def _join(self, told: Where | None) -> None:
        if not available:
            raise OptionError('where="memory" needs Linux: give a folder')
        self._segment, self._where = joined(self.identity, self._make, told)
        self._end = weakref.finalize(self, left, self.identity, self._where, self._segment)
        self._board = self._segment.board(LENGTH)
        is_another = self._asked is not None and self._asked != self._board[BOUND]
        if told is None and is_another:  # it was there before: who asks last, says
            self._board[BOUND] = _bound(self._asked, self._segment.used())
        self.max_bytes = self._board[BOUND]

    def _make(self) -> Segment:
        bound = _bound(self._asked)
        segment = Segment()
        try:
            _allocate(segment, 0, 0, max(1, self.count) * ENTRY.size, keep=False)
            board = segment.board(LENGTH, create=True)
        except MemoryShortage:
            segment.close()
            raise
        board[BOUND], board[TOKEN] = bound, secrets.randbits(62) | 1
        return segment

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        for name in ("_segment", "_board", "_end"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._join(self._where)

    def _open_here(self) -> _OpenMemory:
        return _OpenMemory(self._segment, self._board, self.count)

    def removals(self) -> int:
        return self._board[REMOVALS]

    def read(self, index: int) -> memoryview | None:
        """A copy of a record, if it is there and whole."""
        before = self._board[REMOVALS]
        record = super().read(index)
        own = None if record is None else memoryview(bytes(record))
        return own if before == self._board[REMOVALS] else None


def _bound(asked: int | None, taken: int = 0) -> int:
    left_over = room()
    if left_over is None:
        return asked or os.sysconf("SC_PHYS_PAGES") * mmap.PAGESIZE // 4
    free = max(0, left_over.free - reserve_of(left_over.limit))
    if asked is not None and asked - taken > free:
        raise OptionError(
            f"max_bytes is {asked:,}, but of the {left_over.limit:,} bytes that the {left_over.which} may use only "
            f"{free:,} are free for a cache in memory. Give a smaller max_bytes, more memory, or a folder on disk: "
            "what fits into memory is read from memory there, too"
        )
    return asked or free // 2


def _allocate(segment: Segment, slot: int, start: int, stop: int, keep: bool) -> None:
    try:
        segment.allocate(slot, start, stop, keep)
    except MemoryShortage as error:
        if (left_over := room()) is None:
            raise
        raise MemoryShortage(
            f"no memory for {stop - start:,} bytes of it: {left_over.free:,} of the {left_over.limit:,} bytes that the "
            f"{left_over.which} may use are free, and some stay free"
        ) from error


class _OpenMemory(OpenPacks):
    _mapped: dict[int, tuple[memoryview, int]]

    def __init__(self, segment: Segment, board: memoryview, count: int) -> None:
        super().__init__(mmap.mmap(segment.fd, max(1, count) * ENTRY.size), count)
        self.segment, self.board = segment, board
        own = weakref.WeakMethod(self._give)

        def give() -> bool:
            method = own()
            return method is not None and method()

        givers.append(give)
        weakref.finalize(self, _forget, give)

    def mapped(self, number: int) -> memoryview | None:
        try:
            return self.view(number)
        except MemoryShortage:  # this process may map no more (ulimit -v): it reads the dataset
            return None

    def view(self, number: int) -> memoryview | None:
        """The memory of a pack; None if it was removed, an error if it cannot be mapped."""
        found = self._mapped.get(number)
        if found is None:
            self.sweep()
            row = next((row for row in ROWS if self.board[row] == number), None)
            if row is None or self.board[row] != number:
                return None
            found = self.segment.map(number, self.board[row + 1]).view(0, self.board[row + 1]), row
            self._mapped[number] = found
        view, row = found
        if self.board[row] != number:
            self.let_go(number)
            return None
        self.board[row + 2] = time.monotonic_ns()
        return view

    def is_there(self, number: int) -> bool:
        found = self._mapped.get(number)
        return found is not None and self.board[found[1]] == number

    def let_go(self, number: int) -> None:
        found = self._mapped.pop(number, None)
        if found is not None:  # whoever read it while it was freed has filled its holes with pages of zeros
            self.segment.free(number, 0, len(found[0]))

    def new_pack(self, size: int) -> _MemoryWriter | None:
        size = to_page(max(size, self.board[BOUND] // PACKS - mmap.PAGESIZE))
        with self._locked(fcntl.LOCK_EX):
            row = self._make_room(size)
            number = self.board[NUMBERS] + 1
            if row is None or number >= BOARD:
                return None
            self.board[NUMBERS] = number
            self.board[row + 1], self.board[row + 2] = size, time.monotonic_ns()
            self.board[row] = number
            return _MemoryWriter(number, size, self, row)

    def _make_room(self, size: int) -> int | None:
        """Free the packs used least recently until `size` fits. Returns a row that is free; None if there is none."""
        used = sorted((self.board[row + 2], row) for row in ROWS if self.board[row])
        total = sum(self.board[row + 1] for _, row in used)
        for _, row in used:
            if total + size <= self.board[BOUND] and len(used) < len(ROWS):
                break
            total -= self.board[row + 1]
            self._free(row)
            used = used[1:]
        if total + size > self.board[BOUND]:
            return None
        return next(row for row in ROWS if not self.board[row])

    def shrink(self, row: int, number: int, size: int) -> None:
        """A pack is full: it has no more than this."""
        with self._locked(fcntl.LOCK_EX):
            if self.board[row] == number:
                self.board[row + 1] = to_page(size)

    def _free(self, row: int) -> None:
        number, size = abs(self.board[row]), self.board[row + 1]  # negative: who wanted to free it was killed
        self.board[row] = -number  # before it is counted: who has seen the new count must not find the pack
        self.board[REMOVALS] += 1
        self.segment.free(number, 0, size)
        self.board[row] = 0

    def _give(self) -> bool:
        """Batches lack memory: give them that of the packs that were used least recently."""
        if self.pid != os.getpid():
            return False
        with suppress(OSError), self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
            used = sorted((self.board[row + 2], row) for row in ROWS if self.board[row])
            for _, row in used[:GIVEN]:
                self._free(row)
            return bool(used)
        return False

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        # Opened anew: threads and forked children have the segment's own descriptor in common, and its lock with it.
        descriptor = os.open(f"/proc/self/fd/{self.segment.fd}", os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, how)
            try:
                yield
            finally:
                fcntl.flock(descriptor, fcntl.LOCK_UN)
        finally:
            os.close(descriptor)


@undisturbed
def _forget(give: Any) -> None:
    with suppress(ValueError):
        givers.remove(give)


class _MemoryWriter(PackWriter):
    def __init__(self, number: int, size: int, opened: _OpenMemory, row: int) -> None:
        super().__init__(number, size)
        self._opened = weakref.ref(opened)
        self._row = row

    def is_there(self) -> bool:
        opened = self._opened()
        return opened is not None and opened.board[self._row] == self.number

    def close(self) -> None:
        if (opened := self._opened()) is not None:
            opened.shrink(self._row, self.number, self.at)

    def put(self, record: bytes) -> None:
        opened = self._opened()
        view = opened.view(self.number) if opened is not None else None
        if opened is None or view is None:
            return
        end = to_page(self.at + len(record))
        _allocate(opened.segment, self.number, self.at // mmap.PAGESIZE * mmap.PAGESIZE, end, keep=True)
        view[self.at : self.at + len(record)] = record
        if not self.is_there():  # it was removed meanwhile
            opened.segment.free(self.number, 0, self.size)
