"""Loaders that a framework has made, with feedline's engine.

Takes: a torch DataLoader, or Accelerate's wrapper around one. Gives: the same loader on feedline's engine.
Promises: the same dataset, sampler, batch sampler, generator and options; what the wrapper does stays as it is.
Not its job: choosing options; feedline's own (`workers`, `device`, …) can be given as extras.
"""

from __future__ import annotations

from typing import Any

import torch.utils.data
from torch.utils.data import BatchSampler, IterableDataset

from feedline.care import Care
from feedline.torch.loader import DataLoader

_CARRIED = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
    "pin_memory_device",
    "in_order",
)
_OURS = ("workers", "shuffle_buffer", "device", *Care.__dataclass_fields__)


def with_feedline(loader: Any, **options: Any) -> Any:
    """The same loader with feedline's engine, for loaders that a framework has made.

    Accelerate's `prepare` (and so the Trainer of transformers) builds a torch loader inside a wrapper of its own,
    whatever class it was given; that inner loader is replaced and the wrapper returned.

    >>> import torch
    >>> made_elsewhere = torch.utils.data.DataLoader(range(4), batch_size=3)
    >>> list(with_feedline(made_elsewhere))
    [tensor([0, 1, 2]), tensor([3])]
    """
    inner = getattr(loader, "base_dataloader", None)
    if inner is not None:  # asked first: Accelerate's wrapper claims to be of its inner loader's class
        loader.base_dataloader = with_feedline(inner, **options)
        return loader
    if not isinstance(loader, torch.utils.data.DataLoader):
        raise TypeError(f"a torch DataLoader is needed, not {type(loader).__name__}")
    if isinstance(loader, DataLoader) and not options:
        return loader
    carried = _CARRIED + _OURS if isinstance(loader, DataLoader) else _CARRIED
    return DataLoader(
        loader.dataset, **_batching(loader), **{name: getattr(loader, name) for name in carried} | options
    )


def _batching(loader: torch.utils.data.DataLoader[Any]) -> dict[str, Any]:
    if isinstance(loader.dataset, IterableDataset):
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    if loader.batch_sampler is None:
        return {"batch_size": None, "sampler": loader.sampler}
    if loader.batch_size is not None and type(loader.batch_sampler) is BatchSampler:
        return {"batch_size": loader.batch_size, "sampler": loader.sampler, "drop_last": loader.drop_last}
    return {"batch_sampler": loader.batch_sampler}
