"""The samples of a map-style dataset for one task: the same code in every kind of worker.

Takes: a dataset and a task. Gives: the task's samples, or the finished batch if the dataset can gather it by itself.
Promises: `__getbatch__` (when the batch is collated by default), else `__getitems__`, else `__getitem__` one by one;
`feedline.rng()` belongs to the sample being read; an exception says which sample it was.
Not its job: continuing without a sample that fails (salvage), streams (stream_reader), collating (collate), seeding the
global generators (randomness).
"""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable, Iterable, Sequence
from inspect import isawaitable
from types import CoroutineType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from feedline.datasets import (
    ArrayDataset,
    ConcatDataset,
    Empty,
    IntArray,
    Mixture,
    Subset,
    awaits,
    described,
    read_samples,
    reads_batches,
    reads_many,
    reads_one,
)
from feedline.errors import add_note
from feedline.messages.outcome import BadSample, error_line
from feedline.messages.progress import AT_ONCE, PLACE, SINCE, Row, clock, unwatched
from feedline.messages.task import AsGiven, Task
from feedline.randomness.rng import Key, enter_sample, follow_samples, reading_many, thread_place
from feedline.reading.fetch_threads import ConcurrentReading, FetchThreads, Readers, Wanted


class BatchReader(NamedTuple):
    """Reads a whole collated batch; may return NotImplemented."""

    read: Callable[[IntArray, Empty], Any]
    draws: bool
    """Might it draw random numbers? Plain arrays do not, and seeding costs as much as gathering a small batch."""


def batch_reader(dataset: Any) -> BatchReader | None:
    """How to read whole batches from a NumPy dataset, if it can give them."""
    if isinstance(dataset, np.ndarray) and _reads_as_numpy(dataset):  # a bare array is a dataset of its rows
        rows = ArrayDataset(rows=dataset)
        return BatchReader(lambda indices, empty: _only(rows.__getbatch__(indices, empty)), draws=False)
    if reads_batches(dataset):
        return BatchReader(dataset.__getbatch__, draws=not _is_plain(dataset))
    return None


def _reads_as_numpy(array: Any) -> bool:
    """Is its `__getitem__` NumPy's? A user's subclass may read its rows in another way."""
    return getattr(type(array).__getitem__, "__module__", "numpy").partition(".")[0] == "numpy"


def _is_plain(dataset: Any) -> bool:
    """Does it consist only of arrays, chosen and joined? A subclass may do anything."""
    if type(dataset) is Subset:
        return _is_plain(dataset.dataset)
    if type(dataset) in (ConcatDataset, Mixture):
        return all(map(_is_plain, dataset.datasets))
    return type(dataset) is ArrayDataset


def readers_of(dataset: Any, stream: bool, threads: int) -> Readers | None:
    """The readers that read several samples of the dataset at a time, if any."""
    if not stream and awaits(dataset):
        from feedline.reading.fetch_coroutines import FetchLoop  # asyncio takes long to import

        return FetchLoop(threads)
    return FetchThreads(threads) if threads else None


