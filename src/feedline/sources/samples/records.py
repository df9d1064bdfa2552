"""Samples as bytes, and batches gathered from such bytes.

Takes: a sample. Gives: its record; from a record the sample again; from several records the batch that default
collation would make of their samples.
Promises: a sample that was read is the reader's own: its arrays are writable, and share no memory with the record.
Exact types are kept. Samples made of tuples, lists and dicts of arrays and numbers need no pickle, and can be gathered.
Not its job: where records are (pack_folder).

A record is the length of its form (4 bytes), the form (a pickle: the tree, and type and shape of each leaf), and the
leaves' bytes one after the other, each at a multiple of 16.
"""

from __future__ import annotations

import pickle
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from feedline.datasets import Empty
from feedline.errors import OptionTypeError

LENGTH = struct.Struct("<I")
STEP = 16
SMALL = 4_096
"""Leaves below this many bytes are joined and copied once."""
_NUMBERS = {int: "<i8", float: "<f8", bool: "|b1"}


class Leaf(NamedTuple):
    """One leaf of a form: what it was ("array", "scalar" of NumPy, or a type of Python) and its bytes."""

    kind: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    size: int


class Form(NamedTuple):
    """What is the same in many samples."""

    tree: Any
    leaves: tuple[Leaf, ...]
    length: int


def pack(sample: Any) -> bytes:
    """The record of a sample.

    >>> sample = {"x": np.arange(3), "label": 7}
    >>> unpack(memoryview(pack(sample)))
    {'x': array([0, 1, 2]), 'label': 7}
    """
    arrays: list[Any] = []
    leaves: list[tuple[str, str, tuple[int, ...]]] = []
    tree = _flat(sample, arrays, leaves)
    if tree is None:
        try:
            whole = pickle.dumps(sample, 5)
        except Exception as error:
            raise OptionTypeError(
                f"a sample ({type(sample).__name__}) cannot be kept, because it cannot be pickled: {error}"
            ) from error
        return LENGTH.pack(0) + whole
    form = pickle.dumps((tree, leaves))
    parts = [LENGTH.pack(len(form)), form]
    at = len(form) + LENGTH.size
    for array in arrays:
        parts += [bytes(-at % STEP), array]
        at += -at % STEP + len(array)
    return b"".join(parts)


def _flat(value: Any, arrays: list[Any], leaves: list[tuple[str, str, tuple[int, ...]]]) -> Any:
    """The tree with leaves replaced by their numbers; None if it has anything else."""
    kind = type(value)
    if kind in (tuple, list):
        inner = [_flat(each, arrays, leaves) for each in value]
        return None if None in inner else (kind.__name__, inner)
    if kind is dict:
        if not all(type(name) is str for name in value):
            return None
        inner = [_flat(each, arrays, leaves) for each in value.values()]
        return None if None in inner else ("dict", list(value), inner)
    if kind is np.ndarray:
        dtype = value.dtype
        if dtype.hasobject or dtype.names or dtype.metadata or np.dtype(dtype.str) != dtype:  # or not NumPy's own
            return None
        array, what = np.ascontiguousarray(value).reshape(value.shape), "array"
    elif isinstance(value, np.generic) and kind.__module__ == "numpy" and not isinstance(value, np.void | np.object_):
        array, what = np.asarray(value), "scalar"
    elif kind in _NUMBERS and (kind is not int or -(1 << 63) <= value < 1 << 63):
        array, what = np.array(value, _NUMBERS[kind]), kind.__name__
    else:
        return None
    arrays.append(array.tobytes())
    leaves.append((what, array.dtype.str, array.shape))
    return ("leaf", len(leaves) - 1)


@lru_cache(256)
def _form(pickled: bytes) -> Form:
    tree, leaves = pickle.loads(pickled)
    at = len(pickled) + LENGTH.size
    found = []
    for kind, dtype, shape in leaves:
        at += -at % STEP
        size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
        found.append(Leaf(kind, dtype, shape, at, size))
        at += size
    return Form(tree, tuple(found), at)


def form_of(record: memoryview) -> Form | None:
    """The form of a record; None if it is a pickle."""
    (length,) = LENGTH.unpack_from(record)
    return _form(bytes(record[LENGTH.size : LENGTH.size + length])) if length else None


def unpack(record: memoryview) -> Any:
    """The sample of a record, in memory of its own."""
    form = form_of(record)
    if form is None:
        return pickle.loads(record[LENGTH.size :])
    return _tree(form.tree, [_own(record, leaf) for leaf in form.leaves])


def _own(record: memoryview, leaf: Leaf) -> Any:
    array = (
        np.frombuffer(record, np.uint8, leaf.size, leaf.offset).view(leaf.dtype)
        if leaf.size
        else np.empty(0, leaf.dtype)
    )
    array = array.reshape(leaf.shape)
    if leaf.kind == "array":
        return array.copy()
    return array[()] if leaf.kind == "scalar" else array.item()


def gather(records: list[memoryview], empty: Empty) -> Any:
    """The batch of these records, written straight into memory from `empty`; NotImplemented if they differ in form."""
    form = form_of(records[0])
    if form is None or not _is_known(form):
        return NotImplemented
    (length,) = LENGTH.unpack_from(records[0])
    head = bytes(records[0][: LENGTH.size + length])
    if any(record[: len(head)].tobytes() != head for record in records):  # views are compared byte by byte
        return NotImplemented
    columns = []
    for leaf in form.leaves:
        dtype = np.dtype(leaf.dtype)
        column = empty((len(records), *leaf.shape), dtype)
        if leaf.size:
            start, end = leaf.offset, leaf.offset + leaf.size
            if leaf.size < SMALL:
                joined = b"".join([record[start:end] for record in records])
                column.reshape(-1)[:] = np.frombuffer(joined, dtype)
            else:
                rows = memoryview(column.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
                for number, record in enumerate(records):
                    rows[number * leaf.size : (number + 1) * leaf.size] = record[start:end]
        columns.append(column)
    return _tree(form.tree, columns)


def _is_known(form: Form) -> bool:
    """Is it certain what default collation makes of it? Texts and dates, say, are left to it."""
    return all(np.dtype(leaf.dtype).kind in "biufc" for leaf in form.leaves) and bool(form.leaves)


def _tree(tree: Any, leaves: list[Any]) -> Any:
    if tree[0] == "leaf":
        return leaves[tree[1]]
    inner = [_tree(each, leaves) for each in tree[-1]]
    if tree[0] == "dict":
        return dict(zip(tree[1], inner, strict=True))
    return tuple(inner) if tree[0] == "tuple" else inner
