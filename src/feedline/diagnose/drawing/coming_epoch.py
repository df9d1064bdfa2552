"""The batches of a loader's coming epoch, without beginning it.

Takes: a loader of any front, or torch's own. Gives: `Coming`: the indices of each batch, what they are indices of.
Promises: nothing changes: no sample is read, the loader's epoch stays, its sampler and generators are not asked but
copied; an order that cannot be known in this way is an OptionError that says why.
Not its job: pictures (pictures), labels and lengths (draw).
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.datasets import IntArray
from feedline.diagnose.user_loader import is_torchs
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_whole
from feedline.loader import DataLoader
from feedline.order.ranks import given_epoch
from feedline.order.sampler import is_ours, samplers_in

_STREAM = "a stream has no indices to draw: what comes is known only when it is read"
MOST = 1_000_000
"""Indices: more than a picture can show."""


@dataclass(frozen=True)
class Coming:
    """An epoch's batches."""

    dataset: Any
    epoch: int | None
    """None if nobody counts: torch's loader does not."""
    batches: list[IntArray]
    cut: bool = False
    """Are there more batches than these?"""

    @property
    def order(self) -> IntArray:
        """All indices, one after the other."""
        return np.concatenate(self.batches) if self.batches else np.empty(0, np.int64)


def coming(loader: Any, epoch: int | None = None) -> Coming:
    """The loader's next epoch, or the one of that number.

    >>> found = coming(DataLoader([5, 6, 7, 8, 9], batch_size=2, shuffle=True, seed=7))
    >>> found.epoch, [batch.tolist() for batch in found.batches]
    (0, [[1, 3], [0, 2], [4]])
    """
    if not isinstance(loader, DataLoader) and not is_torchs(loader):
        raise OptionTypeError(f"a loader is needed, feedline's or torch's; got {type(loader).__name__}")
    if epoch is not None:
        check_whole("epoch", epoch, least=0)
    if isinstance(loader, DataLoader):
        sampler = loader.options.sampler if loader.options.batch_sampler is None else loader.options.batch_sampler
    else:
        sampler = loader._index_sampler
    own = next((each for each in samplers_in(sampler) if is_ours(each)), None)
    number = _epoch_of(loader, own) if epoch is None else epoch
    if epoch is not None and given_epoch(own) is not None:
        raise OptionError("epoch must be left out: the sampler has been told its epoch (set_epoch), and that one comes")
    if any(is_ours(each) and not type(each).__module__.startswith("feedline.") for each in samplers_in(sampler)):
        tasks = None
    elif not isinstance(loader, DataLoader):
        tasks = _tasks_of_torchs(loader, own, epoch, number or 0)
    elif loader.options.stream:
        raise OptionError(_STREAM)
    else:
        tasks = _as_it_stands(loader._plan, number or 0)
    if tasks is None:
        raise OptionError(
            "the order of the coming epoch is not known before it begins, because its sampler is not one of feedline's "
            "or torch's, and asking it might change it; record an epoch instead: loader.report('run.html')"
        )
    batches: list[IntArray] = []
    count = 0
    for task in iter(lambda: next(tasks, None), None):
        if count >= MOST:
            return Coming(loader.dataset, number, batches, cut=True)
        batches.append(_numbers(task.indices))
        count += len(batches[-1])
    return Coming(loader.dataset, number, batches)


def _as_it_stands(plan: Any, number: int) -> Any:
    """The tasks of that epoch, if they can be known; a sampler that was told its epoch has not been told the next."""
    return None if plan.predicted(number) is None else plan.tasks(number)


def _tasks_of_torchs(loader: Any, own: Any, epoch: int | None, number: int) -> Any:
    torch_data: Any = importlib.import_module("torch.utils.data")
    if isinstance(loader.dataset, torch_data.IterableDataset):
        raise OptionError(_STREAM)
    if own is None and epoch is not None:
        raise OptionError(
            "epoch must be left out: torch draws an epoch's order when it begins, so only the next is known"
        )
    if own is not None and own.seed is None:
        raise OptionError(
            f"the order of {type(own).__name__} follows from a seed that the loader draws when the epoch begins: "
            "give the sampler a seed of its own"
        )
    if own is not None and own is loader._index_sampler and loader.num_workers and not _counts(loader):
        raise OptionError(
            f"torch's loader asks {type(own).__name__} for its order more than once when it starts workers, so it is "
            "not known which epoch comes: use feedline.torch's loader, which counts epochs"
        )
    orders: Any = importlib.import_module("feedline.torch.orders")
    if (plan := orders.own_plan(loader._index_sampler, loader._auto_collation, 0)) is not None:
        return _as_it_stands(plan, number)
    prediction: Any = importlib.import_module("feedline.torch.prediction")
    given = loader._index_sampler, loader._auto_collation, number, 0, 0
    ours = getattr(loader, "_feedline", None)
    begun = loader._iterator is not None if ours is None else ours.has_base_seed
    if loader.persistent_workers and begun:
        return prediction.predicted(*given)
    return prediction.predicted(*given, first_from=loader.generator)


def _counts(loader: Any) -> bool:
    """Does the loader count epochs? torch's does not."""
    return isinstance(getattr(loader, "epoch", None), int)


def _epoch_of(loader: Any, own: Any) -> int | None:
    """The coming epoch's number: what a sampler has been told, or the loader's, or that of the sampler that torch's
    loader will ask; None if nobody counts."""
    if (told := given_epoch(own)) is not None:
        return told
    if _counts(loader):
        return int(loader.epoch)
    return None if own is None else int(own._epoch)


def _numbers(indices: Any) -> IntArray:
    try:
        found = np.asarray(indices)
    except ValueError:
        found = np.empty(0, object)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise OptionError("the indices of this loader are no whole numbers, so there is nothing to draw them against")
    return found.astype(np.int64, copy=False)
