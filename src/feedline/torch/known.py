"""What is known of a torch loader's sampler: its name, its length, over how many ranks its order is shared out.

Takes: a sampler or batch sampler. Gives: the `Kind` a state must agree with, the `Sharing` counting depends on.
Promises: the same on every rank, so that any rank's state will do. Only what is known to share out the global order one
index after the other may be continued on another number of ranks.
Not its job: the order itself (orders).
"""

from __future__ import annotations

from typing import Any

from torch.utils.data import BatchSampler, DistributedSampler

from feedline.errors import OptionError
from feedline.errors.foreign import ask, has
from feedline.order.last_batch import lone_sample
from feedline.order.ranks import global_length, name_of, ranks_of
from feedline.order.sampler import Sampler, has_batches, samplers_in
from feedline.order.samplers import BatchSampler as OwnBatchSampler
from feedline.resume.passed import Sharing
from feedline.resume.state import Kind


def kind_of(index_sampler: Any, batched: bool, seed: int | None) -> Kind:
    """What a state must agree with to be continued."""
    if not batched:
        return Kind(seed, _length_of(index_sampler), _name_of(index_sampler), "nobody")
    if type(index_sampler) is BatchSampler:
        return Kind(seed, _length_of(index_sampler.sampler), _name_of(index_sampler.sampler), "batch_size")
    return Kind(seed, _length_of(index_sampler), _name_of(index_sampler), "batch_sampler")


def hint_about(index_sampler: Any, is_given: bool) -> str | None:
    """What to tell the user once about an order of batches, if anything; the batch sampler may be the user's own."""
    if type(index_sampler) not in (BatchSampler, OwnBatchSampler):
        return None
    of = " to the BatchSampler" if is_given else ""
    return lone_sample(index_sampler.sampler, index_sampler.batch_size, index_sampler.drop_last, of)


def check_ranks(sampler: Any) -> None:
    """torch's DistributedSampler takes what it is given for a dataset: of a sampler it deals out the places, not what
    stands there."""
    for each in samplers_in(sampler):
        inner = each.dataset if _shares_out(each) else None
        if isinstance(inner, (Sampler, OwnBatchSampler)):
            raise OptionError(
                f"torch's DistributedSampler takes {type(inner).__name__} for a dataset, and deals out 0 to "
                f"{len(inner) - 1} instead of its indices: use feedline.DistributedSampler, which shares out samplers"
            )


def sharing_in(index_sampler: Any) -> Sharing:
    """How its order is shared out over ranks."""
    if (ranks := _accelerates(index_sampler)) > 1:
        return Sharing(ranks)  # one rank's state is given to all, so its latest indices do not tell
    is_batched = type(index_sampler) in (BatchSampler, OwnBatchSampler)
    size, inner = (index_sampler.batch_size, index_sampler.sampler) if is_batched else (None, index_sampler)
    return Sharing(ranks_in(index_sampler), has_batches(index_sampler), size, _length_of(inner))


def ranks_in(index_sampler: Any) -> int:
    """Over how many ranks the order is shared out by a sampler that is known."""
    inner: Any = index_sampler.sampler if type(index_sampler) is BatchSampler else index_sampler
    return inner.num_replicas if _shares_out(inner) else ranks_of(index_sampler)


def _accelerates(sampler: Any) -> int:
    """Over how many ranks Accelerate shares a batch sampler out, if this is its part of one; 0 if not."""
    is_part = has(sampler, "batch_sampler") and has(sampler, "process_index")
    return int(ask(sampler, "num_processes", 0)) if is_part else 0


def _shares_out(sampler: Any) -> bool:
    """Is it torch's for ranks, or a subclass that leaves alone how the order is shared out?"""
    return isinstance(sampler, DistributedSampler) and type(sampler).__iter__ is DistributedSampler.__iter__


def _length_of(sampler: Any) -> int | None:
    if _accelerates(sampler):
        return global_length(sampler.batch_sampler)  # that of its part may be another on each rank
    return len(sampler.dataset) if isinstance(sampler, DistributedSampler) else global_length(sampler)  # type: ignore[arg-type]


def _name_of(sampler: Any) -> str:
    # torch's RandomSampler has another order than the one of that name in feedline.
    name = ("torch." if type(sampler).__module__.startswith("torch.utils.data") else "") + name_of(sampler)
    if _accelerates(sampler):
        return f"{name} on {sampler.num_processes} ranks"
    if not isinstance(sampler, DistributedSampler):
        return name
    # Its state may be another rank's, so the indices before the place do not tell.
    order = f"seed={sampler.seed}" if sampler.shuffle else "shuffle=False"
    return f"{name}({order})" if _shares_out(sampler) else f"{name}({order}) on {sampler.num_replicas} ranks"
