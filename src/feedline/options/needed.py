"""The options that the engine needs, for every front.

Takes: checked options, from a front. Gives: `Options`.
Promises: every field is read by the loop, by the code that starts workers or by the code that decides their number.
Not its job: what workers need (workers.job), what only a front needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

from feedline.observe.stats import Stats
from feedline.options.table import ErrorPolicy


@dataclass(frozen=True)
class Options:
    """The options of one epoch: those of torch's loaders may change between two epochs."""

    dataset: Any
    stream: bool
    """Is the dataset read by iterating?"""
    batched: bool
    """Does a task make a batch, or pass on a single sample?"""
    batch_size: int | None
    """None for no batching, or if a batch sampler decides."""
    drop_last: bool
    num_workers: int
    workers: str
    ray_options: dict[str, Any] | None
    multiprocessing_context: str | BaseContext | None
    prefetch_factor: int
    persistent_workers: bool
    prefetch_next_epoch: bool
    in_order: bool
    timeout: float
    error_policy: ErrorPolicy
    on_epoch_end: Callable[[Stats], object] | None
