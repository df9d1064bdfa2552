"""Datasets, and datasets joined: one after the other, or side by side.

Takes: the user's datasets: anything with `__getitem__` and `__len__`, or with `__iter__`.
Gives: `Dataset` and `IterableDataset` to subclass (torch's names and meanings), Concat, Chain and Stack.
Promises: a joined dataset reads each part in the fastest way that part has, and keeps the requested order.
Not its job: choosing samples (selecting), arrays (arrays).
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import accumulate, islice
from typing import Any, Generic, cast

import numpy as np

from feedline.datasets.merging import merged
from feedline.datasets.reading import (
    Empty,
    Indexable,
    IntArray,
    T_co,
    awaits,
    described,
    no_batch,
    one_by_one,
    position,
    read_samples,
    reads_batches,
    reads_many,
)
from feedline.errors.foreign import ask
from feedline.machine.worker_info import count_reads, is_one_of_many
from feedline.randomness.rng import reading_some


class Dataset(Generic[T_co]):
    """A map-style dataset: subclass it, write `__getitem__` and `__len__`.

    If a subclass of ours (say of ArrayDataset) overrides `__getitem__`, it is never bypassed: the faster ways of
    reading that it inherits from feedline are switched off, unless it overrides them too.

    >>> class Squares(Dataset[int]):
    ...     def __getitem__(self, index): return index * index
    ...     def __len__(self): return 4
    >>> both = Squares() + Squares()
    >>> len(both), both[5]
    (8, 1)
    """

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        one, many, batch = (_depth(cls, name) for name in ("__getitem__", "__getitems__", "__getbatch__"))
        if one < many and _is_ours(cls, "__getitems__"):
            setattr(cls, "__getitems__", one_by_one)  # noqa: B010  (mypy: not a method of every Dataset)
        if min(one, many) < batch and _is_ours(cls, "__getbatch__"):
            setattr(cls, "__getbatch__", no_batch)  # noqa: B010

    def __getitem__(self, index: int) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} must define __getitem__(self, index)")

    def __add__(self, other: Indexable[T_co]) -> ConcatDataset[T_co]:
        return ConcatDataset([self, other])


def _depth(cls: type, name: str) -> int:
    """How far up the class hierarchy `name` is defined: 0 in the class itself."""
    return next((depth for depth, owner in enumerate(cls.__mro__) if name in vars(owner)), len(cls.__mro__))


def _is_ours(cls: type, name: str) -> bool:
    # Only ours: a user's base class may build its __getitems__ on the subclass's __getitem__.
    return str(getattr(getattr(cls, name, None), "__module__", "")).startswith("feedline.")


class IterableDataset(Dataset[T_co]):
    """A dataset that is read from front to back: subclass it, write `__iter__` (and `__len__` if known).

    A dataset that can save its position has `state_dict()` and `load_state_dict(state)`, or the iterator that
    `__iter__` returns has them. A state is complete: loaded into a dataset that was never read, it gives exactly the
    elements that would have come next. If a worker dies, the worker that replaces it relies on this.

    >>> class Lines(IterableDataset[str]):
    ...     def __iter__(self): yield from ("a", "b")
    >>> list(Lines() + Lines())
    ['a', 'b', 'a', 'b']
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} must define __iter__(self)")

    def _sharing_notice(self, readers: int) -> str | None:
        """What a stream of feedline's has to tell the user when so many workers read it."""
        return None

    def __add__(self, other: Iterable[T_co]) -> ChainDataset[T_co]:  # type: ignore[override]
        return ChainDataset([self, other])


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other, as one dataset.

    >>> both = ConcatDataset([["a", "b"], ["c"]])
    >>> len(both), both[2], both[-3], both.cumulative_sizes
    (3, 'c', 'a', [2, 3])
    """

    datasets: list[Indexable[T_co]]
    cumulative_sizes: list[int]

    def __init__(self, datasets: Iterable[Indexable[T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueError("datasets is empty; pass at least one dataset")
        sizes = (length_of(dataset, f"datasets[{number}]") for number, dataset in enumerate(self.datasets))
        self.cumulative_sizes = list(accumulate(sizes))

    def _reads_batches(self) -> bool:
        return all(reads_batches(child) for child in self.datasets)

    def _reads_many(self) -> bool:
        return all(reads_many(child) for child in self.datasets) and not awaits(self)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __getitem__(self, index: int) -> T_co:
        number, local = self._locate(index)
        return self.datasets[number][local]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        wanted: dict[int, tuple[list[int], list[int]]] = {}
        for place, index in enumerate(indices):
            number, local = self._locate(index)
            places, locals_ = wanted.setdefault(number, ([], []))
            places.append(place)
            locals_.append(local)
        found: dict[int, T_co] = {}
        for number, (places, locals_) in wanted.items():
            with reading_some(places):
                found.update(zip(places, read_samples(self.datasets[number], locals_), strict=True))
        return [found[place] for place in range(len(indices))]

    def __getbatch__(self, indices: IntArray, empty: Empty) -> Any:
        if not len(indices) or not self._reads_batches():
            return NotImplemented
        inside, numbers = self._locate_many(indices)
        present = np.flatnonzero(np.bincount(numbers)).tolist()
        places = [np.flatnonzero(numbers == number) for number in present]
        # A batch that is merged afterwards needs no memory in the slot.
        memory = empty if len(present) == 1 else np.empty
        batches = []
        for number, at in zip(present, places, strict=True):
            start = self.cumulative_sizes[number - 1] if number else 0
            batches.append(cast(Any, self.datasets[number]).__getbatch__(inside[at] - start, memory))
        return batches[0] if len(batches) == 1 else merged(batches, places, empty)

    def describe(self, index: int) -> str:
        """What the dataset that holds the sample says about it."""
        number, local = self._locate(index)
        return described(self.datasets[number], local)

    def _locate(self, index: int) -> tuple[int, int]:
        """Which dataset, and the index in it."""
        place = position(index, len(self), "ConcatDataset")
        number = bisect_right(self.cumulative_sizes, place)
        return number, place - (self.cumulative_sizes[number - 1] if number else 0)

    def _locate_many(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """The indices counted from the front, and the number of the dataset that holds each."""
        if indices.min() < -len(self) or indices.max() >= len(self):
            for index in indices.tolist():
                position(index, len(self), "ConcatDataset")
        inside = np.where(indices < 0, indices + len(self), indices)
        return inside, np.searchsorted(np.array(self.cumulative_sizes), inside, side="right")


class ChainDataset(IterableDataset[T_co]):
    """Iterable datasets one after the other, as one; it has a length if all of them have one.

    >>> list(ChainDataset([["a", "b"], ["c"]])), len(ChainDataset([["a", "b"], ["c"]]))
    (['a', 'b', 'c'], 3)
    """

    def __init__(self, datasets: Iterable[Iterable[T_co]]) -> None:
        self.datasets = list(datasets)
        for number, dataset in enumerate(self.datasets):
            if not hasattr(type(dataset), "__iter__"):
                name = type(dataset).__name__
                raise TypeError(f"datasets[{number}] ({name}) has no __iter__; ConcatDataset joins map-style datasets")

    def __iter__(self) -> Iterator[T_co]:
        shares: bool | None = None
        for dataset in self.datasets:
            before = count_reads()
            elements = iter(dataset)
            first = list(islice(elements, 1))
            asked = count_reads() > before
            if shares is not None and asked is not shares and is_one_of_many():
                raise RuntimeError(
                    "some of the chained datasets read their own share (they ask get_worker_info()) and others read "
                    "everything: with several workers, elements would be delivered twice or not at all. Make all of "
                    "them ask, or none"
                )
            shares = asked
            yield from first
            yield from elements

    def __len__(self) -> int:
        # list() and the like first ask for a length, and take a TypeError as "unknown".
        return sum(len(cast(Sized, dataset)) for dataset in self.datasets)


class StackDataset(Dataset[Any]):
    """Datasets side by side: sample i is the tuple (or, if they are named, the dict) of their samples i.

    >>> from feedline.datasets import ArrayDataset
    >>> pairs = StackDataset(image=ArrayDataset([[1, 2], [3, 4]]), text=["one", "two"])
    >>> pairs[1]["text"], pairs[1]["image"][0].tolist()
    ('two', [3, 4])
    """

    datasets: tuple[Indexable[Any], ...] | dict[str, Indexable[Any]]

    def __init__(self, *datasets: Indexable[Any], **named: Indexable[Any]) -> None:
        given = either(datasets, named, "dataset")
        lengths = {name: length_of(dataset, name) for name, dataset in given.items()}
        if len(set(lengths.values())) > 1:
            listed = ", ".join(f"{name}: {length}" for name, length in lengths.items())
            raise ValueError(f"datasets must have the same length, but the lengths are {listed}")
        self.datasets = named or datasets
        self._length = next(iter(lengths.values()))

    def _children(self) -> tuple[Any, ...]:
        return tuple(self.datasets.values()) if isinstance(self.datasets, dict) else self.datasets

    def _reads_batches(self) -> bool:
        return all(reads_batches(child) for child in self._children())

    def _reads_many(self) -> bool:
        return all(reads_many(child) for child in self._children()) and not awaits(self)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        place = position(index, self._length, "StackDataset")
        return self._sample(child[place] for child in self._children())

    def __getitems__(self, indices: list[int]) -> list[Any]:
        places = [position(index, self._length, "StackDataset") for index in indices]
        columns = [read_samples(child, places) for child in self._children()]
        return [self._sample(values) for values in zip(*columns, strict=True)]

    def __getbatch__(self, indices: IntArray, empty: Empty) -> Any:
        if not self._reads_batches():
            return NotImplemented
        batches = []
        for child in self._children():
            batches.append(child.__getbatch__(indices, empty))
            if batches[-1] is NotImplemented:  # a user's dataset, which never promised to give batches
                return NotImplemented
        return self._sample(batches)

    def describe(self, index: int) -> str:
        """The descriptions from those datasets that have one."""
        place = position(index, self._length, "StackDataset")
        return ", ".join(filter(None, (described(child, place) for child in self._children())))

    def _sample(self, values: Iterable[Any]) -> Any:
        return dict(zip(self.datasets, values, strict=True)) if isinstance(self.datasets, dict) else tuple(values)


def gives_shards(dataset: Any) -> bool:
    """Has it our `shard(index, count)`, and not another library's method of that name with other arguments?

    >>> gives_shards(ChainDataset(["ab"]))
    False
    """
    method = ask(dataset, "shard")
    if not callable(method) or isinstance(dataset, IterableDataset):
        return callable(method)
    try:
        return list(inspect.signature(method).parameters) == ["index", "count"]
    except (TypeError, ValueError):  # it is written in C, say
        return False


def length_of(dataset: object, name: str) -> int:
    """The length of a map-style dataset, or a TypeError that says why `name` has none."""
    if isinstance(dataset, IterableDataset):
        raise TypeError(f"{name} is an IterableDataset, which has no index; ChainDataset joins those")
    try:
        return len(dataset)  # type: ignore[arg-type]
    except TypeError as error:
        raise TypeError(f"{name} ({type(dataset).__name__}) has no length: define __len__ on it") from error


def either(positional: Sequence[Any], named: dict[str, Any], what: str) -> dict[str, Any]:
    """The arguments that were given, by name; positional ones are called `array 0` and so on."""
    if positional and named:
        raise ValueError(f"pass {what}s by position (for tuples) or by name (for dicts), not both")
    if not positional and not named:
        raise ValueError(f"pass at least one {what}")
    return named or {f"{what} {number}": value for number, value in enumerate(positional)}
