"""What is examined: a dataset or a loader of either front, in one form.

Takes: a dataset, a `feedline.DataLoader`, a torch DataLoader (ours or torch's own), and the user's options.
Gives: `Patient`: the dataset, what is known about how it is loaded, and loaders to examine it with; which of its
samples to read, the same every time; its own column of labels, if one of its attributes looks like one.
Promises: the user's loader is not iterated, and its generator not drawn from; torch is used only if already imported.
Not its job: reading anything (examine).
"""

from __future__ import annotations

import importlib
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from feedline.collate.collator import Collator
from feedline.datasets import awaits
from feedline.datasets.labels import classes_of
from feedline.diagnose.doctor.evidence import Column, LoaderSetting
from feedline.diagnose.doctor.probe import Initialising
from feedline.diagnose.target import Construction
from feedline.diagnose.user_loader import OURS, TORCHS, front_for, is_torchs, options_of, seeded_loader
from feedline.errors import OptionError
from feedline.loader import DataLoader
from feedline.order.last_batch import lone_sample
from feedline.order.sampler import is_ours
from feedline.order.samplers import RandomSampler
from feedline.supervise.walking import plain_attribute
from feedline.workers.job import Job

GUESSED_BATCH = 32
MAX_BAD = 3
"""How many samples may hang or kill before a part of the examination ends: each takes up to a sixth of the time."""
SEED = 20_241
COLUMNS = ("labels", "targets", "label", "target", "y", "ys", "classes_of_samples", "_labels", "_targets")
"""Usual names of attributes that hold labels."""
MOST_CLASSES = 10_000
LONGEST_COLUMN = 5_000_000
"""The most labels counted: a list of that many takes half a second."""
_BALANCING = {"WeightedRandomSampler", "StratifiedBatchSampler"}


@dataclass(frozen=True)
class Patient:
    """The dataset, and what is known about how it is loaded."""

    dataset: Any
    setting: LoaderSetting
    collate_fn: Callable[[Any], Any] | None = None
    """The user's collate_fn, or a feedline collator."""
    batch_sampler: Any = None
    """A feedline batch sampler, which can be asked for batches without side effects."""
    construction: Construction | None = None
    worker_init_fn: Callable[[int], object] | None = None
    """The user's worker_init_fn; a dataset may be unusable before it was called."""

    @property
    def name(self) -> str:
        """Its name for messages."""
        return type(self.dataset).__qualname__

    @property
    def seeds_all(self) -> bool:
        """Can a loader seed every generator that the dataset may draw from?"""
        return self.setting.torch or "torch" not in sys.modules

    def loader(self, dataset: Any, seed: int, num_workers: int, timeout: float, **options: Any) -> Any:
        """A loader that always ends, whatever the dataset does."""
        settings: dict[str, Any] = {
            "on_error": "skip",
            "max_errors": None if self.setting.stream else MAX_BAD,  # elements of a stream may fail, too; that is quick
            "on_stall": "restart",
            "timeout": timeout,
            "max_deaths": 1,
            "stall_warning": 0,
        }
        if self.worker_init_fn is not None:
            init = self.worker_init_fn if self.setting.stream else Initialising(self.worker_init_fn)
            settings["worker_init_fn"] = init
        front = TORCHS if self.setting.torch else OURS
        return seeded_loader(front, dataset, seed, num_workers=num_workers, **settings, **options)

    @property
    def job(self) -> Job:
        """What would be sent to workers."""
        fields: dict[str, Any] = {
            "dataset": self.dataset,
            "collate_fn": self.collate_fn,
            "stream": self.setting.stream,
            "batched": True,
            "batch_size": 1,
            "drop_last": False,
            "worker_init_fn": None,
            "shuffle_buffer": 0,
            "seed": 0,
            "num_workers": 1,
        }
        if self.setting.torch:
            fields["dialect"] = importlib.import_module("feedline.torch.dialect").TORCH
        return Job(**fields)


def patient_of(what: Any, batch_size: int | None, label: str | None, construction: Construction | None) -> Patient:
    """The patient for a dataset or a loader; OptionError if it is neither."""
    if awaits(getattr(what, "dataset", what)):
        raise OptionError(
            "the doctor reads samples one by one and does not await them yet: give it a dataset whose __getitem__ is "
            "a plain function (for example one that calls asyncio.run)"
        )
    if isinstance(what, DataLoader) or is_torchs(what):
        return _of_loader(what, label, construction)
    stream = DataLoader(what).options.stream
    length, torch = None if stream else len(what), front_for(what, stream) == TORCHS
    setting = LoaderSetting(stream=stream, length=length, batch_size=batch_size, torch=torch, label=label)
    return Patient(what, setting, construction=construction)


