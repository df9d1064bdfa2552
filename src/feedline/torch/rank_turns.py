"""Which rank's share of an order a torch loader's sampler gives.

Takes: a sampler or batch sampler. Gives: the number of ranks and the rank, as the sampler itself says.
Promises: nothing is iterated or changed. Not its job: what follows for draws (orders) and for states (known).
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import DistributedSampler

from feedline.errors.foreign import ask, has
from feedline.order.ranks import DistributedSampler as OwnDistributed
from feedline.order.sampler import samplers_in


def turns_in(index_sampler: Any) -> tuple[int, int]:
    """The number of ranks that share an order, and which of them this is; (1, 0) if the sampler knows of no ranks."""
    for each in samplers_in(index_sampler):
        if isinstance(each, (DistributedSampler, OwnDistributed)):
            return each.num_replicas, each.rank
        if accelerates(each) > 1:
            return accelerates(each), int(ask(each, "process_index", 0))
    return 1, 0


def accelerates(sampler: Any) -> int:
    """The number of ranks over which Accelerate shares out a batch sampler, if this is one rank's part; else 0."""
    is_part = has(sampler, "batch_sampler") and has(sampler, "process_index")
    return int(ask(sampler, "num_processes", 0)) if is_part else 0


def shares_out(sampler: Any) -> bool:
    """Is it torch's DistributedSampler, or a subclass that shares out the order in the same way?"""
    return isinstance(sampler, DistributedSampler) and type(sampler).__iter__ is DistributedSampler.__iter__
