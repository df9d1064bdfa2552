"""What a framework changes on the line: its arrays, its generator, its idea of a worker.

Takes: nothing. Gives: `Dialect`, a value of functions that travels with the job, and `NUMPY`, the core's own.
Promises: the loop, the workers and the arena are the same for every dialect.
Not its job: any framework (its front makes its own `Dialect`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from feedline.collate.array_kinds import NUMPY as NUMPY_ARRAYS
from feedline.collate.default import default_collate
from feedline.collate.making import Arrays
from feedline.collate.ownership import own
from feedline.collate.pieces import NUMPY as NUMPY_PIECES
from feedline.collate.pieces import Pieces
from feedline.datasets import Empty, reads_many
from feedline.machine.worker_info import WorkerInfo
from feedline.reading.fetch import BatchReader, batch_reader


def _nothing(info: WorkerInfo) -> None:
    """NumPy needs no more than what every worker gets."""


def _nothing_to_undo() -> None:
    """And so there is nothing to take back."""


@contextlib.contextmanager
def _nobody_else(info: WorkerInfo) -> Iterator[None]:
    """`feedline.get_worker_info()` is all there is to ask."""
    yield


def _as_it_is(sample: Any) -> Any:
    return sample


@dataclass(frozen=True)
class Dialect:
    """The functions in which frameworks differ; all of them importable, because they travel to workers by name."""

    collate: Callable[[Sequence[Any], Empty, Sequence[Any] | None], Any]
    """Samples into a batch, its large leaves in memory of `empty`; the samples' indices are for messages."""
    own: Callable[[Any, Empty, Any], Any]
    """A tree whose arrays share memory with nothing else, for what a custom collate_fn returns in this process; the
    dataset, should the tree refer to it, is not copied."""
    convert: Callable[[Any], Any]
    """What becomes of a sample that is delivered unbatched."""
    batch_reader: Callable[[Any], BatchReader | None]
    """How to read a whole batch from a dataset at once, if it can be."""
    arrays: Arrays
    """The framework's arrays, for collators."""
    pieces: Pieces
    """How a batch is made in pieces by several workers, and put together."""
    reads_many: Callable[[Any], bool] = reads_many
    """Does the dataset's `__getitems__` do more than read one sample after the other?"""
    reducers: Mapping[type, Callable[..., Any]] = field(default_factory=dict)
    """How to pickle the framework's arrays: `reducer(array, empty)`, as `__reduce__` but the bytes one PickleBuffer."""
    preload: tuple[str, ...] = ("feedline.workers.process_main",)
    """Modules that every worker needs, imported once in the server that spawned workers come from."""
    enter_worker: Callable[[WorkerInfo], None] = _nothing
    """What to set up once in a new worker process."""
    enter_thread: Callable[[WorkerInfo], None] = _nothing
    """The same in a new worker thread."""
    leave_thread: Callable[[], None] = _nothing_to_undo
    """When a worker thread ends: what `enter_thread` has changed in the user's process is undone with the last one."""
    acting: Callable[[WorkerInfo], contextlib.AbstractContextManager[None]] = _nobody_else
    """While that lasts, what else says who a worker process (or the loop itself) is says this."""


NUMPY = Dialect(default_collate, own, _as_it_is, batch_reader, NUMPY_ARRAYS, NUMPY_PIECES)
