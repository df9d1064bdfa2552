"""Part of a dataset: chosen samples, or random disjoint parts.

Takes: a map-style dataset, and indices or lengths.
Gives: `Subset` and `random_split`.
Promises: the parts of a split hold every sample once; the same seed gives the same split.
Not its job: an order that changes with the epoch (order/sampler).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from feedline.datasets.joining import Dataset, length_of
from feedline.datasets.reading import (
    Empty,
    Indexable,
    IntArray,
    T_co,
    described,
    position,
    read_samples,
    reads_batches,
    reads_many,
)


class Subset(Dataset[T_co]):
    """Some samples of a dataset, in the order of `indices`.

    Integers are kept as one int64 array; other keys, for datasets that use them, as a list.

    >>> part = Subset(["a", "b", "c", "d"], [3, 1])
    >>> len(part), part[0], part.__getitems__([1, 0])
    (2, 'd', ['b', 'd'])
    """

    indices: IntArray | list[Any]

    def __init__(self, dataset: Indexable[T_co], indices: Sequence[int] | npt.NDArray[np.integer[Any]]) -> None:
        self.dataset = dataset
        self.indices = _as_indices(indices)

    def _reads_batches(self) -> bool:
        return isinstance(self.indices, np.ndarray) and reads_batches(self.dataset)

    def _reads_many(self) -> bool:
        return reads_many(self.dataset)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> T_co:
        return self.dataset[self._chosen([index])[0]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        return read_samples(self.dataset, self._chosen(indices))

    def __getbatch__(self, indices: IntArray, empty: Empty) -> Any:
        if not self._reads_batches():
            return NotImplemented
        chosen = cast(IntArray, self.indices).take(indices)
        return cast(Any, self.dataset).__getbatch__(chosen, empty)

    def describe(self, index: int) -> str:
        """What the dataset says about its sample."""
        return described(self.dataset, self._chosen([index])[0])

    def _chosen(self, places: list[int]) -> list[int]:
        """The dataset's own indices, as Python ints: a dataset may use them as keys."""
        size = len(self.indices)
        inside = [position(place, size, "Subset") for place in places]
        if isinstance(self.indices, list):
            return [self.indices[place] for place in inside]
        return cast("list[int]", self.indices.take(np.asarray(inside, dtype=np.int64)).tolist())


def _as_indices(indices: Any) -> IntArray | list[Any]:
    if not isinstance(indices, np.ndarray):
        indices = list(indices)
        if not all(isinstance(index, (int, np.integer, np.bool_)) for index in indices):
            return cast("list[Any]", indices)
        indices = np.array(indices) if indices else np.empty(0, dtype=np.int64)
    if indices.dtype == bool:
        raise TypeError("indices is a mask of booleans; pass np.flatnonzero(mask)")
    if indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise TypeError(f"indices must be one-dimensional integers, not {indices.dtype} of shape {indices.shape}")
    return cast(IntArray, indices.astype(np.int64))  # a copy: the caller's array may change


def random_split(
    dataset: Indexable[T_co], lengths: Sequence[int] | Sequence[float], seed: int = 0
) -> list[Subset[T_co]]:
    """Disjoint random parts of a dataset; the same for the same `seed`.

    `lengths` are the sizes, or fractions that sum to 1: these are rounded down, and the rest goes to the parts in turn.
    As in torch, [1] and [1, 0] are fractions.

    >>> [len(part) for part in random_split(range(10), [0.75, 0.25])], len(random_split("abc", [1, 2])[1])
    ([8, 2], 2)
    """
    size = length_of(dataset, "dataset")
    sizes = _part_sizes(lengths, size)
    order = np.random.default_rng(seed).permutation(size)
    ends = list(accumulate(sizes))
    return [Subset(dataset, order[end - length : end]) for length, end in zip(sizes, ends, strict=True)]


def _part_sizes(lengths: Sequence[float], size: int) -> list[int]:
    if not len(lengths):
        raise ValueError("lengths is empty; pass the sizes of the parts, or fractions that sum to 1")
    if not all(length >= 0 for length in lengths):
        raise ValueError(f"lengths must not be negative, but is {list(lengths)}")
    if math.isclose(math.fsum(lengths), 1):
        return _sizes_of_fractions(lengths, size)
    if all(isinstance(length, (int, np.integer)) for length in lengths) and sum(lengths) == size:
        return [int(length) for length in lengths]
    raise ValueError(
        f"lengths must be whole numbers that sum to the dataset's length {size}, or fractions that sum to 1, "
        f"but is {list(lengths)}, which sums to {sum(lengths)}"
    )


def _sizes_of_fractions(fractions: Sequence[float], size: int) -> list[int]:
    sizes = [math.floor(size * fraction) for fraction in fractions]
    for number in range(size - sum(sizes)):
        sizes[number % len(sizes)] += 1
    for number, part in enumerate(sizes):
        if part == 0:
            message = f"lengths[{number}] = {fractions[number]} of {size} samples is an empty part"
            warnings.warn(message, UserWarning, stacklevel=4)
    return sizes
