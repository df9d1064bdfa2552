"""A sampler as it will be when the next epoch begins.

Takes: one of our samplers. Gives: the sampler itself, or a copy that is set to the next epoch; None if that is unknown.
Promises: the sampler itself does not change. Not its job: checking the prediction (engine.next_epoch compares).
"""

from __future__ import annotations

import copy
from typing import TypeVar

from feedline.order.ranks import DistributedSampler, Listed
from feedline.order.sampler import samplers_in

S = TypeVar("S")


def sampler_of_next_epoch(sampler: S) -> S | None:
    """The sampler for the next epoch; None if asking for the order would draw from a user's generator.

    >>> sampler = DistributedSampler(range(10), num_replicas=2, rank=0)
    >>> sampler_of_next_epoch(sampler) is sampler
    True
    >>> sampler.set_epoch(4)  # as before each epoch, so 5 comes next
    >>> sampler_of_next_epoch(sampler).told_epoch, sampler.told_epoch
    (5, 4)
    """
    if any(isinstance(each, Listed) for each in samplers_in(sampler)):
        return None
    if not isinstance(sampler, DistributedSampler) or sampler.told_epoch is None:
        return sampler
    twin = copy.copy(sampler)
    twin.told_epoch = sampler.told_epoch + 1
    return twin
