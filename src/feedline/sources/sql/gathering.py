"""A column that grows batch by batch, and needs little more memory than its final size.

Takes: Arrow arrays. Gives: one Arrow array of all of them.
Promises: integers are stored as narrow as possible; texts that repeat are stored once, with a number per row. A batch
may widen the type of earlier ones (all NULL at first; integers, then fractions); other changes are an error that names
the column.
Not its job: rows (columns).

Joining the batches at the end would hold everything twice: 10 M rows then need up to 990 MB, and this way 450.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.errors import SourceError
from feedline.errors.missing_packages import extra

REPEATS = 4
"""A text that comes this often on average, in each batch, is stored once: a byte or two per row instead of the text."""
NARROW = (np.int8, np.int16, np.int32, np.int64)
NARROW_UNSIGNED = (np.uint8, np.uint16, np.uint32, np.uint64)


class ColumnRoom:
    """Numbers one after the other, in memory that grows in place."""

    def __init__(self, least: type[Any] = np.int8) -> None:
        self._array: npt.NDArray[Any] = np.empty(0, least)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def add(self, values: npt.NDArray[Any]) -> None:
        """Add values; the type of all is widened if necessary."""
        if values.dtype.kind in "iu":
            values = _narrowed(values)
        end = self._used + len(values)
        wide = np.promote_types(self._array.dtype, values.dtype)
        if wide != self._array.dtype:
            self._array = self._array[: self._used].astype(wide)
        if end > len(self._array):
            # The kernel moves a large block without copying it. Growth by a quarter: unused room is memory, too.
            self._array.resize(max(end, len(self._array) * 5 // 4), refcheck=False)
        self._array[self._used : end] = values
        self._used = end

    def done(self) -> npt.NDArray[Any]:
        """All values, without the unused room."""
        self._array.resize(self._used, refcheck=False)
        return self._array


class Growing:
    """A column while its batches come."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._arrow = extra("pyarrow", "sql", "SQL")
        self._kept: _Numbers | _Texts | _Codes | _Others | None = None

    def add(self, array: Any) -> None:
        """Add the next batch's part."""
        if self._kept is None:
            self._kept = self._keeper(array)
        elif not self._kept.takes(array):
            self._kept = self._instead(array, self._kept.done())
        try:
            self._kept.add(array)
        except UnicodeDecodeError as error:
            raise SourceError(
                f"column {self._name} holds a text that is not UTF-8 ({error}): let the query give its bytes, such as "
                f"CAST({self._name} AS BLOB) AS {self._name}"
            ) from error

    def done(self) -> Any:
        """The whole column, as one array."""
        assert self._kept is not None
        return self._kept.done()

    def _keeper(self, array: Any) -> Any:
        types = self._arrow.types
        if types.is_integer(array.type) or types.is_float64(array.type):
            return _Numbers(self._arrow, array.type)
        if not types.is_string(array.type):
            return _Others(self._arrow, self._name)
        codes = _Codes(self._arrow)
        return codes if codes.takes(array) else _Texts(self._arrow)

    def _instead(self, array: Any, before: Any) -> Any:
        """A form that can hold this array too, filled with what came before."""
        types = self._arrow.types
        if not len(before):
            return self._keeper(array)
        if types.is_dictionary(before.type):
            before = before.dictionary_decode()
        kept = _Texts(self._arrow) if before.type == array.type else _Others(self._arrow, self._name)
        kept.add(before)
        return kept


class _Validity:
    """Which rows are not NULL; nothing is stored while all are."""

    def __init__(self) -> None:
        self._count = 0
        self._room: ColumnRoom | None = None

    def add(self, array: Any) -> None:
        if array.null_count and self._room is None:
            self._room = ColumnRoom(np.bool_)
            self._room.add(np.ones(self._count, np.bool_))
        if self._room is not None:
            self._room.add(array.is_valid().to_numpy(zero_copy_only=False))
        self._count += len(array)

    def done(self) -> Any:
        return None if self._room is None else np.packbits(self._room.done(), bitorder="little")


class _Numbers:
    """Integers, or fractions."""

    def __init__(self, arrow: Any, kind: Any) -> None:
        self._arrow, self._kind = arrow, kind
        unsigned = arrow.types.is_unsigned_integer(kind)  # such a column stays so: with int64 it would become float64
        self._room = ColumnRoom(np.float64 if arrow.types.is_floating(kind) else np.uint8 if unsigned else np.int8)
        self._valid = _Validity()

    def takes(self, array: Any) -> bool:
        return bool(array.type == self._kind) or self._both_whole(array.type)

    def add(self, array: Any) -> None:
        self._valid.add(array)
        self._room.add(array.fill_null(0).to_numpy() if array.null_count else array.to_numpy())

    def done(self) -> Any:
        values = self._room.done()
        return _made(self._arrow, self._arrow.from_numpy_dtype(values.dtype), len(values), self._valid, values)

    def _both_whole(self, other: Any) -> bool:
        types = self._arrow.types
        return bool(types.is_signed_integer(self._kind) and types.is_signed_integer(other))


