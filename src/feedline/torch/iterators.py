"""An epoch's batches as a torch loader's iterator gives them.

Takes: the loop's iterator, or how to begin one. Gives: iterators of the same batches.
Promises: a profiler sees the waiting; an epoch that is put off draws nothing before its first batch; for who takes one
batch ahead there is the place before that batch.
Not its job: the loop (loop), when which of them is used (engine).
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
    """Batches of an iterator that is there, or will be."""

    def __init__(self, batches: Iterator[Any] | None, length: Callable[[], int]) -> None:
        self._batches = batches
        self._length = length

    def __len__(self) -> int:
        return self._length()

    @property
    def samples_given(self) -> int | None:
        """How many the latest batch was made of, if that is known."""
        return getattr(self._batches, "samples_given", None)


class PutOff(_Around):
    """An epoch that begins with its first batch. Dropped before that, it has drawn nothing."""

    def __init__(self, begin: Callable[[], Iterator[Any]], length: Callable[[], int]) -> None:
        super().__init__(None, length)
        self._begin = begin

    def __next__(self) -> Any:
        if self._batches is None:
            self._batches = self._begin()
        return next(self._batches)


class TorchIterator(BatchIterator[Any]):
    """One epoch, whose waiting a profiler sees under the name it looks for."""

    def __next__(self) -> Any:
        if not _profiler_enabled():
            return super().__next__()
        with torch.autograd.profiler.record_function("enumerate(DataLoader)#TorchIterator.__next__"):
            return super().__next__()


class Behind:
    """Where the run stood before the latest batch was taken; None if none is out."""

    place: Place | None = None


class OneBehind(_Around):
    """Batches as they are, and the place before the latest of them."""

    def __init__(self, batches: Iterator[Any], length: Callable[[], int], passed: Passed, behind: Behind) -> None:
        super().__init__(batches, length)
        self._passed = passed
        self._behind = behind

    def __next__(self) -> Any:
        assert self._batches is not None
        before = self._passed.place
        self._behind.place = None  # at the end nothing is out
        batch = next(self._batches)
        self._behind.place = before
        return batch
