"""Arguments with one value per sample (labels, weights, lengths, keys), as a NumPy array.

Takes: an argument's name and an array, a tensor, a column of a table, or a list. Gives: `array_of`; `as_numbers`, for
an array of Python's objects.
Promises: a masked value is None, never the value under the mask; integers stay exact. An argument that cannot be made
an array is an error that names it.
Not its job: which values are valid (labels, stable_hash; order/weighted, order/buckets).
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from feedline.datasets.reading import Array
from feedline.errors import OptionTypeError


def array_of(name: str, values: Any) -> Array:
    """The values as an array, which may share memory with the argument.

    >>> array_of("labels", np.ma.array([1, 2, 3], mask=[False, True, False]))
    array([1, None, 3], dtype=object)
    """
    if isinstance(values, np.ma.MaskedArray):
        if not np.ma.is_masked(values):
            return np.asarray(values.data)
        unmasked = values.data.astype(object)
        unmasked[np.ma.getmaskarray(values)] = None
        return unmasked
    try:
        return np.asarray(values)
    except ValueError as error:
        nested = (
            f"{name}[{at}] is a {type(each).__name__}" for at, each in enumerate(values) if hasattr(each, "__len__")
        )
        raise OptionTypeError(f"{name} must be one value for each sample, but {next(nested, error)}") from error
    except (TypeError, RuntimeError) as error:
        # NumPy has no bfloat16, and needs a tensor in main memory without gradient.
        remedy = f"; pass {name}.detach().cpu().float()" if hasattr(values, "detach") else ""
        raise OptionTypeError(f"{name} must be one value for each sample, as an array: {error}{remedy}") from error


def as_numbers(array: Array) -> Array:
    """Python numbers (a nullable column has them) as NumPy's; any other array unchanged.

    >>> as_numbers(np.array([1, 2], object)), as_numbers(np.array([1, None], object))
    (array([1, 2]), array([1, None], dtype=object))
    """
    if array.dtype.kind != "O":
        return array
    kinds = {type(value) for value in array.flat}
    if not all(issubclass(kind, Real) and not issubclass(kind, bool) for kind in kinds):
        return array
    if not all(issubclass(kind, Integral) for kind in kinds):
        return array.astype(np.float64)
    try:
        return array.astype(np.int64)
    except OverflowError:  # as floats they would no longer be exact
        return array
