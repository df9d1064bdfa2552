"""What is measured: the user's dataset in a loader of either library, with the same options.

Takes: the request from the command line, and a dataset, a loader or a factory of one.
Gives: `BenchSubject`: a loader of the requested library, and what is known about its epochs.
Promises: both libraries get the same options: torch's, which feedline.torch has, too. What cannot be measured is an
OptionError of one sentence.
Not its job: finding it (target), measuring it (consumer).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from feedline.diagnose.target import constructed, is_loader, loaded, loaded_within
from feedline.diagnose.user_loader import options_of
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.counting import counted
from feedline.loader import DataLoader
from feedline.options.option import rows

FEEDLINE, TORCH = SIDES = ("feedline", "torch")
MODULES = {FEEDLINE: "feedline.torch", TORCH: "torch.utils.data"}
"""Both have a DataLoader: the comparison is that of changing one import line."""
BATCH_SIZE, NUM_WORKERS = 32, 2
"""The defaults for a dataset."""
WHOEVER_ASKS_HAS_A_LIMIT = 1e6
"""Seconds for importing: the command's own --timeout comes first."""
NOT_FOR_TORCH = "a stream, but no torch.utils.data.IterableDataset: torch's loader cannot read it"


@dataclass(frozen=True)
class WantedLoader:
    """What is to be measured, in a form that can be sent to a process."""

    target: str
    batch_size: int | None = None
    shuffle: bool = False
    collate: str | None = None
    num_workers: int | None = None
    """None: the loader's own number, or the default."""
    arguments: Sequence[str] = ()
    """The arguments of the user's script."""


@dataclass(frozen=True)
class BenchSubject:
    """A loader, and what is known about its epochs."""

    loader: Any
    num_workers: int
    batch_size: int | None
    """None: batches are counted, not samples."""
    samples: int | None
    """Samples in an epoch; None if only batches can be counted."""
    about: str
    """A short description."""
    notes: tuple[str, ...] = ()
    """Options that are left out of the comparison."""

    def samples_in(self, place: int) -> int:
        """How many samples the batch at that place of an epoch has: the last one may be smaller. 0 if unknown."""
        if self.batch_size is None or self.samples is None:
            return 0
        return min(self.batch_size, self.samples - place * self.batch_size)

    @property
    def metric(self) -> str:
        """The unit that is counted."""
        return "batches/s" if self.samples is None else "samples/s"


def subject(side: str, wanted: WantedLoader) -> BenchSubject:
    """The loader that one side measures."""
    made, _ = constructed(loaded_within(wanted.target, WHOEVER_ASKS_HAS_A_LIMIT))
    options, notes = _of_loader(made, wanted) if is_loader(made) else (_of_dataset(made, wanted), [])
    dataset, num_workers = options["dataset"], options["num_workers"]
    if num_workers == 0:  # torch refuses options that are only for workers
        options.update(prefetch_factor=None, persistent_workers=False, multiprocessing_context=None, timeout=0)
    loader = importlib.import_module(MODULES[side]).DataLoader(**options)
    size = None if _is_stream(dataset) or options.get("batch_sampler") is not None else options["batch_size"]
    samples = None if size is None else _samples(loader, size)
    size = size if samples is not None else None
    return BenchSubject(loader, num_workers, size, samples, _about(dataset, options), tuple(notes))


def _samples(loader: Any, size: int) -> int | None:
    """The samples of an epoch; None if the sampler has no length."""
    if not hasattr(type(loader.sampler), "__len__"):
        return None
    whole: int = len(loader.sampler)
    return whole - whole % size if loader.drop_last else whole


def _of_dataset(dataset: Any, wanted: WantedLoader) -> dict[str, Any]:
    _check_dataset(dataset, wanted)
    return {
        "dataset": dataset,
        "batch_size": BATCH_SIZE if wanted.batch_size is None else wanted.batch_size,
        "shuffle": wanted.shuffle,
        "collate_fn": _collate(wanted.collate),
        "num_workers": NUM_WORKERS if wanted.num_workers is None else wanted.num_workers,
        "persistent_workers": True,
    }


def _check_dataset(dataset: Any, wanted: WantedLoader) -> None:
    kind = type(dataset)
    listed = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    if not listed and not hasattr(kind, "__iter__"):
        raise OptionTypeError(
            f"{wanted.target} is of type {kind.__qualname__}: neither a loader nor a dataset, for it has neither "
            "__getitem__ and __len__ nor __iter__"
        )
    if _is_stream(dataset):
        if wanted.shuffle:
            raise OptionError(f"shuffle: {wanted.target} is a stream, which has the order that it has")
    elif not listed:
        raise OptionTypeError(f"{wanted.target} is {NOT_FOR_TORCH}")
    elif not len(dataset):
        raise OptionError(f"{wanted.target} is empty: there is nothing to load")


def _is_stream(dataset: Any) -> bool:
    return isinstance(dataset, importlib.import_module("torch.utils.data").IterableDataset)


def _collate(words: str | None) -> Any:
    if words is None:
        return None
    found = loaded(words)
    if not callable(found):
        raise OptionTypeError(f"collate: {words} is a {type(found).__qualname__}, and not a function")
    return found


def _of_loader(loader: Any, wanted: WantedLoader) -> tuple[dict[str, Any], list[str]]:
    given = {"batch_size": wanted.batch_size, "shuffle": wanted.shuffle or None, "collate": wanted.collate}
    for name, value in given.items():
        if value is not None:
            raise OptionError(f"{name}: {wanted.target} is a loader, which has its own")
    if isinstance(loader, DataLoader) and loader.options.stream and not _is_stream(loader.dataset):
        raise OptionTypeError(f"the loader's dataset is {NOT_FOR_TORCH}")
    has = inspect.signature(importlib.import_module(MODULES[TORCH]).DataLoader.__init__).parameters
    options = {"dataset": loader.dataset, **{name: value for name, value in options_of(loader).items() if name in has}}
    options["shuffle"] = options.get("shuffle") or None
    if wanted.num_workers is not None:
        options["persistent_workers"] |= options["num_workers"] == 0
        options["num_workers"] = wanted.num_workers
    return options, _left_out(loader)


_TORCH_HAS_NOT = {
    *("workers", "shuffle_buffer", "fetch_threads", "prefetch_next_epoch", "assignment", "ranks", "device"),
    *("on_error", "on_stall"),
}


def _left_out(loader: Any) -> list[str]:
    """Options that only feedline has, and that affect what is loaded or how fast."""
    own = {name: row.default for name, row in rows(type(loader)).items() if name in _TORCH_HAS_NOT}
    given = {name: getattr(loader, name) for name in own}
    differ = [f"{name}={value!r}" for name, value in given.items() if value != own[name]]
    return [f"{', '.join(differ)} left out on both sides: torch has no such option"] if differ else []


def _about(dataset: Any, options: Mapping[str, Any]) -> str:
    parts = [type(dataset).__qualname__]
    if not _is_stream(dataset):
        parts.append(counted(len(dataset), "sample"))
    if options.get("batch_sampler") is not None:
        parts.append(f"batches of {type(options['batch_sampler']).__qualname__}")
    elif options["batch_size"] is not None:
        parts.append(f"batches of {options['batch_size']}")
    return ", ".join([*parts, *(["shuffled"] if options.get("shuffle") else [])])
