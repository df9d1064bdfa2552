"""What a loader's workers need to know, once.

Takes: a loader's options, resolved. Gives: a `Job`, which travels to each worker with the dataset in it.
Not its job: anything about a single batch (messages.Task), doing it (body).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from feedline.collate.default import LeafCollate
from feedline.order.rank_turns import ONE_RANK, Turns
from feedline.reading.stream_source import Loaded
from feedline.workers.dialect import NUMPY, Dialect


@dataclass(frozen=True)
class Job:
    """The same for all workers of a loader, and for all its epochs."""

    dataset: Any
    stream: bool
    batched: bool
    batch_size: int
    drop_last: bool
    collate_fn: Callable[[Any], Any] | None
    worker_init_fn: Callable[[int], None] | None
    shuffle_buffer: int
    seed: int
    """That workers begin with (`get_worker_info().seed`), each with its number added."""
    num_workers: int
    registrations: dict[type, LeafCollate] = field(default_factory=dict)
    dialect: Dialect = NUMPY
    on_error: str = "raise"
    in_turn: bool = False
    """Is each worker given every Nth batch, so that what it keeps from one sample to the next is the same in every run?
    Then it makes all it is given, wanted or not. Else any free worker takes the next one."""
    marked: bool = False
    """Is it written down when each batch was made?"""
    fetch_threads: int = 0
    """How many of a batch's samples a worker reads at a time; 0: one, or of coroutines a number of their own."""
    turns: Turns = ONE_RANK
    """Which of a stream's batches are this rank's."""
    unshared: int = 0
    """So many ranks each read all that a stream gives, and nobody has said that this is meant."""
    snapshot_every: int = 1
    """After how many of its batches a part of a stream is asked for its state; 0: once."""
    loaded: Loaded | None = None
    """What is known of a stream's dataset from earlier epochs, where it is read without workers."""

    def number_of(self, worker: int) -> tuple[int, int]:
        """Which worker that is, and of how many: of a stream that ranks share, all workers of all ranks are counted."""
        ranks, rank, _ = self.turns
        return worker * ranks + rank, max(1, self.num_workers) * ranks
