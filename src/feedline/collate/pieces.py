"""Pieces of a batch, each collated separately, are joined again.

Takes: samples of one piece; the collated pieces of a batch in order, and `empty`, which gives memory for a leaf.
Gives: the batch, bit for bit the same as if all its samples had been collated at once.
Promises: if that is not certain (pieces differ in dtype, shape or structure; arrays of several types are at one place;
containers are of a class that may hold more than its items), there is a `Misfit` and no batch.
Not its job: who makes a piece, and what happens to a batch that cannot be joined (engine.batch_splitting).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from feedline.collate.default import Collation, registrations
from feedline.datasets import Array, Empty


class Misfit(Exception):
    """It is not certain that these pieces make the batch that one worker would have made."""


Whole = Callable[[Sequence[tuple[int, int]]], memoryview | None]
"""Takes the address and size of each part of a leaf; returns the whole leaf if the parts are adjacent in memory."""


def never_whole(parts: Sequence[tuple[int, int]]) -> None:
    """For pieces that were each made somewhere else."""


class Pieces(NamedTuple):
    """How a framework's batches are made in pieces; importable functions, because they travel to workers by name."""

    collate: Callable[[Sequence[Any], Empty, Sequence[Any] | None], Any]
    """Like `Dialect.collate`; raises a Misfit if the piece alone does not show how the whole batch would look."""
    join: Callable[[Sequence[Any], Empty, Whole], Any]
    """The batch made from those pieces, or a Misfit."""
    are_plain: Callable[[], bool]
    """Is collation the framework's own, without a rule from the user?"""


def collate_piece(samples: Sequence[Any], empty: Empty, names: Sequence[Any] | None) -> Any:
    """Some samples of a batch, collated."""
    return _OfOneType(empty, names).tree(samples, "")


def join(pieces: Sequence[Any], empty: Empty = np.empty, whole: Whole = never_whole) -> Any:
    """The batch that was made in these pieces.

    >>> join([{"x": np.array([1, 2]), "name": ["a", "b"]}, {"x": np.array([3]), "name": ["c"]}])
    {'x': array([1, 2, 3]), 'name': ['a', 'b', 'c']}
    """
    return Joining(empty, whole).tree(pieces)


def are_plain() -> bool:
    """Has no type been registered with default collation? Pieces of such types cannot be joined."""
    return not registrations()


class _OfOneType(Collation):
    def common_dtype(self, values: Sequence[Array], path: str) -> NoReturn:
        # NumPy's common type of three types may differ from joining two of them first, and then the third.
        raise Misfit(f"arrays of several types at {path!r}")


class Joining:
    """One batch being joined. Every method takes what the pieces have at one place of their trees."""

    def __init__(self, empty: Empty, whole: Whole) -> None:
        self.empty = empty
        self.whole = whole

    def tree(self, parts: Sequence[Any]) -> Any:
        first = parts[0]
        kind = type(first)
        _check(all(type(part) is kind for part in parts), "several types")
        if kind is dict:
            _check(all(part.keys() == first.keys() for part in parts), "several sets of keys")
            return {key: self.tree([part[key] for part in parts]) for key in first}
        if kind is list or kind is tuple:
            return kind(self.sequence(parts))
        if isinstance(first, tuple) and hasattr(first, "_fields"):
            return kind(*self.columns(parts))
        if dataclasses.is_dataclass(first):
            return self.dataclass(kind, parts)
        return self.leaf(parts)

    def sequence(self, parts: Sequence[Sequence[Any]]) -> list[Any]:
        """Fields, each collated; or the texts of one field, which are not collated."""
        if all(part and isinstance(part[0], (str, bytes)) for part in parts):
            return [text for part in parts for text in part]
        return self.columns(parts)

    def columns(self, parts: Sequence[Sequence[Any]]) -> list[Any]:
        _check(all(len(part) == len(parts[0]) for part in parts), "several lengths")
        return [self.tree(column) for column in zip(*parts, strict=True)]

    def dataclass(self, kind: type, parts: Sequence[Any]) -> Any:
        batch: Any = object.__new__(kind)
        names = [vars(part).keys() if hasattr(part, "__dict__") else () for part in parts]
        _check(all(each == names[0] for each in names), "several sets of attributes")
        for field in dataclasses.fields(kind):
            there = [hasattr(part, field.name) for part in parts]
            _check(all(there) or not any(there), "several sets of fields")
            if all(there):
                column = [getattr(part, field.name) for part in parts]
                object.__setattr__(batch, field.name, self.tree(column))
        return batch

    def leaf(self, parts: Sequence[Any]) -> Any:
        first = parts[0]
        _check(type(first) is np.ndarray and first.ndim > 0, "no array")
        same = all(part.dtype == first.dtype and part.shape[1:] == first.shape[1:] for part in parts)
        _check(same and not first.dtype.hasobject, "several types or shapes")
        _check(all(part.flags.c_contiguous for part in parts), "not in order")
        shape = (sum(map(len, parts)), *first.shape[1:])
        if (raw := self.whole([(part.ctypes.data, part.nbytes) for part in parts])) is not None:
            return np.frombuffer(raw, np.uint8).view(first.dtype).reshape(shape)
        out = self.empty(shape, first.dtype)
        np.concatenate(parts, out=out)
        return out


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise Misfit(otherwise)


NUMPY = Pieces(collate_piece, join, are_plain)