class Fetcher:
    """Reads one dataset, task after task."""

    def __init__(
        self,
        dataset: Any,
        reader: BatchReader | None,
        at_once: bool | None = None,
        row: Row | None = None,
        readers: Readers | None = None,
        *,
        is_written_down: bool = True,
    ) -> None:
        self.dataset = dataset
        self._is_plain = readers is None and not is_written_down
        """Are samples read one by one, without being written into the row?"""
        self.read_so_far: list[Any] | None = None
        """Then the samples of this batch that have been read: they say the same to another thread."""
        self._readers = readers
        self._awaits = readers is not None and awaits(dataset)
        self._row = unwatched() if row is None else row
        self._read = None if reader is None else reader.read
        self.gathers = reader is not None
        """Can the dataset be expected to make whole batches itself?"""
        self._draws = reader is not None and reader.draws
        self._at_once = reads_many(dataset) if at_once is None else at_once
        self._single = dataset if reads_one(dataset) or not self._at_once else _Singly(dataset)

    def gather(self, task: Task, empty: Empty) -> Any:
        """The collated batch, made by the dataset itself; NotImplemented if it cannot."""
        if self._read is None:
            return NotImplemented
        indices = task.indices if isinstance(task.indices, np.ndarray) else _as_places(task.indices)
        if indices is None:
            return NotImplemented
        if self._draws:  # else no task was entered: this thread may be in a sample that itself loads from this loader
            enter_sample(task.seq)
        self._row[PLACE], self._row[SINCE] = AT_ONCE, clock()
        try:
            return self._read(indices, empty)
        except Exception as error:
            self._explain(error, f"dataset.__getbatch__({brief(indices)})")
            raise

    def samples(self, task: Task, indices: Sequence[Any]) -> list[Any]:
        """The samples of the task, one by one or all at once; `indices` are those of `index_list(task)`."""
        if not self._at_once or task.alone:
            return self._unwritten(task, indices) if self._is_plain else self._one_after_the_other(task, indices)
        enter_sample(task.seq)
        self._row[PLACE], self._row[SINCE] = AT_ONCE, clock()
        try:
            with reading_many(len(indices), lambda place: _key(task, indices[place], place)):
                samples = read_samples(self.dataset, indices.given if isinstance(indices, AsGiven) else list(indices))
                return self._readers.finish(samples) if self._awaits and self._readers is not None else samples
        except Exception as error:
            self._explain(error, f"dataset.__getitems__({brief(indices)})")
            raise

    def singly(self, task: Task, indices: Sequence[Any]) -> list[Any]:
        """The same without `__getitems__`."""
        return self._unwritten(task, indices) if self._is_plain else self._one_after_the_other(task, indices)

    def _one_after_the_other(self, task: Task, indices: Sequence[Any]) -> list[Any]:
        """The same as `one_by_one` for all samples. This is the loop in which small samples spend their time."""
        if self._readers is not None:
            return self._several(self._readers, task, enumerate(indices), None)
        dataset, row, samples = self._single, self._row, []
        position, index = -1, None
        follow_samples(lambda: (position, _key(task, index, position)))  # the loop's variables, also after its end
        try:
            for position, index in enumerate(indices):
                row[PLACE] = position
                row[SINCE] = clock()
                samples.append(dataset[index])
        except Exception as error:
            self._explain_one(error, index)
            raise
        return samples if not samples or type(samples[0]) is not CoroutineType else _refused(self.dataset, samples)

    def _unwritten(self, task: Task, indices: Sequence[Any]) -> list[Any]:
        """The same in half the time: what would be written down can be told from how many have been read."""
        dataset, row, place = self._single, self._row, -1
        samples: list[Any] = []
        reading: list[Any] | None = samples
        self.read_so_far = samples

        def find() -> tuple[int, Key]:
            now = place if reading is None else len(reading)
            return now, _key(task, indices[now] if now >= 0 else None, now)

        follow_samples(find)
        row[PLACE] = 0
        row[SINCE] = clock()
        try:
            for index in indices:
                samples.append(dataset[index])
        except Exception as error:
            self._explain_one(error, indices[len(samples)])
            raise
        finally:
            self.read_so_far = None
        # From now on nobody but the caller has the list, and `find` says the last one's place.
        reading, place = None, len(samples) - 1
        return samples if not samples or type(samples[0]) is not CoroutineType else _refused(self.dataset, samples)

    def one_by_one(
        self, task: Task, wanted: Iterable[tuple[int, Any]], bad: dict[int, BadSample] | None = None
    ) -> list[Any]:
        """The samples at those positions and indices; those that fail go into `bad`, if it is given."""
        if self._readers is not None:
            return self._several(self._readers, task, wanted, bad)
        dataset, row, samples, here = self._single, self._row, [], thread_place()
        for position, index in wanted:
            row[PLACE] = position
            row[SINCE] = clock()
            here.enter(_key(task, index, position))
            try:
                samples.append(dataset[index])
            except Exception as error:
                if bad is None:
                    self._explain_one(error, index)
                    raise
                bad[position] = BadSample.of(error, task, index, position, described(self.dataset, index))
        return samples if not samples or type(samples[0]) is not CoroutineType else _refused(self.dataset, samples)

    def _several(
        self, readers: Readers, task: Task, wanted: Iterable[tuple[int, Any]], bad: dict[int, BadSample] | None
    ) -> list[Any]:
        """Like `one_by_one`, but reads several samples at a time."""
        keyed = [Wanted(position, index, _key(task, index, position)) for position, index in wanted]
        if not keyed:
            return []
        reading = ConcurrentReading(self._single, task, keyed, self._row, bad is not None)
        reading.limit = 1 if task.alone or len(keyed) == 1 else readers.count
        readers.read(reading)
        errors, reading.errors = reading.errors, {}  # otherwise an error would keep itself alive
        for number in sorted(errors, key=lambda number: (isinstance(errors[number], Exception), number)):
            error, (position, index, _) = errors[number], keyed[number]
            if not isinstance(error, Exception):
                raise error
            if bad is None:
                self._explain_one(error, index)
                raise error
            bad[position] = BadSample.of(error, task, index, position, described(self.dataset, index))
        samples = [sample for number, sample in enumerate(reading.samples) if number not in errors]
        return samples if not samples or type(samples[0]) is not CoroutineType else _refused(self.dataset, samples)

    def _explain_one(self, error: Exception, index: Any) -> None:
        what = described(self.dataset, index)
        where = f"dataset[{index!r}] ({what})" if what else f"dataset[{index!r}]"
        length = length_of(self.dataset) if isinstance(error, (IndexError, KeyError)) else None
        if length is None or not isinstance(index, int) or not -length <= index < length:
            self._explain(error, where)
            return
        line = error_line(error)
        add_note(error, f"feedline: raised by {where}")
        add_note(error, f"feedline: __len__ says {length}, index {index} failed: {line}")

    def _explain(self, error: Exception, what: str) -> None:
        length = length_of(self.dataset) if isinstance(error, (IndexError, KeyError)) else None
        told = "" if length is None else f"; the dataset's __len__ says {length}"
        add_note(error, f"feedline: raised by {what}{told}")


