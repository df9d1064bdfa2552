"""Labels of any kind as small integers.

Takes: one label per sample: an array of numbers or strings, a tensor, or a list of anything hashable.
Gives: for each sample the number of its class, and the classes. Promises: linear time for integers that are close
together, as labels mostly are; all NaN are one class, and so are all masked values.
Not its job: what is done with classes (splitting; order/weighted, order/stratified).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np

from feedline.datasets.per_sample import array_of
from feedline.datasets.reading import Array, IntArray
from feedline.errors import OptionError, OptionTypeError

_MAY_BE_NAN = (float, complex, np.inexact, Decimal)


class Classes(NamedTuple):
    """The class of each sample, by number, and the name of each class."""

    codes: IntArray
    names: list[Any]

    @property
    def sizes(self) -> IntArray:
        """How many samples each class has."""
        return np.bincount(self.codes, minlength=len(self.names))


def classes_of(labels: Any, name: str = "labels") -> Classes:
    """Number the classes: in ascending order for an array, else in order of appearance. `name` is the argument's.

    >>> classes_of(["cat", "dog", "cat"])
    Classes(codes=array([0, 1, 0]), names=['cat', 'dog'])
    """
    array = _as_array(labels, name)
    if array is None:
        known = labels if hasattr(labels, "__len__") else list(labels)
        return _hashed(known, len(known), name)
    if array.ndim != 1:
        raise OptionError(
            f"{name} must be one-dimensional, one for each sample; got shape {array.shape}"
            + (f"; for one-hot rows, pass {name}.argmax(1)" if array.ndim == 2 else "")
        )
    if array.dtype.kind == "O":
        return _hashed(array.tolist(), len(array), name)
    if array.dtype.kind in "biu" and array.size:
        lowest, highest = int(array.min()), int(array.max())
        if highest - lowest <= 4 * array.size + 1024:
            return _tabled(array, lowest, highest)
    names, codes = np.unique(array, return_inverse=True)
    return Classes(codes.astype(np.int64, copy=False), names.tolist())


def _as_array(labels: Any, name: str) -> Array | None:
    """The labels as an array; None if NumPy would change them: in a list of 1 and "1" both would become strings."""
    if hasattr(labels, "__array__"):
        return array_of(name, labels)
    if isinstance(labels, (str, bytes)) or not hasattr(labels, "__iter__"):
        raise OptionTypeError(f"{name} must be a sequence with one label for each sample; got {labels!r}")
    return np.array(labels) if isinstance(labels, list) and set(map(type, labels)) == {int} else None


def _tabled(array: Array, lowest: int, highest: int) -> Classes:
    # Unsigned numbers may not fit into an int64 before the lowest is subtracted; signed ones may overflow their type.
    near = array - array.dtype.type(lowest) if array.dtype.kind == "u" else array.astype(np.int64) - lowest
    near = near.astype(np.int64, copy=False)
    place_of = np.full(highest - lowest + 1, -1)
    place_of[near] = np.arange(len(near))
    present = place_of >= 0
    numbers = np.cumsum(present) - 1
    return Classes(numbers[near], array[place_of[present]].tolist())


def _hashed(labels: Iterable[Any], count: int, name: str) -> Classes:
    numbers: dict[Any, int] = {}
    codes = np.empty(count, np.int64)
    for place, label in enumerate(labels):
        try:
            # A list of tensors means their values: as keys, each tensor would be a class by itself.
            key = label.item() if hasattr(label, "__array__") and hasattr(label, "item") else label
            if isinstance(key, _MAY_BE_NAN) and key != key:
                key = math.nan  # no two NaN are equal, but a dict finds the same object
            codes[place] = numbers.setdefault(key, len(numbers))
        except (TypeError, ValueError, RuntimeError, ArithmeticError) as error:
            raise OptionTypeError(
                f"{name} must be numbers, strings or anything hashable, but {name}[{place}] is a "
                f"{type(label).__name__} ({error})"
            ) from error
    return Classes(codes, list(numbers))
