"""What a loader's workers are told once, at their start.

Takes: a loader's resolved options. Gives: a `Job`, which contains the dataset and is sent to each worker.
Not its job: anything about a single batch (messages.Task), doing the work (body).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from feedline.collate.default import LeafCollate
from feedline.order.rank_turns import ONE_RANK, Turns
from feedline.order.shares import WHOLE, Share
from feedline.reading.stream_source import Loaded
from feedline.workers.dialect import NUMPY, Dialect


@dataclass(frozen=True)
class Job:
    """It is the same for all workers of a loader, and for all its epochs."""

    dataset: Any
    stream: bool
    batched: bool
    batch_size: int
    drop_last: bool
    collate_fn: Callable[[Any], Any] | None
    worker_init_fn: Callable[[int], None] | None
    shuffle_buffer: int
    seed: int
    """A worker's seed (`get_worker_info().seed`) is this plus its number."""
    num_workers: int
    registrations: dict[type, LeafCollate] = field(default_factory=dict)
    dialect: Dialect = NUMPY
    on_error: str = "raise"
    in_turn: bool = False
    """Does each of N workers get every Nth batch, so that what it keeps between samples is the same in every run? Then
    it makes all of them, wanted or not. Otherwise any free worker takes the next batch."""
    marked: bool = False
    """Do workers note when they made each batch, for a recording?"""
    fetch_threads: int = 0
    """How many samples of a batch a worker reads at a time; 0: one, or for coroutines a default of their own."""
    turns: Turns = ONE_RANK
    """Which of a stream's batches are this rank's."""
    share: Share = WHOLE
    """Which rows of each batch of a stream are this rank's; the others are read and dropped."""
    unshared: int = 0
    """How many ranks each read the whole stream, without the user having said that this is intended; else 0."""
    snapshot_every: int = 1
    """A part of a stream is asked for its state after every this many of its batches; 0: once."""
    loaded: Loaded | None = None
    """What is known about a stream's dataset from earlier epochs, if it is read without workers."""

    def number_of(self, worker: int) -> tuple[int, int]:
        """The worker's number, and how many there are. If ranks divide a stream, the workers of all ranks count."""
        ranks, rank, _ = self.turns
        return worker * ranks + rank, max(1, self.num_workers) * ranks
