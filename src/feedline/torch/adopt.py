"""Loaders that a framework has made, switched to feedline's engine.

Takes: a torch DataLoader, or Accelerate's wrapper around one. Gives: the same loader on feedline's engine.
Promises: the same dataset, sampler, batch sampler, generator and options; what the wrapper does stays the same.
Not its job: choosing options; feedline's own (`workers`, `device`, …) can be passed as extra arguments.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset

from feedline.errors import OptionError
from feedline.order.sampler import samplers_in
from feedline.torch.global_batches import SHARED_TWICE, GlobalBatches
from feedline.torch.loader import DataLoader
from feedline.torch.options import TORCHS

_BATCHING = {"dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}
_CARRIED = [name for name in TORCHS if name not in _BATCHING]


def with_feedline(loader: Any, **options: Any) -> Any:
    """The same loader with feedline's engine, for loaders that a framework has made.

    Accelerate's `prepare` (and so the Trainer of transformers) always builds a torch loader inside its own wrapper,
    whatever class it was given; that inner loader is replaced, and the wrapper returned. Accelerate's `save_state` and
    `load_state` then include the loader's place.

    >>> import torch
    >>> made_elsewhere = torch.utils.data.DataLoader(range(4), batch_size=3)
    >>> list(with_feedline(made_elsewhere))
    [tensor([0, 1, 2]), tensor([3])]

    A loader whose class repeats its sampler endlessly (timm's MultiEpochsDataLoader) is refused, with the remedy.
    """
    inner = getattr(loader, "base_dataloader", None)
    if inner is not None:  # checked first: isinstance says that Accelerate's wrapper is of its inner loader's class
        if hasattr(type(loader), "_fetch_batches") and isinstance(inner.dataset, IterableDataset):
            options = {"ranks": _read_for_all(options)} | options
        loader.base_dataloader = with_feedline(inner, **options)
        # Accelerate then saves and loads the loader's place; it needs torchdata only to make such a loader itself.
        loader.use_stateful_dataloader = True
        loader.dl_state_dict = loader.base_dataloader.state_dict()
        if hasattr(type(loader), "_fetch_batches"):
            loader._fetch_batches = WholeSteps(loader)
        return loader
    if not isinstance(loader, torch.utils.data.DataLoader):
        raise TypeError(f"a torch DataLoader is needed, not {type(loader).__name__}")
    if isinstance(loader, DataLoader) and not options:
        return loader
    batching = _batching(loader, options)
    _check_ends(loader, batching)
    _warn_of_what_is_lost(type(loader))
    ours = vars(loader._feedline.own) if isinstance(loader, DataLoader) else {}
    carried = {name: getattr(loader, name) for name in _CARRIED} | ours
    return DataLoader(loader.dataset, **batching | carried | options)


def _read_for_all(options: dict[str, Any]) -> str:
    """The option `ranks` for a stream that Accelerate reads on one rank, which hands out whole batches."""
    if options.get("ranks") == "shard":
        raise OptionError(
            "Accelerate reads this IterableDataset on one rank and sends its batches to all ranks, so "
            "ranks='shard' would lose elements: leave it out, or prepare the loader with dispatch_batches=False"
        )
    return "all"


class WholeSteps:
    """How Accelerate's dispatcher fetches the batches of one step, one for each rank, and the state it then saves.

    The dispatcher fetches one step ahead of the step it gives, and takes the loader's state before each batch of it;
    it then corrects the counts in torchdata's states. Here the state from before the whole step is kept.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __call__(self, iterator: Any) -> Any:
        loader = self._loader
        before = loader.base_dataloader.state_dict()
        fetched = type(loader)._fetch_batches(loader, iterator)
        loader.dl_state_dict = before
        return fetched


def _check_ends(loader: Any, batching: dict[str, Any]) -> None:
    """Refuse a class that repeats its sampler endlessly and counts batches itself: our loader would never end."""
    name = "batch_sampler" if "batch_sampler" in batching else "sampler"
    if name not in batching or not _own(type(loader), "__iter__", "__len__") or _has_length(batching[name]):
        return
    kind = type(loader).__qualname__
    raise OptionError(
        f"{kind}'s {name} has no length (it may repeat itself without end), and only {kind} itself knows where an "
        "epoch ends: with_feedline would give a loader that never ends. Give it the sampler that is repeated, and "
        f"keep the workers: with_feedline(loader, {name}=loader.{name}.sampler, persistent_workers=loader.num_workers "
        f"> 0); or derive {kind} from feedline.torch.DataLoader."
    )


def _own(kind: type[Any], *names: str) -> list[str]:
    """Those methods that are neither torch's nor ours."""
    plain = (torch.utils.data.DataLoader, DataLoader)
    return [name for name in names if getattr(kind, name) not in [getattr(each, name) for each in plain]]


def _has_length(sampler: Any) -> bool:
    try:
        len(sampler)
    except Exception:
        return False
    return True


def _warn_of_what_is_lost(kind: type[Any]) -> None:
    for name in _own(kind, "__iter__", "_get_iterator", "__len__"):
        warnings.warn(
            f"{kind.__qualname__} defines its own {name}, which a loader made by with_feedline does not call: derive "
            "the class from feedline.torch.DataLoader instead, or wrap the loader that with_feedline gives",
            stacklevel=3,
        )


def _batching(loader: torch.utils.data.DataLoader[Any], options: dict[str, Any]) -> dict[str, Any]:
    if "batch_sampler" in options:
        return {}
    if isinstance(loader.dataset, IterableDataset):
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    sampler = {} if "shuffle" in options else {"sampler": loader.sampler}
    if loader.batch_sampler is None:
        return {"batch_size": None, **sampler}
    if isinstance(loader.batch_sampler, GlobalBatches):
        batches: Any = loader.batch_sampler
        size = {} if options.keys() & {"batch_size"} else {"global_batch_size": batches.batch_size}
        return {"sampler": batches.sampler, "drop_last": batches.drop_last, **size}
    if any(isinstance(each, GlobalBatches) for each in samplers_in(loader.batch_sampler)):
        raise OptionError(SHARED_TWICE)
    if loader.batch_size is not None and type(loader.batch_sampler) is BatchSampler:
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last, **sampler}
    if options.keys() & {"batch_size", "sampler", "shuffle", "drop_last"}:
        return {}  # the user wants other batches than those of the batch sampler
    return {"batch_sampler": loader.batch_sampler}
