"""The shuffle buffer of a stream; it can be restored without its elements having been stored.

Takes: elements, a size, a key. Gives: the elements in another order; a record of the buffer to save.
Promises: the order is a function of the key. The record is a mark, made every `size` elements: a position of the
source, and the numbers of the elements that were in the buffer a little later. To continue, the elements after that
position are read again and those in the buffer are kept; then the batches since the mark are skipped.
Not its job: seeds of batches (stream_reader), the source's own state (stream_source).
"""

from __future__ import annotations

import base64
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from feedline.errors import StateError
from feedline.randomness.rng import mix
from feedline.reading.stream_source import Record

DRAWS = 4096
"""After this many draws the generator is reseeded: to continue, at most this many are repeated, in a millisecond."""


class Shuffled:
    """Elements in random order, as far as a buffer of `size` elements allows; a function of the key.

    >>> sorted(Shuffled(iter(range(10)), 4, key=1))
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
    """

    def __init__(self, elements: Iterator[Any], size: int, key: int, begun: Record | None = None) -> None:
        self._begun = begun or {}  # the record that the source began with
        self._elements = elements
        self._size = size
        self._key = key
        self._random = random.Random(key)
        self._drawn = 0
        self._buffer: list[Any] = []
        self._numbers: list[int] = []  # numbers of the elements in the buffer, in the same order
        self._read = 0
        self._ended = False
        self._marks: list[_Mark] = []
        self._latest: Record = {}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        # If an element raises, the error is passed on, and nothing in the buffer is lost.
        while len(self._buffer) < self._size and not self._ended:
            self._fill()
        buffer, numbers = self._buffer, self._numbers
        if not buffer:
            raise StopIteration
        place = int(self._draw() * len(buffer))
        buffer[place], buffer[-1] = buffer[-1], buffer[place]
        numbers[place], numbers[-1] = numbers[-1], numbers[place]
        numbers.pop()
        return buffer.pop()

    def _fill(self) -> None:
        self._read += 1
        try:
            element = next(self._elements)
        except StopIteration:
            self._ended = True
        else:
            self._buffer.append(element)
            self._numbers.append(self._read - 1)

    def _draw(self) -> float:
        if self._drawn and not self._drawn % DRAWS:
            self._random = random.Random(mix(self._key, self._drawn))
        self._drawn += 1
        return self._random.random()

    def begin_batch(self, seq: int, source: Callable[[], Record]) -> None:
        """A batch begins; make a mark if it is time for one."""
        marks = self._marks
        if not marks:
            marks.append(_Mark(seq, 0, self._begun))
        if marks[-1].seq == seq:  # the mark was made just now
            return
        marks[-1].batch_ends(self._read)
        if self._read - marks[-1].read >= self._size and not self._ended:
            self._mark(seq, source())

    def _mark(self, seq: int, source: Record) -> None:
        oldest = min(self._numbers, default=self._read)
        self._marks.append(_Mark(seq, self._read, source))
        while len(self._marks) > 1 and self._marks[1].read <= oldest:
            del self._marks[0]
        base = self._marks[0]
        kept = np.asarray(self._numbers, np.int64) - base.read
        self._latest = {
            **base.source,
            "shuffle": {
                "seq": base.seq,
                "batches": [run for mark in self._marks[:-1] for run in mark.batches],
                "drawn": self._drawn,
                "kept": base64.b64encode(kept.astype("<u4").tobytes()).decode(),
            },
        }

    def record(self) -> Record:
        """The latest mark; before the first one, the beginning."""
        return self._latest or self._begun

    def restore(self, record: Record, source: Callable[[], Record], seed: Callable[[int], None], step: int) -> int:
        """Restore the buffer as of that mark; returns the number of the batch that came next then."""
        saved, read = record["shuffle"], record.get("read", 0)
        numbers = np.frombuffer(base64.b64decode(saved["kept"]), "<u4").astype(np.int64) + read
        self._numbers = numbers.tolist()
        self._read, seq = read, saved["seq"]
        wanted, found = set(self._numbers), {}
        base = _Mark(
            seq, read, {name: value for name, value in record.items() if name in ("read", "of", "state", "dataset")}
        )
        for reads, times in saved["batches"]:
            for _ in range(times):
                seed(seq)
                seq += step
                for _ in range(reads):
                    element = self._again()
                    if self._read - 1 in wanted and element is not _FAILED:
                        found[self._read - 1] = element
                base.batch_ends(self._read)
        if len(found) < len(wanted):
            raise StateError("elements that were in the shuffle buffer failed when they were read again")
        self._buffer = [found[number] for number in self._numbers]
        self._drawn = saved["drawn"]
        begun = self._drawn and (self._drawn - 1) // DRAWS * DRAWS
        self._random = random.Random(mix(self._key, begun) if begun else self._key)
        for _ in range(self._drawn - begun):
            self._random.random()
        self._marks = [base]
        self._mark(seq, source())
        return int(seq)

    def _again(self) -> Any:
        self._read += 1
        try:
            return next(self._elements)
        except StopIteration:
            raise StateError("the IterableDataset has fewer elements than when the state was saved") from None
        except Exception:  # it failed then, too, and was reported
            return _FAILED


_FAILED = object()


class _Mark:
    """A position in the source at the beginning of a batch, and what each batch read from there to the next mark."""

    def __init__(self, seq: int, read: int, source: Record) -> None:
        self.seq = seq
        self.read = read
        self.source = source
        self.batches: list[list[int]] = []
        """Pairs: elements read in a batch, and how many consecutive batches read that many."""
        self._end = read

    def batch_ends(self, read: int) -> None:
        """A batch has ended; `read` elements have been read in total."""
        count, self._end = read - self._end, read
        if self.batches and self.batches[-1][0] == count:
            self.batches[-1][1] += 1
        else:
            self.batches.append([count, 1])
