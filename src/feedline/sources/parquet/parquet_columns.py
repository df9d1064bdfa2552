"""Rows of a table as samples: dicts of NumPy numbers and arrays, texts, bytes, or other Python values.

Takes: a decoded table. Gives: rows, or whole columns as arrays.
Promises: numbers keep their type; lists of numbers are arrays (a list with a missing number stays a list), and so are
tensors of one shape; a missing value is None. Samples are copies: no sample keeps the table alive, or can change it.
Not its job: reading (opening), which rows (dataset, stream).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.datasets import Array, IntArray
from feedline.errors import SourceError
from feedline.errors.missing_packages import extra


class ParquetColumns:
    """A table, column by column, from which rows can be taken."""

    def __init__(self, table: Any) -> None:
        self._columns = {name: _ArrowColumn(table.column(name)) for name in table.column_names}
        self.bytes: int = sum(column.bytes for column in self._columns.values())

    def rows(self, rows: IntArray) -> list[dict[str, Any]]:
        """The samples. They are taken column by column: several times as fast as row by row."""
        names, columns = tuple(self._columns), [self._values(name, rows) for name in self._columns]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]

    def _values(self, name: str, rows: IntArray) -> list[Any]:
        try:
            return self._columns[name].values(rows)
        except Exception as error:  # invalid UTF-8, a date that Python cannot represent
            raise SourceError(
                f"a value of the column {name!r} cannot be read: {type(error).__name__}: {error}"
            ) from error

    def arrays(self) -> dict[str, Array] | None:
        """All columns as arrays with one entry per row, if all can be; these are not copies."""
        found = {name: column.array for name, column in self._columns.items() if column.array is not None}
        return found if len(found) == len(self._columns) else None


class _ArrowColumn:
    """One column. `array` is the column as an array, one entry per row, if it has only numbers and none is missing."""

    def __init__(self, chunked: Any) -> None:
        types = extra("pyarrow.types", "arrow", "ParquetDataset")
        if types.is_dictionary(chunked.type):
            chunked = chunked.cast(chunked.type.value_type)
        self._values = chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
        self._valid = np.asarray(self._values.is_valid()) if self._values.null_count else None
        self._numbers: Array | None = None
        self._items: Array | None = None
        self.array: Array | None = None
        self.bytes: int = self._values.nbytes  # a dictionary's words are counted each time they occur
        kind = self._values.type
        self._shape: tuple[int, ...] = (-1,)
        """Of each list."""
        if _is_tensor(kind):
            self._shape = tuple(kind.shape)
            self._values = self._values.storage
            kind = kind.storage_type
        if _is_number(types, kind):
            self._numbers = _as_numpy(self._values)
            self.array = self._numbers if self._valid is None else None
        elif _is_list(types, kind) and _is_number(types, kind.value_type):
            self._take_lists()

    def _take_lists(self) -> None:
        compute = extra("pyarrow.compute", "arrow", "ParquetDataset")
        flat = self._values.flatten()
        lengths = np.asarray(compute.list_value_length(self._values).fill_null(0))
        self._items, self._ends = _as_numpy(flat), np.cumsum(lengths)
        self._begins = self._ends - lengths
        holes = np.flatnonzero(~np.asarray(flat.is_valid(), np.bool_))
        self._with_holes = set(np.searchsorted(self._ends, holes, side="right").tolist())
        if self._valid is None and not self._with_holes and len(lengths) and (lengths == lengths[0]).all():
            shape = (int(lengths[0]),) if self._shape == (-1,) else self._shape
            self.array = self._items.reshape(len(lengths), *shape)

    def values(self, rows: IntArray) -> list[Any]:
        """The values of those rows."""
        if self.array is not None:
            picked = self.array[rows]
            return list(picked) if picked.ndim == 1 else [each.copy() for each in picked]  # or one keeps all of them
        if self._numbers is not None and self._valid is not None:
            pairs = zip(self._numbers[rows], self._valid[rows], strict=True)
            return [number if valid else None for number, valid in pairs]
        if self._items is not None:
            return [self._list(row) for row in rows.tolist()]
        found: list[Any] = self._values.take(extra("pyarrow", "arrow", "ParquetDataset").array(rows)).to_pylist()
        return found

    def _list(self, row: int) -> Any:
        if self._valid is not None and not self._valid[row]:
            return None
        if self._items is None or row in self._with_holes:
            return self._values[row].as_py()
        return self._items[self._begins[row] : self._ends[row]].reshape(self._shape).copy()


def _is_number(types: Any, kind: Any) -> bool:
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind))


def _is_tensor(kind: Any) -> bool:
    arrow = extra("pyarrow", "arrow", "ParquetDataset")
    return isinstance(kind, arrow.FixedShapeTensorType) and not kind.permutation


def _is_list(types: Any, kind: Any) -> bool:
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _as_numpy(array: Any) -> Array:
    """The values under nulls do not matter: they are never returned."""
    if array.null_count:
        types = extra("pyarrow.types", "arrow", "ParquetDataset")
        array = array.fill_null(False if types.is_boolean(array.type) else 0)
    return np.asarray(array.to_numpy(zero_copy_only=False))
