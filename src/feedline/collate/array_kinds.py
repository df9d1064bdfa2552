"""The values of one field as arrays of one dtype, and NumPy's arrays as collators see them.

Takes: the values in the samples: arrays, or sequences of numbers. Gives: NumPy arrays on the same bytes.
Promises: dtypes mix as in default collation, but an empty array has no influence on others: torch.tensor([]) and
np.array([]) are floats, and would turn a batch of ids into floats. A value that is no array is an error that names
field and dataset index.
Not its job: another framework's arrays (its front has its own `Arrays`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Complex, Integral, Real
from typing import Any

import numpy as np

from feedline.collate.default import Collation, field_name
from feedline.collate.making import Making
from feedline.datasets import Array
from feedline.errors import CollateError, CollateTypeError

KINDS = "biufcmM"
"""NumPy's letters for the dtypes that can be padded and packed: numbers, and dates."""


class NumpyArrays:
    """NumPy's own arrays, which need little work."""

    refusal = "Take this collator, and the loader, from feedline.torch."

    def stack(self, values: Sequence[Any], making: Making, path: str) -> Any:
        return Collation(making.empty, making.names).tree(values, path)

    def carry(self, value: Any) -> tuple[Array, Any] | None:
        array = value if type(value) is np.ndarray else plain(value)
        if array is None or (dtype := array.dtype).kind not in KINDS:
            return None
        return array, None if is_untyped(array, value) else dtype

    def common(self, dtypes: Sequence[Any]) -> Any:
        return np.result_type(*dtypes)

    def cast(self, array: Array, was: Any, dtype: Any) -> Array:
        return array.astype(dtype)

    def element(self, value: Any, dtype: Any) -> Any:
        kind = dtype.kind
        if kind in "mM":
            if not isinstance(value, dtype.type):
                raise ValueError
        elif kind in "iu":
            limits = np.iinfo(dtype)
            check_fits(value, "i", limits.min, limits.max)
        else:
            check_fits(value, kind, 0, 1 if kind == "b" else float(np.finfo(dtype).max))
        return np.array(value, dtype)[()]

    def wrap(self, array: Array, dtype: Any = None) -> Any:
        return array


NUMPY = NumpyArrays()


def check_fits(value: Any, kind: str, least: float, most: float) -> None:
    """ValueError if a bool ("b"), an integer ("i"), float ("f") or complex number ("c") cannot have that value."""
    if isinstance(value, np.generic):
        value = value.item()  # a Python number can be compared with numbers that its NumPy type cannot hold
    if kind == "c":
        fits = isinstance(value, Complex) and all(_is_within(part, most) for part in (value.real, value.imag))
    elif kind == "f":
        fits = isinstance(value, Real) and _is_within(value, most)
    else:  # 0.0 is 0, and 0.5 is not
        whole = isinstance(value, Integral) or (isinstance(value, Real) and float(value).is_integer())
        fits = whole and least <= value <= most
    if not fits:
        raise ValueError(value)


def _is_within(value: Any, most: float) -> bool:
    return abs(value) <= most or not math.isfinite(value)


def plain(value: Any) -> Array | None:
    """The array of values that surely have one in NumPy: arrays, numbers, sequences of numbers; else None."""
    if type(value) is np.ndarray:
        return value
    if isinstance(value, np.ma.MaskedArray):
        return None  # its mask would be lost
    if isinstance(value, (np.ndarray, np.generic, bool, int, float, complex)):
        return np.asarray(value)
    if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
        return None
    try:
        return np.asarray(value)
    except ValueError:  # a list of lists of different lengths
        return None


def is_untyped(array: Array, value: Any) -> bool:
    """Is it the array of an empty Python sequence? Such a sequence has no dtype."""
    return array.size == 0 and not isinstance(value, np.ndarray)


def uniform(values: Sequence[Any], filler: Any, making: Making, path: str) -> tuple[list[Array], Any, Any]:
    """The values as NumPy arrays, their dtype in the framework's terms, and the filler in that dtype.

    >>> arrays, dtype, filler = uniform([np.int8([1, 2]), [300], []], -1, Making(NUMPY), "")
    >>> arrays, dtype, int(filler)
    ([array([1, 2]), array([300]), array([], dtype=int64)], dtype('int64'), -1)
    """
    carried = [making.arrays.carry(value) for value in values]
    arrays, dtypes = [], []
    for position, pair in enumerate(carried):
        if pair is None:
            raise _no_array(values[position], making, path, position)
        arrays.append(pair[0])
        dtypes.append(pair[1])
    kinds = set(dtypes)
    alike = kinds == {dtypes[0]} != {None}
    dtype = dtypes[0] if alike else _dtype_of_all(arrays, dtypes, filler, making, path)
    for position, was in enumerate(dtypes if len(kinds) > 1 else ()):
        if was != dtype and arrays[position].size:
            arrays[position] = making.arrays.cast(arrays[position], was, dtype)
    try:
        element = making.arrays.element(filler, dtype)
    except ValueError:
        raise CollateError(
            f"{field_name(path)} is of dtype {dtype}, which cannot hold the padding value {filler!r}. Give another "
            "value, or convert the field in __getitem__."
        ) from None
    if not alike or len({array.ndim for array in arrays}) > 1:
        _fit_nothing(arrays, np.asarray(element).dtype)
    return arrays, dtype, element


def _dtype_of_all(arrays: list[Array], dtypes: list[Any], filler: Any, making: Making, path: str) -> Any:
    of_some = [dtype for array, dtype in zip(arrays, dtypes, strict=True) if array.size]
    known = list(dict.fromkeys(dtype for dtype in of_some or dtypes if dtype is not None))
    if len(known) == 1:
        return known[0]
    if not known:
        carried = making.arrays.carry(filler)
        assert carried is not None
        return carried[1]
    try:
        return making.arrays.common(known)
    except TypeError:
        odd = dtypes.index(known[-1])
        raise CollateTypeError(
            f"samples of one batch differ in type: {making.where(path, odd)} is {known[-1]}, but in other samples it "
            f"is {known[0]}, and no dtype can hold both. Make them equal in __getitem__."
        ) from None


def _fit_nothing(arrays: list[Array], dtype: Any) -> None:
    """Give empty arrays the dtype of the others, and empty lists also their number of dimensions."""
    rest = next((array.shape[1:] for array in arrays if array.shape != (0,)), ())
    for position, array in enumerate(arrays):
        if not array.size:
            arrays[position] = np.empty((0, *rest) if array.shape == (0,) else array.shape, dtype)


def _no_array(value: Any, making: Making, path: str, position: int) -> CollateTypeError:
    kind = type(value)
    what = "None" if value is None else f"a {kind.__module__}.{kind.__qualname__}"
    remedy = "Return an array or a list of numbers there, or choose another way to collate it."
    if isinstance(value, np.ma.MaskedArray):
        remedy = "Return its .filled() data, or data and mask as two fields."
    elif isinstance(value, np.ndarray):
        what = f"an array of {value.dtype}"
    elif isinstance(value, (dict, tuple)):
        remedy = "Say which of its fields is meant, by name or position: collate={'name': …} or collate=(…, …)."
    elif kind.__module__.partition(".")[0] == "torch":
        remedy = making.arrays.refusal
    elif value is None:
        remedy = "Return a value in every case, or leave such samples out: collate=drop_invalid(…)."
    return CollateTypeError(f"{making.where(path, position)} is {what}, not an array of numbers. {remedy}")
