"""The length of every sample of a dataset: from a column, or by reading each sample once.

Takes: a dataset and, if its samples have several fields, the field that counts. Gives: an int64 array.
Promises: a column is not read sample by sample; a pass over the data shows its progress on a terminal.
Not its job: what the lengths are for (buckets).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping, Sized
from numbers import Integral
from typing import Any

import numpy as np

from feedline.datasets import Array, ArrayDataset, IntArray
from feedline.errors import OptionError, OptionTypeError
from feedline.observe.terminal import show_line, takes_escapes

SECONDS_BETWEEN = 0.2
"""Seconds between two updates of the progress line: as often as a person can read it."""


def lengths_of(dataset: Any, key: Any = None) -> IntArray:
    """The length of each sample, or of its field `key` (a name, or a place in a tuple).

    If samples have a single field, that field is meant. A field that is an integer is taken as the length itself.
    An `ArrayDataset` (and any dataset with `column_names`) is asked for the column; other datasets are read once, and
    stderr shows the progress if it is a terminal.
    Keep the result (`np.save`) if reading takes long.

    >>> lengths_of(["a", "bcd", ""]).tolist()
    [1, 3, 0]
    >>> from feedline import ArrayDataset
    >>> lengths_of(ArrayDataset(image=np.zeros((3, 2)), words=[5, 7, 9]), "words").tolist()
    [5, 7, 9]
    """
    column = _column(dataset, key)
    if isinstance(column, np.ndarray) and column.dtype.kind != "O":
        return _of_array(column, key)
    if column is not None:
        return _each((value for value in column), len(column), None)
    try:
        count = len(dataset)
    except TypeError as error:
        raise OptionTypeError(f"dataset ({type(dataset).__name__}) has no len(): a stream has no buckets") from error
    return _each((dataset[index] for index in range(count)), count, key)


def _column(dataset: Any, key: Any) -> Any:
    if isinstance(dataset, ArrayDataset):
        names = range(len(dataset.arrays)) if dataset.names is None else dataset.names
        key = names[0] if key is None and len(names) == 1 else key
        return dataset.arrays[names.index(key)] if key in names else None
    return dataset[key] if isinstance(key, str) and key in (getattr(dataset, "column_names", None) or ()) else None


def _of_array(column: Array, key: Any) -> IntArray:
    if column.ndim > 1:
        return np.full(len(column), column.shape[1])
    if column.dtype.kind in "iu":
        return column.astype(np.int64)
    if column.dtype.kind in "SU":
        return np.char.str_len(column).astype(np.int64)
    raise OptionTypeError(f"field {key!r} has neither lengths nor anything with a length: it is {column.dtype}")


def _each(values: Iterable[Any], count: int, key: Any) -> IntArray:
    lengths = np.empty(count, np.int64)
    shown, told = takes_escapes(sys.stderr), time.monotonic()
    try:
        for index, value in enumerate(values):
            lengths[index] = _length(value, key, index)
            if shown and time.monotonic() >= told + SECONDS_BETWEEN:
                told = time.monotonic()
                show_line(f"lengths: {index + 1:,} of {count:,}")
    finally:
        show_line("")
    return lengths


def _length(sample: Any, key: Any, index: int) -> int:
    value = sample
    if key is None and isinstance(sample, (tuple, Mapping)) and len(sample) == 1:
        (value,) = sample.values() if isinstance(sample, Mapping) else sample
    elif key is not None:
        try:
            value = getattr(sample, key) if isinstance(key, str) and not _has_items(sample) else sample[key]
        except (AttributeError, KeyError, IndexError, TypeError) as error:
            raise OptionError(f"sample {index} ({type(sample).__name__}) has no field {key!r}: {error!r}") from error
    elif isinstance(sample, (tuple, Mapping)):
        fields = list(sample) if isinstance(sample, Mapping) else list(range(len(sample)))
        raise OptionError(f"samples have several fields: pass key=, the field whose length counts, one of {fields}")
    if isinstance(value, Integral):
        return int(value)
    shape = getattr(value, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else int(value)
    if isinstance(value, Sized):
        return len(value)
    what = f"sample {index}" if key is None else f"field {key!r} of sample {index}"
    raise OptionTypeError(f"{what} has no length: it is a {type(value).__name__}")


def _has_items(sample: Any) -> bool:
    return isinstance(sample, Mapping) or (hasattr(sample, "__getitem__") and not isinstance(sample, tuple))
