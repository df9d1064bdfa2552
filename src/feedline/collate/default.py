"""Samples become a batch, which is written straight into the given memory.

Takes: the samples of a task, and `empty`, which gives memory for a leaf. Gives: one tree of the same structure as a
sample, whose leaves are stacked along a new first axis.
Promises: torch's rules — arrays and numbers become arrays, strings and bytes lists, mappings and sequences keep
their types if those can be rebuilt — and an error that names field, sample and both shapes. The batch never
shares memory with a sample.
Not its job: where the memory is (arena), reading samples (fetch), padding and other ways to collate (padding,
packing_rows, …).
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from feedline.datasets import Array, Empty
from feedline.errors import CollateError, CollateTypeError
from feedline.errors.counting import counted

LeafCollate = Callable[[list[Any], Empty], Any]
"""Makes a batch from values of one registered type; large arrays should come from the given `Empty`."""

_registered: dict[type, LeafCollate] = {}
_PLAIN: frozenset[type] = frozenset((list, tuple))
_DTYPES: dict[type, Any] = {kind: np.dtype(kind) for kind in (int, float, bool)}


def register_collate(kind: type, collate: LeafCollate) -> None:
    """Teach default collation another type: `collate(values, empty)` gets all values at one place of a batch.

    Worker processes learn it too. The function must be importable, or a closure that cloudpickle can send.

    >>> import numpy as np
    >>> from fractions import Fraction
    >>> register_collate(Fraction, lambda values, empty: np.array([float(v) for v in values]))
    >>> default_collate([Fraction(1, 2), Fraction(1, 4)])
    array([0.5 , 0.25])
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_collate takes a class first, got {kind!r}")
    if not callable(collate):
        raise TypeError(f"register_collate takes a function second, got {collate!r}")
    _registered[kind] = collate


def registrations() -> dict[type, LeafCollate]:
    """What was registered with `register_collate`, to be sent to workers."""
    return dict(_registered)


def default_collate(samples: Sequence[Any], empty: Empty = np.empty, names: Sequence[Any] | None = None) -> Any:
    """Stack samples into a batch, as torch's default_collate does, with NumPy arrays.

    `empty` gives memory for large leaves (the loader passes its slots); `names` are the samples' dataset indices
    for error messages.

    >>> default_collate([{"x": [1.0, 2.0], "name": "a"}, {"x": [3.0, 4.0], "name": "b"}])
    {'x': [array([1., 3.]), array([2., 4.])], 'name': ['a', 'b']}
    """
    if len(samples) == 0:
        raise CollateError("there are no samples to make a batch of")
    return Collation(empty, names).tree(samples, "")


