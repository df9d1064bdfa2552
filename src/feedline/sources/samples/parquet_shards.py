"""Shards of a materialized dataset as Parquet files, from which every sample comes back as it was.

Takes: rows of numbers, arrays, texts and bytes. Gives: one file for each shard.
Promises: the first row of the dataset decides the type of each field, and the shape if it has several dimensions; a
field that cannot come back equal, or that differs from the first row's, is refused by name before its shard is written.
Numbers of Python come back as NumPy's (int64, float64, bool), and so do arrays without dimensions. A file appears whole
or not at all.
Not its job: which samples are missing (materializing), reading (sources/parquet).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from feedline.errors import OptionTypeError
from feedline.errors.missing_packages import extra
from feedline.sources.tar.unfinished import unfinished

_REMEDY = "convert it with .map first, or use format='cache', which keeps any sample"
_PYTHONS = {bool: np.dtype(np.bool_), int: np.dtype(np.int64), float: np.dtype(np.float64)}


class ParquetShards:
    """Writes the shards of one folder; all have the types of the first that was written."""

    def __init__(self, out: Path) -> None:
        self._arrow = extra("pyarrow", "arrow", "materialize")
        self._parquet = extra("pyarrow.parquet", "arrow", "materialize")
        written = min(out.glob("*.parquet"), default=None)
        self._types = {} if written is None else {each.name: each.type for each in self._parquet.read_schema(written)}

    def write(self, path: Path, rows: Iterator[tuple[int, dict[str, Any]]]) -> None:
        """Write one shard."""
        columns: dict[str, list[Any]] = {}
        for index, fields in rows:
            if not self._types:
                self._types = self._first_row(index, fields)
            self._check(index, fields)
            for name, value in fields.items():
                columns.setdefault(name, []).append(value)
        table = self._arrow.table({name: self._column(self._types[name], columns[name]) for name in self._types})
        file, new = unfinished(path)
        try:
            with file:
                self._parquet.write_table(table, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, path)
        except BaseException:
            new.unlink(missing_ok=True)
            raise

    def _first_row(self, index: int, fields: dict[str, Any]) -> dict[str, Any]:
        for name, value in fields.items():
            if value is None:
                raise OptionTypeError(
                    f"sample {index} has None in {name!r}, and the first sample decides the type of each field: "
                    f"{_REMEDY}"
                )
        if not fields:
            raise OptionTypeError(f"sample {index} has no fields, so it is no row of a table")
        return {name: self._type_of(index, name, value) for name, value in fields.items()}

    def _check(self, index: int, fields: dict[str, Any]) -> None:
        if fields.keys() != self._types.keys():
            raise OptionTypeError(
                f"sample {index} has other fields ({', '.join(map(repr, fields))}) than the first sample "
                f"({', '.join(map(repr, self._types))}), so it is no row of a table"
            )
        for name, value in fields.items():
            if value is None:
                continue
            found = self._type_of(index, name, value)
            if found != self._types[name]:
                raise OptionTypeError(
                    f"sample {index} has {found} in {name!r}, and the first sample has {self._types[name]}: a column "
                    f"has one type, and for arrays of several dimensions one shape. {_REMEDY.capitalize()}"
                )

    def _type_of(self, index: int, name: str, value: Any) -> Any:
        """The column type from which this value comes back as it is."""
        arrow, kind = self._arrow, type(value)
        if isinstance(value, str):
            try:
                value.encode()
            except UnicodeEncodeError as error:
                raise self._refused(index, name, f"a text that is not valid Unicode ({error})") from None
            return arrow.large_string()
        if kind is bytes:
            return arrow.large_binary()
        if kind is int and not -(1 << 63) <= value < 1 << 63:
            raise self._refused(index, name, "an integer that does not fit into 64 bits")
        dtype = _PYTHONS.get(kind)
        if dtype is None:
            if not (kind in (np.ndarray, np.memmap) or isinstance(value, np.generic)):
                raise self._refused(index, name, f"a value of type {kind.__name__}")
            dtype = value.dtype
            if dtype.kind not in "biuf" or dtype.itemsize > 8 or not dtype.isnative:
                raise self._refused(index, name, f"an array of {dtype}")
        number, shape = arrow.from_numpy_dtype(dtype), np.shape(value)
        if len(shape) > 1 and 0 in shape:
            raise self._refused(index, name, f"an empty array of shape {shape}")
        if len(shape) > 1:
            return arrow.fixed_shape_tensor(number, shape)
        return arrow.large_list(number) if shape else number

    def _refused(self, index: int, name: str, what: str) -> OptionTypeError:
        return OptionTypeError(
            f"sample {index} has {what} in {name!r}; Parquet gets numbers, texts, bytes, and arrays of numbers: "
            f"{_REMEDY}"
        )

    def _column(self, kind: Any, values: list[Any]) -> Any:
        arrow = self._arrow
        missing = np.array([value is None for value in values])
        if kind in (arrow.large_string(), arrow.large_binary()):
            return arrow.array(values, kind)
        if isinstance(kind, arrow.FixedShapeTensorType):
            number = kind.value_type.to_pandas_dtype()
            empty = np.zeros(kind.shape, number)
            flat = np.stack([empty if value is None else value for value in values]).reshape(-1)
            size = len(flat) // len(values)
            lists = arrow.FixedSizeListArray.from_arrays(arrow.array(flat), size, mask=arrow.array(missing))
            return arrow.ExtensionArray.from_storage(kind, lists)
        if isinstance(kind, arrow.LargeListType):
            number = kind.value_type.to_pandas_dtype()
            arrays = [np.zeros(0, number) if value is None else value for value in values]
            offsets = np.concatenate([[0], np.cumsum([len(each) for each in arrays])])
            begins = arrow.array(offsets, arrow.int64(), mask=np.append(missing, False))
            return arrow.LargeListArray.from_arrays(begins, arrow.array(np.concatenate(arrays)))
        numbers = np.array([0 if value is None else value for value in values], kind.to_pandas_dtype())
        return arrow.array(numbers, kind, mask=missing)
