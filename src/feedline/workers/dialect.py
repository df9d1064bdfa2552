"""What differs between frameworks: their arrays, their random generator, their worker info.

Takes: nothing. Gives: `Dialect`, a set of functions that is sent with the job, and `NUMPY`, the core's own.
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
from feedline.collate.ownership import own_held
from feedline.collate.pieces import NUMPY as NUMPY_PIECES
from feedline.collate.pieces import Pieces
from feedline.datasets import Empty, reads_many
from feedline.machine.worker_info import WorkerInfo
from feedline.reading.fetch import BatchReader, batch_reader


def _nothing(info: WorkerInfo) -> None:
    """NumPy needs no extra set-up."""


def _nothing_to_undo() -> None:
    """And so there is nothing to take back."""


@contextlib.contextmanager
def _nobody_else(info: WorkerInfo) -> Iterator[None]:
    """With NumPy, only `feedline.get_worker_info()` says which worker this is."""
    yield


def _as_it_is(sample: Any) -> Any:
    return sample


@dataclass(frozen=True)
class Dialect:
    """The functions in which frameworks differ. All are importable, because they are sent to workers by name."""

    collate: Callable[[Sequence[Any], Empty, Sequence[Any] | None], Any]
    """Makes a batch of samples, with large leaves in memory from `empty`; the samples' indices are for messages."""
    own: Callable[[list[Any], Empty, Any], Any]
    """Gives what a custom collate_fn returned in this process, which is in a list that nobody else has. Its arrays are
    copied unless it is certain that nobody else has their memory. If the tree refers to the dataset, that is not
    copied."""
    convert: Callable[[Any], Any]
    """Converts a sample that is delivered unbatched."""
    batch_reader: Callable[[Any], BatchReader | None]
    """How to read a whole batch from a dataset at once, if that is possible."""
    arrays: Arrays
    """The framework's arrays, for collators."""
    pieces: Pieces
    """How several workers make pieces of a batch, and how the pieces are joined."""
    reads_many: Callable[[Any], bool] = reads_many
    """Does the dataset's `__getitems__` do more than read samples one by one?"""
    reducers: Mapping[type, Callable[..., Any]] = field(default_factory=dict)
    """How to pickle the framework's arrays: `reducer(array, empty)` is like `__reduce__`, with one PickleBuffer."""
    preload: tuple[str, ...] = ("feedline.workers.process_main",)
    """Modules that every worker needs. The server that workers are forked from imports them once."""
    hides_main: bool = False
    """Do workers start without importing the main script, which may import much that they do not need? Its classes are
    then sent by value; if that is impossible, it is an error that says what cannot be sent."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that a worker process has, whatever they are in the main process."""
    enter_worker: Callable[[WorkerInfo], None] = _nothing
    """Called once in each new worker process."""
    enter_thread: Callable[[WorkerInfo], None] = _nothing
    """The same in a new worker thread."""
    leave_thread: Callable[[], None] = _nothing_to_undo
    """When a worker thread ends: what `enter_thread` has changed in the user's process is undone with the last one."""
    acting: Callable[[WorkerInfo], contextlib.AbstractContextManager[None]] = _nobody_else
    """Within this context, the framework's own worker info (of a worker process or the loop) says the same as ours."""


NUMPY = Dialect(default_collate, own_held, _as_it_is, batch_reader, NUMPY_ARRAYS, NUMPY_PIECES)
