"""A task's samples when some of them fail: those that can be read, and a report of the others.

Takes: a fetcher and a task. Gives: the samples (or the batch the dataset gathered by itself) and the bad ones.
Promises: a sample that raises is left out, or replaced by its nearest good neighbour. Which samples fail, and what
replaces them, depends on the task alone. A dataset is read in its fastest way until that fails.
Not its job: streams (stream_reader), counting and logging failures (bad_samples), errors of collating (body raises
them).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from feedline.datasets import Empty, described
from feedline.messages.outcome import BadSample
from feedline.messages.progress import INDEX, Row
from feedline.messages.task import Task
from feedline.reading.fetch import Fetcher, index_list, length_of

TRIES = 16
"""How many neighbours are tried before the sample is left out."""
_LARGEST = (1 << 63) - 1
ONLY_TOGETHER = (
    "reading several samples at once failed ({error}) although each of them can be read alone, so they were read one "
    "by one. That is slower: look at the dataset's __getitems__ or __getbatch__"
)


class Salvaged(NamedTuple):
    """What could be read."""

    batch: Any
    """The batch if the dataset gathered it whole, else NotImplemented."""
    samples: list[Any]
    indices: Sequence[Any]
    """The indices of the samples, one for each."""
    bad: tuple[BadSample, ...]
    notice: str | None = None


class Salvage:
    """Reads one dataset, task after task, and does not stop at a sample that fails."""

    def __init__(self, fetcher: Fetcher, reads_many: bool, replace: bool, row: Row) -> None:
        self._fetcher = fetcher
        self._row = row
        row[INDEX] = 0  # the previous worker may have been killed while it read a neighbour
        self._reads_many = reads_many
        self._replace = replace

    def read(self, task: Task, empty: Empty, reseed: Callable[[], None]) -> Salvaged:
        """The task's samples; `reseed` restarts its random numbers for a second attempt."""
        if task.alone or task.avoid:
            return self._singly(task)
        try:
            batch = self._fetcher.gather(task, empty)
            if batch is not NotImplemented:
                return Salvaged(batch, [], (), ())
            if self._reads_many:
                indices = index_list(task)
                return Salvaged(NotImplemented, self._fetcher.samples(task, indices), indices, ())
        except Exception as error:
            failed = type(error).__qualname__
        else:
            return self._singly(task)
        reseed()
        found = self._singly(task)
        return found if found.bad else found._replace(notice=ONLY_TOGETHER.format(error=failed))

    def _singly(self, task: Task) -> Salvaged:
        indices = index_list(task)
        bad: dict[int, BadSample] = {}
        for place, why in task.avoid:
            what = described(self._fetcher.dataset, indices[place])
            # If a place is named twice, the second reason is about its replacement: the first one is kept.
            bad.setdefault(place, BadSample(indices[place], place, what, why, epoch=task.epoch, seq=task.seq))
        wanted = [pair for pair in enumerate(indices) if pair[0] not in bad]
        samples = self._fetcher.one_by_one(task, wanted, bad)
        if not bad:
            return Salvaged(NotImplemented, samples, indices, ())
        replaced = self._replacements(task, indices, bad) if self._replace else {}
        good = iter(samples)
        kept = [
            replaced[place] if place in bad else (index, next(good))
            for place, index in enumerate(indices)
            if place not in bad or place in replaced
        ]
        return Salvaged(
            NotImplemented,
            [sample for _, sample in kept],
            [index for index, _ in kept],
            tuple(bad[place] for place in sorted(bad)),
        )

    def _replacements(
        self, task: Task, indices: Sequence[Any], bad: dict[int, BadSample]
    ) -> dict[int, tuple[Any, Any]]:
        """For bad places: an index that could be read instead, and its sample. `bad` notes the replacement."""
        found: dict[int, tuple[Any, Any]] = {}
        avoided = [place for place, _ in task.avoid]
        for place in sorted(bad):
            if avoided.count(place) > 1:  # its replacement kills workers, too
                continue
            for index in islice(self._neighbours(indices, place, bad), TRIES):
                self._row[INDEX] = _as_number(index) + 1
                try:
                    samples = self._fetcher.one_by_one(task, [(place, index)], {})
                finally:
                    self._row[INDEX] = 0
                if samples:
                    found[place] = index, samples[0]
                    bad[place] = bad[place]._replace(replacement=index)
                    break
        return found

    def _neighbours(self, indices: Sequence[Any], place: int, bad: dict[int, BadSample]) -> Iterator[Any]:
        """Indices to read instead, nearest first: of the dataset or, if its indices are not numbers, of the batch."""
        length = length_of(self._fetcher.dataset) or 0
        index = _counted(indices[place], length)
        if index is None:
            yield from (indices[other] for other in _around(place, len(indices)) if other not in bad)
        else:
            known = {_counted(sample.index, length) for sample in bad.values()}
            yield from (other for other in _around(index, length) if other not in known)


def _around(place: int, length: int) -> Iterator[int]:
    """The other places, nearest first.

    >>> list(_around(1, 5))
    [2, 0, 3, 4]
    """
    for distance in range(1, max(place + 1, length - place)):
        if place + distance < length:
            yield place + distance
        if place - distance >= 0:
            yield place - distance


def _as_number(index: Any) -> int:
    """An index as an integer that fits into a row; -1 for any other index."""
    number = _counted(index, _LARGEST)
    return number if number is not None and number == index else -1


def _counted(index: Any, length: int) -> int | None:
    """An index counted from the front, if it is below that length."""
    if isinstance(index, bool) or not isinstance(index, (int, np.integer)) or not -length <= index < length:
        return None
    return int(index) % length