def _of_loader(loader: Any, label: str | None, construction: Construction | None) -> Patient:
    given, dataset, ours = options_of(loader), loader.dataset, isinstance(loader, DataLoader)
    stream = loader.options.stream if ours else front_for(dataset, stream=True) == TORCHS
    sampler: Any = given.get("sampler")
    batch_sampler: Any = given.get("batch_sampler")
    if given.get("shuffle"):
        sampler = RandomSampler(dataset)
    sized = type(batch_sampler).__name__ == "BatchSampler"  # ours or torch's
    size = batch_sampler.batch_size if sized else given.get("batch_size")
    in_order = batch_sampler is None and (sampler is None or type(sampler).__name__ == "SequentialSampler")
    collate_fn, num_workers = given.get("collate_fn"), given["num_workers"]
    collates = _collates(collate_fn, batch_sampler is not None or size is not None)
    setting = LoaderSetting(
        stream=stream,
        length=len(dataset) if not stream and hasattr(type(dataset), "__len__") else None,
        loader=True,
        in_order=in_order and not given.get("shuffle_buffer"),
        balanced=_balances(sampler, batch_sampler),
        batch_size=size,
        collates=collates,
        num_workers=num_workers,
        prefetch_factor=given.get("prefetch_factor") or 2,
        threads=given.get("workers") == "thread",
        aliases=not (ours or hasattr(loader, "_feedline") or num_workers or collates == "default"),
        lone_sample=not stream and lone_sample(sampler, size, given.get("drop_last", False)) is not None,
        torch=not ours or ("torch" in sys.modules and not stream),
        label=label,
    )
    known = batch_sampler if batch_sampler is not None and is_ours(batch_sampler) else None
    init = given["worker_init_fn"] if num_workers else None
    return Patient(dataset, setting, collate_fn, known, construction, init)


def _balances(*samplers: Any) -> bool:
    inner = [getattr(each, "sampler", None) for each in samplers]
    return any(kind.__name__ in _BALANCING for each in (*samplers, *inner) for kind in type(each).__mro__)


def _collates(collate_fn: Any, batched: bool) -> str:
    if not batched:
        return "none"
    if collate_fn is None:
        return "default"
    return "feedline" if isinstance(collate_fn, Collator) else "own"


def spread(length: int, most: int) -> list[int]:
    """Indices over the whole dataset, one at random from each of `most` equal parts, in mixed order.

    >>> sorted(spread(5, 10)), len(set(spread(10_000, 100)))
    ([0, 1, 2, 3, 4], 100)
    """
    draw = random.Random(SEED)
    count = min(length, most)
    bounds = [part * length // count for part in range(count + 1)] if count else []
    chosen = [draw.randrange(low, high) for low, high in pairwise(bounds)]
    if chosen:
        chosen[-1] = length - 1
    draw.shuffle(chosen)
    return chosen


def column_of(dataset: Any, length: int | None) -> Column | None:
    """The dataset's own column of labels, without running user code.

    >>> class Data:
    ...     def __init__(self): self.labels = [0, 0, 1]
    >>> column_of(Data(), 3)
    Column(path='dataset.labels', counts={0: 2, 1: 1}, changes=1)
    """
    for name in COLUMNS:
        value = plain_attribute(dataset, name)
        if value is None or not _fits(value, length):
            continue
        classes = classes_of(value)
        if len(classes.names) > min(MOST_CLASSES, max(2, len(classes.codes) // 2)):
            continue
        counts = dict(zip(classes.names, classes.sizes.tolist(), strict=True))
        return Column(f"dataset.{name}", counts, int((np.diff(classes.codes) != 0).sum()))
    return None


def _fits(value: Any, length: int | None) -> bool:
    if type(value) in (list, tuple):
        plain = all(type(each) in (int, str, bool) for each in value[:64])
        return plain and 1 < len(value) == length and len(value) <= LONGEST_COLUMN
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    whole = any(word in dtype for word in ("int", "bool", "U", "S"))
    return shape is not None and len(shape) == 1 and 1 < shape[0] == length and shape[0] <= LONGEST_COLUMN and whole