class _Texts:
    """Texts: their bytes one after the other, and where each begins."""

    def __init__(self, arrow: Any) -> None:
        self._arrow = arrow
        self._starts, self._bytes, self._valid = ColumnRoom(np.int32), ColumnRoom(np.uint8), _Validity()
        self._starts.add(np.zeros(1, np.int64))

    def takes(self, array: Any) -> bool:
        return bool(self._arrow.types.is_string(array.type))

    def add(self, array: Any) -> None:
        starts, content = text_parts(self._arrow, array)
        self._valid.add(array)
        self._starts.add(starts[1:].astype(np.int64) + (len(self._bytes) - int(starts[0])))
        self._bytes.add(content[starts[0] : starts[-1]])

    def done(self) -> Any:
        starts = self._starts.done()
        kind = self._arrow.string() if starts.dtype == np.int32 else self._arrow.large_string()
        return _made(self._arrow, kind, len(starts) - 1, self._valid, starts, self._bytes.done())


class _Codes:
    """Texts that repeat: a number for each row, and each text once."""

    def __init__(self, arrow: Any) -> None:
        self._arrow = arrow
        self._numbers, self._valid = ColumnRoom(), _Validity()
        self._known: dict[str, int] = {}
        self._coded: Any = None

    def takes(self, array: Any) -> bool:
        if not self._arrow.types.is_string(array.type):
            return False
        self._coded = array.dictionary_encode()
        return len(self._coded.dictionary) * REPEATS <= max(len(array), REPEATS * REPEATS)

    def add(self, array: Any) -> None:
        coded = array.dictionary_encode() if self._coded is None else self._coded
        self._coded = None
        known = self._known
        numbers = np.array([known.setdefault(text, len(known)) for text in coded.dictionary.to_pylist()], np.int64)
        self._valid.add(array)
        codes = coded.indices.fill_null(0).to_numpy()
        self._numbers.add(numbers[codes] if len(numbers) else np.zeros(len(array), np.int64))

    def done(self) -> Any:
        codes = self._numbers.done()
        kind = self._arrow.from_numpy_dtype(codes.dtype)
        indices = _made(self._arrow, kind, len(codes), self._valid, codes)
        return self._arrow.DictionaryArray.from_arrays(indices, self._arrow.array(list(self._known), "string"))


class _Others:
    """Anything else: joined at the end."""

    def __init__(self, arrow: Any, name: str) -> None:
        self._arrow, self._name = arrow, name
        self._chunks: list[Any] = []

    def takes(self, array: Any) -> bool:
        return True

    def add(self, array: Any) -> None:
        is_coded = self._arrow.types.is_dictionary(array.type)
        self._chunks.append(array.dictionary_decode() if is_coded else array)

    def done(self) -> Any:
        arrow = self._arrow
        try:
            schemas = [arrow.schema([("", kind)]) for kind in {chunk.type for chunk in self._chunks}]
            wide = arrow.unify_schemas(schemas, promote_options="permissive").field(0).type
            return arrow.concat_arrays([chunk.cast(wide) for chunk in self._chunks])
        except arrow.ArrowException as error:
            kinds = sorted({str(chunk.type) for chunk in self._chunks})
            raise no_one_type(self._name, kinds, error) from error


def text_parts(arrow: Any, array: Any) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Where the texts of an array begin (and the last ends), and their bytes."""
    _, starts, content = array.buffers()
    width: type[Any] = np.int64 if arrow.types.is_large_string(array.type) else np.int32
    whole = np.frombuffer(starts, width) if starts is not None and starts.size else np.zeros(1, width)
    some = whole[array.offset : array.offset + len(array) + 1]
    return some, np.frombuffer(content or b"", np.uint8)


def no_one_type(name: str, kinds: list[str], error: Exception, text: str = "TEXT") -> SourceError:
    """The error for a column of several types; `text` is the database's word for a text."""
    return SourceError(
        f"column {name} holds {' and '.join(kinds)}, which do not fit into a column of one type ({error}): let the "
        f"query convert it, such as CAST({name} AS {text}) AS {name}"
    )


def _made(arrow: Any, kind: Any, length: int, valid: _Validity, *parts: npt.NDArray[Any]) -> Any:
    """An Arrow array on this memory."""
    bits = valid.done()
    buffers = [None if bits is None else arrow.py_buffer(bits), *map(arrow.py_buffer, parts)]
    return arrow.Array.from_buffers(kind, length, buffers)


def _narrowed(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Integers in as few bytes as possible."""
    least, most = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    for kind in NARROW if values.dtype.kind == "i" else NARROW_UNSIGNED:
        if np.iinfo(kind).min <= least and most <= np.iinfo(kind).max:
            return values.astype(kind, copy=False)
    return values
