"""The worker processes themselves, and the pipes and memory they share with their parent.

Takes: what each worker is given (the job under fork, else the parcel that holds it). Gives: started processes, each
with a number; a dead process can be replaced.
Promises: no reference to the job is kept here, so that the finalizer that ends the crew does not keep a loader alive;
only the parent gets Ctrl-C.
Not its job: tasks and outcomes (processes), what a worker does (process_main), when to replace one (supervise).
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import selectors
import threading
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from typing import Any

from feedline.arena.kept import KeptPool
from feedline.arena.segment import BOARD, JOB_SLOT, STRIDE
from feedline.engine.contract import CLOSED_MEANWHILE
from feedline.errors import WorkerError
from feedline.messages.progress import LEAVING, PLACE, SETTING_UP, SINCE, TASK, WIDTH, Row, clock, unwatched
from feedline.observe.meter import Spent, spent_by
from feedline.supervise import fork_hazards, last_words, lifeline
from feedline.supervise.shutdown import KILL_SECONDS, WorkerProcess, end, open_member, uninterrupted
from feedline.workers import process_main
from feedline.workers.dialect import Dialect
from feedline.workers.job import Job
from feedline.workers.main_guard import NAME
from feedline.workers.one_thread import environment_of_new_workers, look_for_libraries
from feedline.workers.shipping import Parcel, without_main, without_unimportable_main
from feedline.workers.warm import ctrl_c_blocked, preloaded_by_the_user, processes_from
from feedline.workers.wire import Descriptor, Lane


class Crew:
    """At most `count` processes, which get tasks through one or several lanes (pipes)."""

    def __init__(self, count: int, dialect: Dialect, kept: KeptPool) -> None:
        self.count = count
        self.owner = os.getpid()
        self.pool = kept.take()
        self._kept = kept
        self._has_pool = True
        self.lanes: list[Lane] = []
        self.done: tuple[int, int] = (-1, -1)
        self.selector = selectors.DefaultSelector()
        self.members: dict[int, WorkerProcess] = {}
        self._still_running: list[WorkerProcess] = []
        self._dialect = dialect
        self._board: Any = None
        self._spent = Spent()
        self.is_ending = False
        """Are the processes being ended, or have they been?"""
        self.lock = threading.RLock()  # reentrant for the same reason as the pool's lock
        """Held while descriptors are used: if another thread closed one, its number could soon mean another file, and
        a worker forked at that moment would use that file."""

    def open(self, lanes: int) -> None:
        """Make the pipes and the board, before any process is started."""
        self._board = self.pool.segment.board(WIDTH * (1 + self.count), create=True)
        for _ in range(lanes):
            self.lanes.append(Lane())
        self.done = os.pipe()
        os.set_blocking(self.done[0], False)
        self.selector.register(self.done[0], selectors.EVENT_READ, None)

    def row(self, number: int) -> Row:
        """That worker's row of the board: what it is doing, or did last."""
        board = self._board
        if board is None:
            return unwatched()
        return board[WIDTH * (1 + number) : WIDTH * (2 + number)]  # type: ignore[no-any-return]

    def spent(self) -> Spent:
        """What all workers, including dead ones, have spent their time on. Still known after the end."""
        if self._board is None:
            return self._spent
        return spent_by([self.row(number) for number in range(self.count)])

    def lane_of(self, number: int) -> Lane:
        """The lane from which a worker (or a stream's shard) gets its tasks."""
        return self.lanes[number % len(self.lanes)]

    def set_run(self, run: int) -> None:
        """Tell all workers which tasks are still wanted. Does nothing in a forked copy of this process."""
        if self._board is not None and self.owner == os.getpid():
            self._board[0] = run

    def start_workers(self, numbers: Sequence[int], cargo: Job | Parcel, context: BaseContext) -> None:
        """Start processes with those numbers, all at the same time."""
        forked = isinstance(cargo, Job)
        if forked:
            origin = _forked()
        else:
            asked_for = preloaded_by_the_user() if context.get_start_method() == "forkserver" else ()
            context = multiprocessing.get_context("forkserver")
            origin = processes_from((*self._dialect.preload, *asked_for))
        hides = self._dialect.hides_main and not forked
        with environment_of_new_workers(), without_main() if hides else without_unimportable_main(), origin:
            for number in numbers:
                self._start_one(number, cargo, context, forked)

    def _start_one(self, number: int, cargo: Job | Parcel, context: Any, forked: bool) -> None:
        last_words.erase(self.pool.segment, number)
        row = self.row(number)
        row[TASK], row[PLACE], row[SINCE] = 0, SETTING_UP, clock()
        wiring = process_main.Wiring(
            Descriptor(self.lane_of(number).reading),
            Descriptor(self.done[1]),
            Descriptor(self.pool.segment.fd),
            Descriptor(lifeline.reading_end()),
            (self.done[0], *(fd for lane in self.lanes for fd in lane.parents_own)) if forked else (),
            self.count,
            {**os.environ, **self._dialect.environment},
        )
        process = context.Process(
            target=process_main.main, args=(wiring, cargo, number), name=f"{NAME}{number}", daemon=True
        )
        self.members[number] = WorkerProcess(process, -1)  # before the start, so that an interrupted start is ended too
        try:
            process.start()
        except OSError:  # no process was started
            del self.members[number]
            raise
        self.members[number] = member = open_member(process)
        self.selector.register(member.end, selectors.EVENT_READ, number)

    def staying(self) -> list[int]:
        """Workers that have not yet said that they leave."""
        return [number for number in self.members if self.row(number)[PLACE] != LEAVING]

    def unused_numbers(self) -> Iterator[int]:
        """Numbers without a process."""
        return (number for number in range(self.count) if number not in self.members)

    def has_ended(self, number: int) -> bool:
        """Has that process ended, dismissed or not?"""
        return bool(wait([self.members[number].end], 0))

    def clean_up(self, number: int) -> tuple[int | None, int | None, int]:
        """Remove a process that has ended. Returns its pid, exit code and, if known, its peak memory."""
        member = self.members.pop(number)
        self.selector.unregister(member.end)
        most = member.reap()
        found = member.process.pid, member.process.exitcode, most
        member.close()
        return found

    def give_up(self, number: int) -> int | None:
        """Remove a process that cannot be ended now, and return its pid. `end` tries again."""
        member = self.members.pop(number)
        self.selector.unregister(member.end)
        self._still_running.append(member)
        return int(member.process.pid)

    def check(self) -> None:
        """Raise an error if another thread ended the crew before this one got the lock."""
        if self.is_ending:
            raise WorkerError(CLOSED_MEANWHILE)

    def end(self) -> None:
        """End all processes and release everything. May be called twice, and in any state."""
        if self.owner != os.getpid():  # a forked child's copy: the workers are not its own
            return
        is_mine = self.lock.acquire(timeout=KILL_SECONDS)  # another thread may hold it forever
        try:
            with uninterrupted():
                self._end(is_mine)
        finally:
            if is_mine:
                self.lock.release()

    def _end(self, alone: bool) -> None:
        self.is_ending = True
        members = [*self.members.values(), *self._still_running]
        all_ended = end([member for member in members if member.process.pid is not None])
        self.members, self._still_running = {}, []
        self.selector.close()
        for lane in self.lanes:
            lane.close()
        self.lanes = []
        if self.done != (-1, -1):
            for fd in self.done:
                os.close(fd)
            self.done = (-1, -1)
        if self._board is not None:
            self._spent, self._board = self.spent(), None
            for slot in (JOB_SLOT, *range(BOARD, BOARD + 1 + self.count)):
                self.pool.segment.free(slot, 0, STRIDE)
        if self._has_pool:
            if all_ended and alone:
                self._kept.give(self.pool)
            else:  # one that waits in the kernel, or another thread, may still use it
                self.pool.close()
            self._has_pool = False  # from now on it may belong to the next epoch


@contextlib.contextmanager
def _forked() -> Iterator[None]:
    fork_hazards.note_fork()
    look_for_libraries()  # once, instead of in each worker
    with uninterrupted(), ctrl_c_blocked():
        yield
