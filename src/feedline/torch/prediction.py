"""The order that torch's samplers will give in the next epoch, without a draw from any generator.

Takes: a loader's sampler, the next epoch's number. Gives: the tasks of that epoch, provided that nobody draws from the
generators before it (but the loader a base seed, if that is said); None for samplers other than torch's and ours.
Promises: generators and samplers do not change: copies are asked.
Not its job: the real draws (orders), checking the prediction (engine.next_epoch compares).
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from feedline.order.plan import Tasks
from feedline.resume.state import Place
from feedline.torch.drawn import Drawn, TorchGenerators
from feedline.torch.orders import Asking, is_stock_order, own_plan

_NOTHING: Any = object()


def predicted(
    index_sampler: Any, batched: bool, epoch: int, seed: int, step: int, first_from: Any = _NOTHING
) -> Tasks | None:
    """The tasks of that epoch and seed; by then torch's DistributedSampler will be at an epoch `step` later.

    `first_from` is the generator (None: torch's own) that the loader draws a base seed from before the sampler draws.
    """
    plan = own_plan(index_sampler, batched, seed)
    if plan is not None:
        return plan.predicted(epoch)
    twin = _twin_of_all(index_sampler, batched, step, first_from)
    if twin is None:
        return None
    # The sampler's exact type is known, so a dataset that reads many at once gets the same lists as any other.
    asking = Asking(
        twin, is_stock_order(twin), batched, False, Place(epoch), Drawn(begun=True), TorchGenerators(None, [])
    )
    asking.ask()
    return asking.tasks(seed)


def _twin_of_all(index_sampler: Any, batched: bool, step: int, first_from: Any) -> Any:
    if not batched:
        return _twin(index_sampler, step, first_from)
    if type(index_sampler) is not BatchSampler:
        return None
    twin = _twin(index_sampler.sampler, step, first_from)
    return None if twin is None else BatchSampler(twin, index_sampler.batch_size, index_sampler.drop_last)


def _twin(sampler: Any, step: int, first_from: Any) -> Any:
    """A sampler that gives what this one will, and draws from copies. Exact types only: a subclass may do anything."""
    kind = type(sampler)
    if kind is SequentialSampler:
        return sampler
    if kind not in (DistributedSampler, RandomSampler, SubsetRandomSampler, WeightedRandomSampler):
        return None
    twin = copy.copy(sampler)
    if kind is DistributedSampler:
        twin.epoch += step
        return twin
    given = sampler.generator
    if given is not None and given.device.type != "cpu":
        return None
    twin.generator = _copied(torch.default_generator if given is None else given)
    if first_from is given:
        torch.empty((), dtype=torch.int64).random_(generator=twin.generator)
    if kind is RandomSampler and given is None:  # it then draws a seed for a generator of its own
        drawn = torch.empty((), dtype=torch.int64).random_(generator=twin.generator)
        twin.generator = torch.Generator()
        twin.generator.manual_seed(int(drawn.item()))
    return twin


def _copied(generator: torch.Generator) -> torch.Generator:
    twin = torch.Generator()
    twin.set_state(generator.get_state())
    return twin