class Collation:
    """One batch being made: where its memory comes from, and the names of its samples.

    Every method takes the values at one place of the samples' trees, and the path to that place.
    """

    def __init__(self, empty: Empty, names: Sequence[Any] | None) -> None:
        self.empty = empty
        self.names = names

    def tree(self, values: Sequence[Any], path: str) -> Any:
        first = values[0]
        kind = type(first)
        special = _registration(kind) if _registered else None
        if special is not None:
            return special(list(values), self.empty)
        if kind is np.ndarray:
            return self.stack(values, path)
        if kind is float or kind is int or kind is bool:
            return self.numbers(values, path)
        if kind is dict:
            return self.dicts(values, path)
        if isinstance(first, (str, bytes)):
            return self.texts(values, path)
        if isinstance(first, (np.ndarray, np.generic)):
            return self.stack([self.array(value, i, path) for i, value in enumerate(values)], path)
        if isinstance(first, (bool, int, float, complex)):
            return self.numbers(values, path)
        return self.container(values, path)

    def container(self, values: Sequence[Any], path: str) -> Any:
        first = values[0]
        if isinstance(first, Mapping):
            return self.mappings(values, path)
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return type(first)(*self.columns(values, [f"{path}.{name}" for name in first._fields], path))
        if dataclasses.is_dataclass(first) and not isinstance(first, type):
            return self.dataclasses(values, path)
        if isinstance(first, Sequence):
            columns = self.columns(values, [f"{path}[{i}]" for i in range(len(first))], path)
            return like_sequence(first, columns)
        raise self.type_error(0, first, path)

    def stack(self, values: Sequence[Array], path: str) -> Array:
        shape, dtype = values[0].shape, values[0].dtype
        mixed = False
        for position, value in enumerate(values):
            if type(value) is not np.ndarray:
                return self.stack([self.array(value, i, path) for i, value in enumerate(values)], path)
            if value.shape != shape:
                raise self.shape_error(position, shape, value.shape, path)
            mixed = mixed or value.dtype != dtype
        if mixed:
            dtype = self.common_dtype(values, path)
        if dtype.hasobject:
            raise CollateTypeError(
                f"{field_name(path)} is an array of Python objects, which cannot be batched. "
                "Convert it to numbers in __getitem__, or give a collate_fn."
            )
        return stacked(values, dtype, self.empty)

    def common_dtype(self, values: Sequence[Array], path: str) -> np.dtype[Any]:
        dtypes = list(dict.fromkeys(value.dtype for value in values))
        with contextlib.suppress(TypeError):  # NumPy's error if there is no common type
            if all(_both_text_or_neither(dtypes[0], dtype) for dtype in dtypes):
                return np.result_type(*dtypes)
        odd = next((i for i, value in enumerate(values) if not _fit(dtypes[0], value.dtype)), len(values) - 1)
        raise CollateTypeError(
            f"samples of one batch differ in type: {field_name(path)} of {self.sample(odd)} is {values[odd].dtype}, "
            f"but that of {self.sample(0)} is {dtypes[0]}. Make them equal in __getitem__ or give a collate_fn."
        )

    def array(self, value: Any, position: int, path: str) -> Array:
        if isinstance(value, np.ma.MaskedArray):
            raise self.type_error(position, value, path)  # np.asarray would drop the mask silently
        if isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)):
            return np.asarray(value)
        raise self.type_error(position, value, path)

    def numbers(self, values: Sequence[Any], path: str) -> Array:
        if len(set(map(type, values))) == 1:
            batch = np.array(values)
            if batch.dtype is _DTYPES.get(type(values[0])):  # else there are large integers among them
                return batch
        if not all(isinstance(value, (int, float, complex)) for value in values):
            return self.stack([self.array(value, i, path) for i, value in enumerate(values)], path)
        batch = np.array(values)
        if batch.dtype.kind == "f" and all(isinstance(value, int) for value in values):
            batch = _large_integers(values)  # NumPy would make inexact floats of them
        if batch.dtype.hasobject:
            raise CollateTypeError(f"{field_name(path)} holds integers that do not all fit into one type of 64 bits")
        return batch

    def texts(self, values: Sequence[Any], path: str) -> list[Any]:
        for position, value in enumerate(values):
            if not isinstance(value, (str, bytes)):
                raise self.type_error(position, value, path)
        return list(values)

    def mappings(self, values: Sequence[Mapping[Any, Any]], path: str) -> Any:
        first = values[0]
        for position, value in enumerate(values):
            if not isinstance(value, Mapping):
                raise self.type_error(position, value, path)
            missing = next((key for key in first if key not in value), None)
            if missing is not None:
                raise CollateError(
                    f"{field_name(path)} of {self.sample(position)} has no key {missing!r}, which {self.sample(0)} has"
                )
        batch = {key: self.tree([value[key] for value in values], f"{path}.{key}") for key in first}
        return like_mapping(first, batch)

    def dicts(self, values: Sequence[dict[Any, Any]], path: str) -> Any:
        """The same as `mappings`, in half the time."""
        columns: dict[Any, list[Any]] | None = None
        if set(map(type, values)) == {dict}:
            with contextlib.suppress(KeyError):  # a key is missing: `mappings` says which
                columns = {key: [value[key] for value in values] for key in values[0]}
        if columns is None:
            return self.mappings(values, path)
        return {key: self.tree(column, f"{path}.{key}") for key, column in columns.items()}

    def columns(self, values: Sequence[Sequence[Any]], paths: list[str], path: str) -> list[Any]:
        is_plain = _PLAIN.issuperset(map(type, values)) and set(map(len, values)) == {len(paths)}
        for position, value in () if is_plain else enumerate(values):
            if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
                raise self.type_error(position, value, path)
            if len(value) != len(paths):
                raise CollateError(
                    f"samples of one batch differ in length: {field_name(path)} of {self.sample(position)} has "
                    f"{counted(len(value), 'element')}, but that of {self.sample(0)} has {len(paths)}"
                )
        return [self.tree(column, inner) for column, inner in zip(zip(*values, strict=True), paths, strict=True)]

    def dataclasses(self, values: Sequence[Any], path: str) -> Any:
        kind = type(values[0])
        for position, value in enumerate(values):
            if type(value) is not kind:
                raise self.type_error(position, value, path)
        # Not a copy of the first sample, which may hold more than its fields: a cached property would be that sample's.
        batch = object.__new__(kind)
        for field in dataclasses.fields(kind):
            if hasattr(values[0], field.name):
                column = [getattr(value, field.name) for value in values]
                # works for frozen classes, and does not run __post_init__ on arrays
                object.__setattr__(batch, field.name, self.tree(column, f"{path}.{field.name}"))
        return batch

    def sample(self, position: int) -> str:
        return sample_name(self.names, position)

    def shape_error(self, position: int, wanted: tuple[int, ...], got: tuple[int, ...], path: str) -> CollateError:
        return CollateError(
            f"samples of one batch differ in shape: {field_name(path)} of {self.sample(position)} has shape {got}, but "
            f"that of {self.sample(0)} has shape {wanted}. Make them equal in __getitem__ (crop, resize), pad them "
            "(collate=pad() or, for one field of many, collate={'field': pad()}) or give a collate_fn."
        )

    def type_error(self, position: int, value: Any, path: str) -> CollateTypeError:
        if value is None:
            what, remedy = (
                "None",
                "Return a value in every case, leave such samples out (drop_invalid), or give a collate_fn.",
            )
        elif isinstance(value, np.ma.MaskedArray):
            what, remedy = "a masked array", "Return its .filled() data, or data and mask, or give a collate_fn."
        else:
            what = f"a {type(value).__module__}.{type(value).__qualname__}"
            remedy = "Return arrays, numbers, strings or containers of them, use register_collate or give a collate_fn."
        return CollateTypeError(
            f"{field_name(path)} of {self.sample(position)} is {what} and cannot be batched here. {remedy}"
        )


