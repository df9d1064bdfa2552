"""Facts about a torch loader's sampler: its name, its length, the number of ranks that share its order.

Takes: a sampler or batch sampler. Gives: the `Kind` that a state must agree with, the `Sharing` that counting needs.
Promises: the same on every rank, so the state of any rank will do. Only an order that is certainly shared out index by
index may be continued on another number of ranks.
Not its job: the order itself (orders).
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler

from feedline.errors import OptionError
from feedline.errors.counting import counted
from feedline.order.last_batch import lone_sample
from feedline.order.ranks import DistributedSampler as OwnDistributed
from feedline.order.ranks import global_length, name_of, ranks_of
from feedline.order.sampler import Sampler, has_batches, samplers_in
from feedline.order.samplers import BatchSampler as OwnBatchSampler
from feedline.resume.passed import Sharing
from feedline.resume.state import Kind, Place
from feedline.torch.orders import is_stock_order
from feedline.torch.rank_turns import accelerates, shares_out


def kind_of(index_sampler: Any, batched: bool, seed: int | None) -> Kind:
    """The settings that a saved state must share with a loader that continues it."""
    if not batched:
        return Kind(seed, _length_of(index_sampler), _name_of(index_sampler), "nobody")
    if type(index_sampler) is BatchSampler:
        return Kind(seed, _length_of(index_sampler.sampler), _name_of(index_sampler.sampler), "batch_size")
    return Kind(seed, _length_of(index_sampler), _name_of(index_sampler), "batch_sampler")


def hint_about(index_sampler: Any, is_given: bool) -> str | None:
    """The hint about an order of batches to give once, if any; the batch sampler may be the user's own."""
    if type(index_sampler) not in (BatchSampler, OwnBatchSampler):
        return None
    of = " to the BatchSampler" if is_given else ""
    return lone_sample(index_sampler.sampler, index_sampler.batch_size, index_sampler.drop_last, of)


def check_ranks(sampler: Any) -> None:
    """Refuse a sampler inside torch's DistributedSampler, which takes it for a dataset: it would share out the numbers
    from 0 on, and not the sampler's indices."""
    for each in samplers_in(sampler):
        inner = each.dataset if shares_out(each) else None
        if isinstance(inner, (Sampler, OwnBatchSampler)):
            raise OptionError(
                f"torch's DistributedSampler takes {type(inner).__name__} for a dataset, and gives the numbers 0 to "
                f"{len(inner) - 1} instead of its indices: use feedline.DistributedSampler, which divides the indices "
                "of a sampler among ranks"
            )


def sharing_in(index_sampler: Any, is_stock: bool | None = None) -> Sharing:
    """How the order is shared out over ranks. `is_stock`: what `is_stock_order` says, if that is known."""
    if is_stock_order(index_sampler) if is_stock is None else is_stock:
        return Sharing(1, False, index_sampler.batch_size, global_length(index_sampler.sampler))
    if (ranks := accelerates(index_sampler)) > 1:
        return Sharing(ranks)  # one rank's state is given to all, so its latest indices cannot be compared
    is_batched = type(index_sampler) in (BatchSampler, OwnBatchSampler)
    size, inner = (index_sampler.batch_size, index_sampler.sampler) if is_batched else (None, index_sampler)
    return Sharing(ranks_in(index_sampler), has_batches(index_sampler), size, _length_of(inner))


def other_steps(index_sampler: Any, place: Place) -> str | None:
    """What to tell the user if ranks that share an order have had other steps before the place; None if not, or if
    nobody shares the order index by index."""
    sharing = sharing_in(index_sampler)
    if not any(isinstance(each, (DistributedSampler, OwnDistributed)) for each in samplers_in(index_sampler)):
        return None
    if sharing.batch_size is None or sharing.whole_batches or not place.batches or place.samples == sharing.total:
        return None
    step = sharing.batch_size * sharing.ranks
    if place.samples == place.batches * step:
        return None
    then = f"{place.samples / place.batches:g}"
    return (
        f"the state was saved after {counted(place.batches, 'step')} of {then} samples over all ranks, and now a step "
        f"has {step} ({sharing.batch_size} on {counted(sharing.ranks, 'rank')}): no sample is lost or read twice, but "
        "the batches are others than those of a run that was not stopped. Keep batch_size times the number of ranks as "
        f"it was, or leave out the sampler and batch_size and set global_batch_size={then}, which fits any ranks"
    )


def ranks_in(index_sampler: Any) -> int:
    """The number of ranks that share the order, for samplers of known kinds."""
    inner: Any = index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler
    return inner.num_replicas if shares_out(inner) else ranks_of(index_sampler)


def _length_of(sampler: Any) -> int | None:
    if accelerates(sampler):
        return global_length(sampler.batch_sampler)  # the length of the part may differ by rank
    return len(sampler.dataset) if isinstance(sampler, DistributedSampler) else global_length(sampler)  # type: ignore[arg-type]


def _name_of(sampler: Any) -> str:
    # torch's RandomSampler has another order than feedline's sampler of that name.
    name = ("torch." if type(sampler).__module__.startswith("torch.utils.data") else "") + name_of(sampler)
    if accelerates(sampler):
        return f"{name} on {sampler.num_processes} ranks"
    if not isinstance(sampler, DistributedSampler):
        return name
    # The state may be another rank's, so the indices before the place cannot be compared.
    order = f"seed={sampler.seed}" if sampler.shuffle else "shuffle=False"
    return f"{name}({order})" if shares_out(sampler) else f"{name}({order}) on {sampler.num_replicas} ranks"
