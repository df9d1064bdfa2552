"""An epoch's batches as the iterator of a torch loader.

Takes: the loop's iterator, or a function that begins one. Gives: iterators of the same batches.
Promises: a profiler sees the waiting; a postponed epoch draws nothing before its first batch; a framework that takes
one batch ahead can have the place before that batch.
Not its job: the loop (engine.loop), which of these is used when (engine).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._C._autograd import _profiler_enabled

from feedline.engine.loop import BatchIterator
from feedline.resume.passed import Passed
from feedline.resume.state import Place


class _Around(Iterator[Any]):
    """The batches of an iterator that exists already, or will later."""

    def __init__(self, batches: Iterator[Any] | None, length: Callable[[], int]) -> None:
        self._batches = batches
        self._length = length

    def __len__(self) -> int:
        return self._length()

    @property
    def samples_given(self) -> int | None:
        """The number of samples in the latest batch, if it is known."""
        return getattr(self._batches, "samples_given", None)


class BegunLater(_Around):
    """An epoch that begins with its first batch. If it is dropped before that, it has drawn nothing."""

    def __init__(self, begin: Callable[[], Iterator[Any]], length: Callable[[], int]) -> None:
        super().__init__(None, length)
        self._begin = begin

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._begin()
        return next(self._batches)


class TorchIterator(BatchIterator[Any]):
    """One epoch; a profiler sees its waiting under the name that profilers look for."""

    def __next__(self) -> Any:
        if not _profiler_enabled():
            return _next_batch(self)
        with torch.autograd.profiler.record_function("enumerate(DataLoader)#TorchIterator.__next__"):
            return _next_batch(self)


_next_batch = BatchIterator.__next__  # called for each batch: finding it by super() takes as long as calling it


class PlaceBefore:
    """The place before the latest batch was taken; None if there is no such batch."""

    place: Place | None = None


class WithPlaceBefore(_Around):
    """The same batches, and the place before the latest of them."""

    def __init__(self, batches: Iterator[Any], length: Callable[[], int], passed: Passed, behind: PlaceBefore) -> None:
        super().__init__(batches, length)
        self._passed = passed
        self._place_before = behind

    def __next__(self) -> Any:
        assert self._batches is not None
        before = self._passed.place
        self._place_before.place = None  # at the end there is no such batch
        batch = next(self._batches)
        self._place_before.place = before
        return batch
