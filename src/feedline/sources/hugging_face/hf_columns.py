"""Columns of a Hugging Face table as NumPy, without a Python object for each value.

Takes: a column of an Arrow table. Gives: `column_of`: rows of it, one or many, or None if only `datasets` itself can
say what its values are (nulls, ragged lists, nested structures).
Promises: a value is what `dataset.with_format("numpy")[i]` has; an array that is given is nobody else's.
Not its job: which rows (from_hf), pictures.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from feedline.datasets import Array, Empty, IntArray


class NumberColumn:
    """Numbers, or arrays of them of one shape: views on the table's memory, chunk by chunk."""

    def __init__(self, chunks: list[Array], given: np.dtype[Any], is_scalar: bool) -> None:
        self._chunks = chunks
        self._dtype = given
        self._is_scalar = is_scalar
        self._ends = np.array([0, *accumulate(map(len, chunks))])

    def one(self, row: int) -> Any:
        number = int(np.searchsorted(self._ends, row, "right")) - 1
        value = self._chunks[number][row - self._ends[number]]
        return value if self._is_scalar else np.array(value, self._dtype)

    def many(self, rows: IntArray, empty: Empty) -> Array:
        shape = self._chunks[0].shape[1:] if self._chunks else ()
        out = empty((len(rows), *shape), self._dtype)
        if len(self._chunks) == 1:
            out[...] = self._chunks[0][rows]
            return out
        numbers = np.searchsorted(self._ends, rows, "right") - 1
        for number in np.unique(numbers).tolist():
            chosen = numbers == number
            out[chosen] = self._chunks[number][rows[chosen] - self._ends[number]]
        return out


class TextColumn:
    """Texts."""

    def __init__(self, column: Any) -> None:
        self._column = column

    def one(self, row: int) -> Any:
        return np.str_(self._column[row].as_py())

    def many(self, rows: IntArray, empty: Empty) -> list[Any]:
        return [np.str_(text) for text in self._column.take(rows).to_pylist()]


def column_of(column: Any) -> NumberColumn | TextColumn | None:
    """The column, if its values are plain."""
    import pyarrow as arrow

    kind = column.type
    if column.null_count or not column.num_chunks:
        return None
    if arrow.types.is_string(kind) or arrow.types.is_large_string(kind):
        return TextColumn(column)
    if _is_number(kind):
        return NumberColumn([chunk.to_numpy(zero_copy_only=False) for chunk in column.chunks], _dtype(kind), True)
    if arrow.types.is_boolean(kind):
        chunks = [chunk.to_numpy(zero_copy_only=False) for chunk in column.chunks]
        return NumberColumn(chunks, np.dtype(bool), False)
    shape = _shape(kind)
    if shape is None:
        return None
    found = [_values(chunk, shape) for chunk in column.chunks]
    if any(each is None for each in found):
        return None
    chunks = [each for each in found if each is not None]
    # What `datasets` makes of arrays in its numpy format.
    given: np.dtype[Any] = np.dtype(np.float32 if chunks[0].dtype.kind == "f" else np.int64)
    return NumberColumn(chunks, given, False)


def _is_number(kind: Any) -> bool:
    import pyarrow as arrow

    return bool(arrow.types.is_integer(kind) or arrow.types.is_floating(kind))


def _dtype(kind: Any) -> np.dtype[Any]:
    found: np.dtype[Any] = np.dtype(kind.to_pandas_dtype())
    return found


def _shape(kind: Any) -> tuple[int, ...] | None:
    """The shape of each row, if the type says it: a list of fixed length, or datasets' Array2D to Array5D."""
    import pyarrow as arrow

    if arrow.types.is_fixed_size_list(kind):
        return (kind.list_size,) if _is_number(kind.value_type) and kind.list_size else None
    shape = getattr(kind, "shape", None)
    if isinstance(kind, arrow.BaseExtensionType) and isinstance(shape, tuple):
        return shape if all(isinstance(size, int) and size > 0 for size in shape) else None
    return None


def _values(chunk: Any, shape: tuple[int, ...]) -> Array | None:
    """The rows of a chunk as one array; None if something in it is missing."""
    import pyarrow as arrow

    values = chunk.storage if isinstance(chunk, arrow.ExtensionArray) else chunk
    for _ in shape:
        if values.null_count:
            return None
        values = values.flatten()
    if values.null_count or not _is_number(values.type) or len(values) != len(chunk) * int(np.prod(shape)):
        return None
    array: Array = values.to_numpy(zero_copy_only=False).reshape(len(chunk), *shape)
    return array
