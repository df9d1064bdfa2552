"""Rows as Arrow columns: small in memory, one after the other or many at once, and without Python objects to copy.

Takes: record batches. Gives: `Columns`: rows as dicts of plain values; a fingerprint of all of them.
Promises: a column is one block: whole numbers as narrow as they allow, texts that repeat kept once. It pickles with
its blocks out of band (protocol 5), so all workers share them. Batches may come with types that widen (all NULL at
first; whole numbers, then fractions).
Not its job: where they come from (connecting).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from feedline.errors import OptionError, SourceError
from feedline.extras import extra

REPEATS = 4
"""A text that comes this often on average, in each batch, is kept once: 2 bytes a row instead of 4 and the text."""
MOST_BYTES = (1 << 31) - 1
"""Of text in one column before offsets need 8 bytes."""


class Columns:
    """A result, kept.

    >>> import pyarrow
    >>> columns = Columns.of([pyarrow.RecordBatch.from_pydict({"id": [1, 2], "split": ["train", "test"]})])
    >>> len(columns), columns.row(1), columns.rows([1, 0])[1]
    (2, {'id': 2, 'split': 'test'}, {'id': 1, 'split': 'train'})
    """

    def __init__(self, arrays: dict[str, Any]) -> None:
        self._arrays = arrays
        self._length = len(next(iter(arrays.values()), ()))

    @classmethod
    def of(cls, batches: Iterable[Any]) -> Columns:
        """All rows of the batches, of which there is at least one."""
        growing: dict[str, _Growing] = {}
        for batch in batches:
            if not growing:
                growing = {name: _Growing(name) for name in checked_names(batch.schema.names)}
            for column, array in zip(growing.values(), batch.columns, strict=True):
                column.add(array)
        return cls({name: column.done() for name, column in growing.items()})

    @property
    def names(self) -> list[str]:
        """Of the columns."""
        return list(self._arrays)

    @property
    def table(self) -> Any:
        """The same as a pyarrow.Table, without a copy."""
        return extra("pyarrow", "sql", "SQL").table(self._arrays)

    @property
    def nbytes(self) -> int:
        """Memory that the rows take."""
        return sum(int(array.nbytes) for array in self._arrays.values())

    def __len__(self) -> int:
        return self._length

    def row(self, place: int) -> dict[str, Any]:
        """One."""
        return {name: array[place].as_py() for name, array in self._arrays.items()}

    def rows(self, places: Sequence[int]) -> list[dict[str, Any]]:
        """Many, in the order asked for."""
        chosen = extra("pyarrow", "sql", "SQL").array(np.asarray(places, np.int64))
        lists = [array.take(chosen).to_pylist() for array in self._arrays.values()]
        return [dict(zip(self._arrays, values, strict=True)) for values in zip(*lists, strict=True)]

    def fingerprint(self) -> str:
        """Another one whenever a value, a name, a type or the order of rows is another."""
        digest = hashlib.blake2b(digest_size=12)
        for name, array in self._arrays.items():
            digest.update(f"{name}\0{array.type}\0{len(array)}\0".encode())
            _take_down(array, digest)
        return f"{self._length} rows, {digest.hexdigest()}"


def checked_names(names: list[str]) -> list[str]:
    """Each once, or OptionError."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise OptionError(
            f"the query gives several columns named {', '.join(twice)}, of which a row can keep one: name them apart, "
            f"such as b.{twice[0]} AS b_{twice[0]}"
        )
    return names


class _Growing:
    """A column while its batches come."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._arrow = extra("pyarrow", "sql", "SQL")
        self._compute = extra("pyarrow.compute", "sql", "SQL")
        self._chunks: list[Any] = []
        self._repeats = True

    def add(self, array: Any) -> None:
        types = self._arrow.types
        if types.is_integer(array.type):
            array = self._narrow(array)
        elif types.is_string(array.type) and self._repeats:
            coded = array.dictionary_encode()
            self._repeats = len(coded.dictionary) * REPEATS <= max(len(array), REPEATS * REPEATS)
            array = coded if self._repeats else array
        self._chunks.append(array)

    def done(self) -> Any:
        """All of it, as one array."""
        chunks, self._chunks = self._chunks, []
        if self._repeats and self._arrow.types.is_dictionary(chunks[0].type):
            if all(chunk.type == chunks[0].type for chunk in chunks):
                return self._coded(chunks)
        return self._joined([self._decoded(chunk) for chunk in chunks])

    def _joined(self, chunks: list[Any]) -> Any:
        arrow = self._arrow
        try:
            schemas = [arrow.schema([(self._name, kind)]) for kind in {chunk.type for chunk in chunks}]
            wide = arrow.unify_schemas(schemas, promote_options="permissive").field(0).type
            if sum(chunk.nbytes for chunk in chunks) > MOST_BYTES:
                wide = {arrow.string(): arrow.large_string(), arrow.binary(): arrow.large_binary()}.get(wide, wide)
            return arrow.concat_arrays([chunk.cast(wide) for chunk in chunks])
        except arrow.ArrowException as error:
            kinds = sorted({str(chunk.type) for chunk in chunks})
            raise SourceError(
                f"column {self._name} holds {' and '.join(kinds)}, which make no column of one type ({error}): "
                f"let the query give one, such as CAST({self._name} AS TEXT) AS {self._name}"
            ) from error

    def _coded(self, chunks: list[Any]) -> Any:
        """Texts that repeat: their numbers, and each text once."""
        united = self._arrow.chunked_array(chunks).unify_dictionaries().chunks
        numbers = self._joined([self._narrow(chunk.indices) for chunk in united])
        return self._arrow.DictionaryArray.from_arrays(numbers, united[-1].dictionary)

    def _decoded(self, chunk: Any) -> Any:
        return chunk.dictionary_decode() if self._arrow.types.is_dictionary(chunk.type) else chunk

    def _narrow(self, numbers: Any) -> Any:
        """Whole numbers in as few bytes as they need."""
        least, most = self._compute.min_max(numbers).as_py().values()
        if least is None:
            return numbers.cast(self._arrow.int8())
        for bits in (8, 16, 32):
            if -(1 << bits - 1) <= least and most < 1 << bits - 1:
                return numbers.cast(getattr(self._arrow, f"int{bits}")())
        return numbers


def _take_down(array: Any, digest: Any) -> None:
    """All of an array's content. What lies where a NULL is doesn't count."""
    arrow = extra("pyarrow", "sql", "SQL")
    types = arrow.types
    if array.null_count:
        digest.update(np.packbits(array.is_valid().to_numpy(zero_copy_only=False)).tobytes())
        array = array.drop_null()
    if types.is_dictionary(array.type):
        _take_down(array.indices, digest)
        _take_down(array.dictionary, digest)
    elif types.is_integer(array.type) or types.is_floating(array.type):
        digest.update(np.ascontiguousarray(array.to_numpy()))
    elif types.is_string(array.type) or types.is_binary(array.type):
        digest.update(np.frombuffer(array.buffers()[1], np.int32)[: len(array) + 1])
        digest.update(array.buffers()[2] or b"")
    else:  # rare, and then seldom many
        for start in range(0, len(array), 65_536):
            digest.update(repr(array[start : start + 65_536].to_pylist()).encode(errors="surrogatepass"))
