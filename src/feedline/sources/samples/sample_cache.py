"""A dataset whose samples are kept after they were read once.

Takes: a map-style dataset, a folder or "memory", a bound. Gives: `cached`, the same dataset, read from there if it can.
Promises: a sample is what the dataset gave; it shares no memory with the cache. What another dataset, or the same with
other code, has left in the folder is not used. If the folder cannot be written, reading continues without it, with one
warning. A sample that draws from `feedline.rng()` while it is kept is warned of, and of the first ones also one that
draws from `random`, `numpy.random` or torch: all epochs would have the same draw.
Not its job: storing (pack_folder, pack_memory), telling datasets apart (identity), random augmentation
(`cached(…).map(augment)`).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np

from feedline.datasets import (
    Dataset,
    Empty,
    IntArray,
    MappedDataset,
    awaits,
    described,
    fingerprint_of,
    length_of,
    read_samples,
    reads_many,
)
from feedline.datasets.reading import position
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_folder, check_whole
from feedline.randomness.rng import times_asked
from feedline.randomness.states import global_states
from feedline.sources.samples.identity import identity_of
from feedline.sources.samples.pack_folder import PackFolder
from feedline.sources.samples.pack_memory import PackMemory
from feedline.sources.samples.packs import Packs
from feedline.sources.samples.records import gather, pack, unpack

FORMAT = "4"
UNBOUNDED = 1 << 62
WATCHED = 20
"""Reads of a process that are watched for draws from global generators: with torch, each takes 0.35 ms longer."""


class CachedDataset(Dataset[Any]):
    """What `cached` gives."""

    def __init__(self, dataset: Any, store: Packs) -> None:
        self.dataset = dataset
        self._store = store
        self._length = store.count
        self._warned = False
        self._watched = 0
        self._told = False

    def __len__(self) -> int:
        return self._length

    @property
    def fingerprint(self) -> str:
        """That of the dataset; without one, the key of the cache."""
        return fingerprint_of(self.dataset) or self._store.identity

    def map(self, function: Callable[[Any], Any]) -> MappedDataset:
        """The same samples, each passed through `function` whenever it is read: the place for random augmentation."""
        return MappedDataset(self, function)

    def stored(self) -> int:
        """How many samples are kept now."""
        return sum(self._store.has(index) for index in range(self._length))

    def _reads_many(self) -> bool:
        return reads_many(self.dataset)

    def _reads_batches(self) -> bool:
        return True

    def __getitem__(self, index: int) -> Any:
        place = position(index, self._length, "CachedDataset")
        record = self._store.read(place)
        if record is not None:
            return unpack(record)
        with self._watching(place):
            sample = self.dataset[place]
        return self._kept(place, sample)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        places = [position(index, self._length, "CachedDataset") for index in indices]
        records = [self._store.read(place) for place in places]
        missing = list(dict.fromkeys(place for place, record in zip(places, records, strict=True) if record is None))
        with self._watching(*missing):
            read = list(zip(missing, read_samples(self.dataset, missing), strict=True)) if missing else []
        # A sample that is asked for twice must not be delivered as one object.
        fresh = {place: pack(self._kept(place, sample)) for place, sample in read}
        return [
            unpack(memoryview(fresh[place]) if record is None else record)
            for place, record in zip(places, records, strict=True)
        ]

    def __getbatch__(self, indices: IntArray, empty: Empty) -> Any:
        if not len(indices) or indices.min() < 0 or indices.max() >= self._length:
            places = [position(place, self._length, "CachedDataset") for place in indices.tolist()]
            indices = np.array(places, np.int64)
        before = self._store.removals()
        records = self._store.read_all(indices)
        try:
            batch = gather(records, empty) if records else NotImplemented
        except Exception:
            if before == self._store.removals():
                raise
        return batch if before == self._store.removals() else NotImplemented

    def _kept(self, place: int, sample: Any) -> Any:
        self._store.write(place, pack(sample))
        if not self._told and self._store.problem is not None:
            self._told = True
            warnings.warn(
                f"the cache in {self._store} cannot be written ({self._store.problem}), so nothing more is kept "
                "in it. Give another folder, or a smaller max_bytes if there is no room.",
                RuntimeWarning,
                stacklevel=3,
            )
        return sample

    @contextmanager
    def _watching(self, *places: int) -> Iterator[None]:
        if self._warned or not places:
            yield
            return
        self._watched += 1
        asked, before = times_asked(), global_states() if self._watched <= WATCHED else {}
        yield
        drawn = ["feedline.rng()"] if times_asked() > asked else []
        after = global_states() if before else {}
        drawn += [name for name, state in after.items() if state != before.get(name, state)]
        if drawn:
            self._warn(f"sample {places[0]}" + " or one read with it" * (len(places) > 1), " and ".join(drawn))

    def _warn(self, who: str, generator: str) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{who} draws from {generator} while it is kept: all epochs will have this one draw. Leave random "
                "augmentation out of what is kept: cached(dataset, …).map(augment)",
                UserWarning,
                stacklevel=4,
            )

    def describe(self, index: int) -> str:
        """What the dataset says about its sample."""
        return described(self.dataset, index)

    def __repr__(self) -> str:
        store = self._store
        return f"CachedDataset({self.dataset!r}, {str(store)!r}, max_bytes={store.max_bytes})"


def cached(
    dataset: Any, where: str | os.PathLike[str], *, max_bytes: int | None = None, key: str | None = None
) -> CachedDataset:
    """The dataset, whose samples are kept after they were read once, and read from there from then on.

    `where` is a folder, which any number of processes, machines' ranks and later runs may share; or "memory": then
    samples are in shared memory, for all workers and ranks of this machine, until the last of them ends.
    If samples take more than `max_bytes`, those used least recently go first, some at a time. Without it a folder keeps
    all, and memory as many as fit into half of what was free.

    What is kept is found again by what the dataset is: its class, attributes and code, and its `fingerprint` if it
    has one. Where that cannot be told, `key` has to say it.

    Random augmentation belongs outside: `cached(dataset, folder).map(augment)`.

    >>> import tempfile
    >>> class Slow:
    ...     def __len__(self): return 3
    ...     def __getitem__(self, index):
    ...         print("reading", index)
    ...         return {"number": index}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     data = cached(Slow(), folder, max_bytes=1_000_000)
    ...     data[2], data[2]
    reading 2
    ({'number': 2}, {'number': 2})
    """
    if awaits(dataset):
        raise OptionError("samples of a dataset with an async __getitem__ cannot be cached: cache what it reads from")
    count = length_of(dataset, "dataset")
    bound = None if max_bytes is None else check_whole("max_bytes", max_bytes, least=1)
    identity = _identity(dataset, count, key)
    if where == "memory":
        return CachedDataset(dataset, PackMemory(identity, count, bound))
    folder = Path(check_folder("where", where, otherwise=' or "memory"')).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return CachedDataset(dataset, PackFolder(folder, identity, count, bound or UNBOUNDED))


def _identity(dataset: Any, count: int, key: str | None) -> str:
    if key is not None and not isinstance(key, str):
        raise OptionTypeError(f"key must be a text; got {key!r}")
    said = identity_of(dataset) if key is None else f"key {key}"
    return blake2b(f"{FORMAT} {count} {said}".encode(), digest_size=16).hexdigest()