def stacked(values: Sequence[Array], dtype: np.dtype[Any], empty: Empty) -> Array:
    """Arrays of the same shape as one array."""
    shape = values[0].shape
    out = empty((len(values), *shape), dtype)
    if shape:
        # the rows end to end are the stack; np.stack would first wrap each of them in another view
        np.concatenate(values, out=out.reshape(len(values) * shape[0], *shape[1:]))
    else:
        out[...] = list(values)  # a tuple would be taken for one record of a structured array
    return out


def field_name(path: str) -> str:
    """The name of a place in the samples, for messages."""
    return f"field {path.lstrip('.')!r}" if path else "the value"


def sample_name(names: Sequence[Any] | None, position: int) -> str:
    """The name of a sample of a batch, for messages."""
    if names is None:
        return f"sample {position} of the batch"
    return f"dataset index {names[position]!r} (sample {position} of the batch)"


def like_mapping(first: Mapping[Any, Any], batch: dict[Any, Any]) -> Any:
    """The batch as a mapping of the first sample's type, or as a dict if that type cannot be rebuilt."""
    if type(first) is dict:
        return batch
    with contextlib.suppress(Exception):  # a user's class may refuse in any way
        if not _copies_apart(first):
            again = type(first)(batch)  # type: ignore[call-arg]
        else:  # a copy keeps what else the object holds, such as a default factory
            again = copy.copy(first)
            for key, value in batch.items():
                again[key] = value  # type: ignore[index]
        if list(again) == list(batch):
            return again
    return batch


def like_sequence(first: Sequence[Any], columns: list[Any]) -> Any:
    """The columns as a sequence of the first sample's type, or as a list if that type cannot be rebuilt."""
    if type(first) is tuple:
        return tuple(columns)
    if type(first) is list:
        return columns
    with contextlib.suppress(Exception):
        if not _copies_apart(first):
            again = type(first)(columns)  # type: ignore[call-arg]
        else:
            again = copy.copy(first)
            for i, column in enumerate(columns):
                again[i] = column  # type: ignore[index]
        if len(again) == len(columns):
            return again
    return columns


def _copies_apart(container: Any) -> bool:
    """Can a copy be changed without changing the original? Copies of other classes share their inner objects."""
    changes = isinstance(container, (MutableMapping, MutableSequence))
    return changes and (isinstance(container, (dict, list)) or hasattr(type(container), "__copy__"))


def _large_integers(values: Sequence[int]) -> Array:
    try:
        return np.array(values, np.uint64)
    except OverflowError:
        return np.array(values, object)


def _both_text_or_neither(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    # NumPy would convert numbers to text to make both fit.
    return one.kind == other.kind or (one.kind not in "SU" and other.kind not in "SU")


def _fit(one: np.dtype[Any], other: np.dtype[Any]) -> bool:
    try:
        np.promote_types(one, other)
    except TypeError:
        return False
    return _both_text_or_neither(one, other)


def _registration(kind: type) -> LeafCollate | None:
    for parent in kind.__mro__:
        if parent in _registered:
            return _registered[parent]
    return None