READ_HERE = Fetcher.one_by_one.__name__, Fetcher._one_after_the_other.__name__, Fetcher._unwritten.__name__
"""The names of the functions that call `__getitem__`."""


def _refused(dataset: Any, samples: list[Any]) -> NoReturn:
    for sample in samples:
        if type(sample) is CoroutineType:
            sample.close()  # otherwise Python warns that it was never awaited
    name = type(dataset).__qualname__
    raise TypeError(
        f"{name}.__getitem__ gave a coroutine but is not a coroutine function, so feedline did not await it: write it "
        "as `async def __getitem__`, and await what it gets from another dataset"
    )


class _Singly:
    """A dataset that has only `__getitems__`, read one by one."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __getitem__(self, index: Any) -> Any:
        samples = read_samples(self._dataset, [index])
        if isawaitable(samples):
            return _only_one(samples)
        (sample,) = samples
        return sample


async def _only_one(samples: Awaitable[list[Any]]) -> Any:
    (sample,) = await samples
    return sample


def _as_places(indices: Any) -> IntArray | None:
    """Indices of a foreign sampler as an array, if they are numbers from 0 on; else None."""
    try:
        places = np.array(indices)
    except ValueError:
        return None
    if places.ndim != 1 or places.dtype.kind not in "iu" or (places < 0).any():
        return None
    return places.astype(np.int64, copy=False)


def index_list(task: Task) -> Sequence[Any]:
    """The task's indices as dataset code expects them: Python ints, or whatever the user's sampler gave."""
    indices = task.indices
    assert indices is not None
    return indices.tolist() if isinstance(indices, np.ndarray) else indices


def brief(indices: IntArray | Sequence[Any], most: int = 16) -> str:
    """A list of indices, shortened for a message."""
    shown = ", ".join(str(index) for index in indices[:most])
    return f"[{shown}{', …' if len(indices) > most else ''}]"


def _only(batch: Any) -> Any:
    return batch if batch is NotImplemented else batch["rows"]


def _key(task: Task, index: Any, position: int) -> Key:
    """The key of a sample's random numbers."""
    if task.first < 0:
        return (index,)
    # An index that comes twice in an epoch must not get the same augmentation twice.
    place = task.first + position * task.stride
    try:
        return operator.index(index), place
    except TypeError:
        return (place,)


def length_of(dataset: Any) -> int | None:
    """The dataset's length, if it has one."""
    try:
        return len(dataset)
    except Exception:  # no __len__, or one that fails: then the length is unknown
        return None
