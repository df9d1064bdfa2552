"""A user's loader as the options that it was made with; and loaders of either front, to try its dataset with.

Takes: a `feedline.DataLoader`, a torch DataLoader (torch's own or ours), a dataset. Gives: options by name; loaders.
Promises: the user's loader is not iterated, and its generator not drawn from; torch is used only if already imported.
Not its job: what is done with them (doctor, tune, bench).
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from feedline.loader import DataLoader
from feedline.machine.this_rank import ranks as find_ranks
from feedline.options.option import rows

OURS, TORCHS, JAXS = "feedline", "feedline.torch", "feedline.jax"
"""The modules of the fronts."""
_BATCHES = ("batch_size", "shuffle", "sampler", "drop_last")
_TORCH_HAS = (
    *("in_order", "pin_memory", "num_workers", "prefetch_factor", "persistent_workers", "timeout", "worker_init_fn"),
    *("multiprocessing_context", "generator", "pin_memory_device"),
)


def is_torchs(what: Any) -> bool:
    """Is it a DataLoader of torch's, or of our front for torch?"""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(what, torch.utils.data.DataLoader)


def is_jaxs(what: Any) -> bool:
    """Is it a DataLoader of our front for JAX? It is one of the core's, too, whose options are this process's."""
    front = sys.modules.get(f"{JAXS}.loader")
    return front is not None and isinstance(what, front.DataLoader)


def front_for(dataset: Any, stream: bool) -> str:
    """The front for a dataset: torch's if torch is in use, because that seeds torch's generators, too."""
    torch = sys.modules.get("torch")
    can = torch is not None and (not stream or isinstance(dataset, torch.utils.data.IterableDataset))
    return TORCHS if can else OURS


def seeded_loader(front: str, dataset: Any, seed: int, **options: Any) -> Any:
    """A loader of that front, whose order and random numbers follow from the seed."""
    if front == OURS:
        return DataLoader(dataset, seed=seed, **options)
    torch: Any = sys.modules["torch"]
    generator = torch.Generator()
    generator.manual_seed(seed)
    return importlib.import_module(front).DataLoader(dataset, generator=generator, **options)


def options_of(loader: Any) -> dict[str, Any]:
    """The options of a loader, without the dataset: `shuffle`, and not the sampler that was made from it.

    >>> options_of(DataLoader([1, 2, 3], batch_size=2))["batch_size"]
    2
    """
    if isinstance(loader, DataLoader):
        given = _checked(loader.options)
        own_batches = loader.options.batch_sampler is not None
        whole = given.pop("global_batch_size")
    else:
        data: Any = sys.modules["torch"].utils.data
        given = {name: getattr(loader, name) for name in _TORCH_HAS}
        if hasattr(loader, "_feedline"):
            given |= _checked(loader._feedline.own)
        if loader.collate_fn not in (data.default_collate, data.default_convert):
            given["collate_fn"] = loader.collate_fn
        given |= {"batch_size": loader.batch_size, "drop_last": loader.drop_last, **_order(loader, data)}
        # A BatchSampler that torch has made itself has the loader's batch_size; with the user's, that is None.
        made = type(loader.batch_sampler) is data.BatchSampler and loader.batch_size is not None
        own_batches = loader.batch_sampler is not None and not made
        whole, batches = given.pop("global_batch_size", None), loader.batch_sampler
        if whole is not None and given["batch_size"] is None:
            given |= {"drop_last": batches.drop_last, "sampler": batches.sampler}
            own_batches = False
        if own_batches:
            given["batch_sampler"] = loader.batch_sampler
    if whole is not None:  # looked at as one rank's loader
        given["batch_size"] = -(-whole // find_ranks(None, None, alone=True)[0])
    return {name: value for name, value in given.items() if not (own_batches and name in _BATCHES)}


def _checked(options: Any) -> dict[str, Any]:
    """The checked options of a front of ours; `collate` has become the collate_fn."""
    return {name: getattr(options, name) for name in rows(type(options)) if name not in ("dataset", "collate")}


def _order(loader: Any, data: Any) -> dict[str, Any]:
    """torch makes a sampler from shuffle=True."""
    sampler = loader.sampler
    if isinstance(loader.dataset, data.IterableDataset) or type(sampler) is data.SequentialSampler:
        return {}
    plain = type(sampler) is data.RandomSampler and not sampler.replacement
    return {"shuffle": True} if plain and sampler.num_samples == len(loader.dataset) else {"sampler": sampler}
