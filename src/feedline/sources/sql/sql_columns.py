"""Rows as Arrow columns: small in memory, read one by one or many at once, without Python objects to copy.

Takes: record batches. Gives: `SQLColumns`: rows as dicts of plain values; a fingerprint of all of them.
Promises: a column is one block. It pickles with its blocks out of band (protocol 5), so all workers share them.
Not its job: where the rows come from (connecting), how they are made small (gathering).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from feedline.errors import OptionError
from feedline.errors.missing_packages import extra
from feedline.sources.sql.gathering import Growing, text_parts


class SQLColumns:
    """A result, kept.

    >>> import pyarrow
    >>> columns = SQLColumns.of([pyarrow.RecordBatch.from_pydict({"id": [1, 2], "split": ["train", "test"]})])
    >>> len(columns), columns.row(1), columns.rows([1, 0])[1]
    (2, {'id': 2, 'split': 'test'}, {'id': 1, 'split': 'train'})
    """

    def __init__(self, arrays: dict[str, Any]) -> None:
        self._arrays = arrays
        self._length = len(next(iter(arrays.values()), ()))

    @classmethod
    def of(cls, batches: Iterable[Any]) -> SQLColumns:
        """All rows of the batches; there must be at least one batch."""
        growing: dict[str, Growing] = {}
        for batch in batches:
            if not growing:
                growing = {name: Growing(name) for name in checked_names(batch.schema.names)}
            for column, array in zip(growing.values(), batch.columns, strict=True):
                column.add(array)
        return cls({name: column.done() for name, column in growing.items()})

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return list(self._arrays)

    @property
    def table(self) -> Any:
        """The same as a pyarrow.Table, without a copy."""
        return extra("pyarrow", "sql", "SQL").table(self._arrays)

    @property
    def nbytes(self) -> int:
        """The memory of the rows, in bytes."""
        return sum(int(array.nbytes) for array in self._arrays.values())

    def __len__(self) -> int:
        return self._length

    def row(self, place: int) -> dict[str, Any]:
        """One row."""
        return {name: array[place].as_py() for name, array in self._arrays.items()}

    def rows(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Many rows, in the requested order."""
        chosen = extra("pyarrow", "sql", "SQL").array(np.asarray(places, np.int64))
        lists = [_plain(array.take(chosen)) for array in self._arrays.values()]
        return [dict(zip(self._arrays, values, strict=True)) for values in zip(*lists, strict=True)]

    def fingerprint(self) -> str:
        """A text that changes whenever a value, a name, a type or the order of rows changes."""
        digest = hashlib.blake2b(digest_size=12)
        for name, array in self._arrays.items():
            digest.update(f"{name}\0{array.type}\0".encode())
            _take_down(array, digest)
        return f"{self._length} rows, {digest.hexdigest()}"


def checked_names(names: list[str]) -> list[str]:
    """The names, if each occurs once; else OptionError."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(
            f"the query gives several columns named {', '.join(twice)}, and a row can have only one of them: give "
            f"them different names, such as b.{twice[0]} AS b_{twice[0]}"
        )
    return names


def _plain(array: Any) -> list[Any]:
    types = extra("pyarrow", "sql", "SQL").types
    if not array.null_count and (types.is_integer(array.type) or types.is_floating(array.type)):
        return list(array.to_numpy().tolist())
    return list(array.to_pylist())


def _take_down(array: Any, digest: Any) -> None:
    """Add the whole content of an array. Values under NULLs don't count."""
    arrow = extra("pyarrow", "sql", "SQL")
    types = arrow.types
    digest.update(f"{len(array)}\0{array.null_count}\0".encode())  # or bits of NULLs could be taken for values
    if array.null_count:
        digest.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
        array = array.drop_null()
    if types.is_dictionary(array.type):
        _take_down(array.indices, digest)
        _take_down(array.dictionary, digest)
    elif types.is_integer(array.type) or types.is_floating(array.type):
        digest.update(np.ascontiguousarray(array.to_numpy()))
    elif types.is_string(array.type) or types.is_large_string(array.type):
        starts, content = text_parts(arrow, array)
        digest.update(np.ascontiguousarray(starts - starts[0]))
        digest.update(content[starts[0] : starts[-1]])
    else:  # rare, and then rarely many
        for start in range(0, len(array), 65_536):
            digest.update(repr(array[start : start + 65_536].to_pylist()).encode(errors="surrogatepass"))
