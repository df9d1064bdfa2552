"""Batches of all ranks together, for torch's loader: what its options become, and whose samplers cannot be shared.

Takes: the options of a loader with `global_batch_size`. Gives: options for torch's loader, whose batches are global;
the engine takes this rank's rows of them (order.shares).
Promises: all ranks have one order. A sampler that draws it from a global generator, which every rank may have seeded in
another way, is refused with its first batch; and nobody else (Accelerate) shares the batches out once more.
Not its job: which rows are whose (order.shares), options that exclude each other (options.together).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import BatchSampler, SequentialSampler

from feedline.errors import OptionError
from feedline.machine.this_rank import ranks as find_ranks
from feedline.order.samplers import RandomSampler
from feedline.order.shares import DRAWN_APART
from feedline.torch.drawn import GLOBAL, Drawn

SHARED_TWICE = (
    "somebody else takes the batches of a loader with global_batch_size, and would give each rank a part of them a "
    "second time. Accelerate's prepare does so: give it a loader with batch_size=, or keep the loader out of prepare()"
)


class GlobalBatches(BatchSampler):
    """The global batches of a loader. Only its engine may take them, because only that takes this rank's rows."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool) -> None:
        super().__init__(sampler, batch_size, drop_last)
        self.of_all = BatchSampler(sampler, batch_size, drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        if find_ranks(None, None, alone=True)[0] > 1:
            raise OptionError(SHARED_TWICE)
        return super().__iter__()


def batching(given: Mapping[str, Any], stream: bool) -> dict[str, Any]:
    """The options of torch's loader that follow from `global_batch_size`; none without it."""
    size = given["global_batch_size"]
    if size is None:
        return {}
    if stream:
        return {"batch_size": size}
    sampler, dataset = given["sampler"], given["dataset"]
    if sampler is None:
        seed = seed_of(given["generator"])
        sampler = RandomSampler(dataset, seed=seed) if given["shuffle"] else SequentialSampler(dataset)
    batches = GlobalBatches(sampler, size, given["drop_last"])
    return {"batch_sampler": batches, "batch_size": 1, "sampler": None, "shuffle": None, "drop_last": False}


def seed_of(generator: torch.Generator | None) -> int:
    """What order and draws follow from, on all ranks: without a generator 0, as with torch's DistributedSampler."""
    return 0 if generator is None else generator.initial_seed() % (1 << 62)


def check_drawn(drawn: Drawn) -> None:
    """Refuse an order that was drawn from a generator of this process."""
    names = {*drawn.asked, *(drawn.taken or ())} & {*GLOBAL}
    if drawn.seed is not None:
        names.add("torch")
    if names:
        raise OptionError(DRAWN_APART.format(names=", ".join(sorted(names))))
