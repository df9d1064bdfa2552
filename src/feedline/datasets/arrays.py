"""Arrays in memory, or mapped from a file, as a dataset.

Takes: arrays of equal length, by position or by name.
Gives: samples, lists of samples, and whole batches at the speed of `ndarray.take`.
Promises: nothing that is returned aliases the arrays (except elements of object arrays); arrays are pickled out of
band, and mapped files by name.
Not its job: holding Python records (SharedList).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from feedline.datasets.joining import Dataset, either
from feedline.datasets.mapped_file import packed, unpacked
from feedline.datasets.reading import Array, Empty, IntArray, is_ordinary, outside


class ArrayDataset(Dataset[Any]):
    """Arrays indexed together along their first axis: tuples of positional ones, dicts of named ones.

    Samples and batches are copies, but elements of object arrays are returned as they are. A `np.memmap` stays on disk
    and is pickled by file name (see mapped_file). Arrays of objects or of single strings are not read in whole batches,
    because collation does not make arrays of them.

    >>> data = ArrayDataset(image=np.zeros((3, 2)), label=[7, 8, 9])
    >>> len(data), data[2]["label"].item(), data[2]["image"].tolist()
    (3, 9, [0.0, 0.0])
    >>> data.__getbatch__(np.array([2, 0]), np.empty)["label"].tolist()
    [9, 7]
    """

    arrays: tuple[Array, ...]
    names: tuple[str, ...] | None

    def __init__(self, *arrays: npt.ArrayLike, **named: npt.ArrayLike) -> None:
        given = either(arrays, named, "array")
        self.arrays = tuple(_as_array(array, name) for name, array in given.items())
        self.names = tuple(named) if named else None
        if len({len(array) for array in self.arrays}) > 1:
            shapes = ", ".join(f"{name}: {a.shape}" for name, a in zip(given, self.arrays, strict=True))
            raise ValueError(f"arrays must have the same size along their first axis, but the shapes are {shapes}")
        self._prepare()

    def _prepare(self) -> None:
        """Compute what every read would otherwise compute again; also called after unpickling."""
        self._length = len(self.arrays[0])
        # Plain views: indexing a np.memmap would give a np.memmap.
        self._rows = [array.view(np.ndarray) for array in self.arrays]
        self._row_bytes = sum(_row_bytes(rows) for rows in self._rows)
        self._takes_all = all(_can_take(rows) for rows in self._rows)
        self._by_batch = not any(_collates_to_list(rows) for rows in self._rows)

    def _reads_batches(self) -> bool:
        return self._by_batch

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: Any) -> Any:
        try:
            return self._sample([_owned(rows[index]) for rows in self._rows])
        except IndexError:
            raise outside(index, self._length, "ArrayDataset") from None

    def __getitems__(self, indices: list[int]) -> list[Any]:
        inside = self._inside(np.array([operator.index(index) for index in indices], dtype=np.int64))
        columns = [_gather(rows, inside, np.empty) for rows in self._rows]
        return [self._sample(values) for values in zip(*columns, strict=True)]

    def __getbatch__(self, indices: IntArray, empty: Empty) -> Any:
        if not self._by_batch:
            return NotImplemented
        if self._takes_all and is_ordinary(empty, len(indices) * self._row_bytes):
            try:
                return self._sample([rows.take(indices, 0) for rows in self._rows])
            except IndexError:
                self._inside(indices)
                raise
        inside = self._inside(indices)
        return self._sample([_gather(rows, inside, empty) for rows in self._rows])

    def _inside(self, indices: IntArray) -> IntArray:
        """The indices counted from the front, or an IndexError that names one that does not exist."""
        if len(indices) and (indices.min() < 0 or indices.max() >= self._length):
            wrapped = np.where(indices < 0, indices + self._length, indices)
            bad = indices[(wrapped < 0) | (wrapped >= self._length)]
            if len(bad):
                raise outside(bad[0], self._length, "ArrayDataset")
            return cast(IntArray, wrapped)
        return indices

    def _sample(self, values: Iterable[Any]) -> Any:
        return tuple(values) if self.names is None else dict(zip(self.names, values, strict=True))

    def __getstate__(self) -> dict[str, Any]:
        derived = ("_length", "_rows", "_row_bytes", "_takes_all", "_by_batch")
        state = {name: value for name, value in vars(self).items() if name not in derived}
        return {**state, "arrays": [packed(array) for array in self.arrays]}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, arrays=tuple(unpacked(array) for array in state["arrays"]))
        self._prepare()


TensorDataset = ArrayDataset


def _as_array(value: npt.ArrayLike, name: str) -> Array:
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost: pass its .filled() data, or data and mask"
        )
    try:
        array = value if isinstance(value, np.memmap) else np.asarray(value)
    except (ValueError, TypeError) as error:
        raise TypeError(f"{name} ({type(value).__name__}) cannot be converted to an array: {error}") from error
    if array.ndim == 0:
        raise ValueError(f"{name} ({type(value).__name__}) has no first axis to index; pass at least one dimension")
    return array


def _gather(rows: Array, inside: IntArray, empty: Empty) -> Array:
    """The rows at indices known to be in range; in memory from `empty` if they are many bytes."""
    if is_ordinary(empty, len(inside) * _row_bytes(rows)):
        return rows.take(inside, 0) if _can_take(rows) else rows[inside]
    out = empty((len(inside), *rows.shape[1:]), rows.dtype)
    if _can_take(rows):
        rows.take(inside, 0, out, "clip")  # "raise" would gather into a hidden copy first
    else:
        out[...] = rows[inside]
    return out


def _row_bytes(rows: Array) -> int:
    return math.prod(rows.shape[1:]) * rows.itemsize


def _can_take(rows: Array) -> bool:
    # take() first copies the whole array, on every call, unless it is contiguous and aligned.
    return bool(rows.flags.c_contiguous and rows.flags.aligned)


def _collates_to_list(rows: Array) -> bool:
    """Are its rows collated to a list? Objects are collated by their type, and single strings are kept as a list."""
    return rows.dtype.hasobject or (rows.ndim == 1 and rows.dtype.kind in "SU")


def _owned(value: Any) -> Any:
    # A record of a structured array (np.void) is a view, too.
    return value.copy() if isinstance(value, (np.ndarray, np.void)) else value
