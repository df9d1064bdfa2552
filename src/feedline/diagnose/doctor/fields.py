"""A sample taken apart: its leaves, and what can be said about each without keeping it.

Takes: a sample of any kind. Gives: its `Field`s, its arrays, digests of the whole sample and of its inputs.
Runs in worker processes.
Promises: nothing is written to; a value of an unknown kind is a field like any other.
Not its job: judging (sample_values), reading samples (probe).
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
from collections.abc import Iterable, Iterator, Mapping
from math import isinf
from numbers import Number
from typing import Any

import numpy as np

from feedline.datasets import Array
from feedline.diagnose.doctor.evidence import ARRAY, LIST, NOTHING, NUMBER, OTHER, TEXT, Field

DEEPEST = 6
WIDEST = 32
"""Up to this many elements of a list are fields of their own, unless all are numbers."""
SHORT = 40
"""The most characters of a text that is kept: labels are shorter."""
LISTED = 1000
"""Elements of a list that are looked at one by one."""
MOST_CLASSES = 10_000
BYTE_VALUES = 256
LEAST_CONTENT, LEAST_LISTED, LEAST_TEXT = 32, 8, 40
"""Bytes of arrays, numbers in arrays or lists, characters of a text: from here on, equality is hardly chance."""
LEAST_IMAGE = 24 * 24
"""Pixels: a smaller array is hardly an image, and has few different values anyway."""
_CHANNELS = (1, 3, 4)


def leaves(sample: Any, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The leaves of a sample, with their paths.

    >>> list(leaves({"a": (1, [2, 3])}))
    [("['a'][0]", 1), ("['a'][1]", [2, 3])]
    """
    parts = _parts(sample, depth) if depth < DEEPEST else None
    if parts is None:
        yield path, sample
        return
    for step, part in parts:
        yield from leaves(part, path + step, depth + 1)


def _parts(value: Any, depth: int) -> list[tuple[str, Any]] | None:
    if isinstance(value, Mapping):
        return [(f"[{key!r}]", part) for key, part in value.items()]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", part) for name, part in zip(value._fields, value, strict=True)]
    # The length of a list inside a sample may vary (boxes, words); a sample may be a list itself.
    if isinstance(value, tuple) or (isinstance(value, list) and not depth and not _is_flat(value)):
        return [(f"[{place}]", part) for place, part in enumerate(value)] if len(value) <= WIDEST else None
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{each.name}", getattr(value, each.name)) for each in dataclasses.fields(value)]
    return None


def _is_flat(value: list[Any]) -> bool:
    return len(value) > WIDEST or all(isinstance(each, (Number, str)) for each in value)


def as_array(value: Any) -> Array | None:
    """The value's memory as an array, if it is one (NumPy's, or a torch tensor on the CPU)."""
    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor) and value.device.type == "cpu" and not value.is_sparse:
        try:
            return np.asarray(value.detach())
        except (TypeError, RuntimeError):  # bfloat16 and other types that NumPy does not have
            return np.asarray(value.detach().float()) if value.is_floating_point() else None
    return None


def look_at(path: str, value: Any) -> Field:
    """What can be said about a leaf."""
    if value is None:
        return Field(path, NOTHING, "None")
    if isinstance(value, (str, bytes)):
        short = value if len(value) <= SHORT else None
        return Field(path, TEXT, type(value).__name__, (), len(value), value=short)
    array = as_array(value)
    if array is not None:
        dtype = str(getattr(value, "dtype", array.dtype)).removeprefix("torch.")
        return _of_array(path, array, dtype)._replace(nbytes=int(value.nbytes))
    if isinstance(value, (Number, np.generic)):
        return _of_number(path, value)
    if isinstance(value, list):
        nans = sum(each != each for each in value[:LISTED] if isinstance(each, float))
        infs = sum(isinf(each) for each in value[:LISTED] if isinstance(each, float))
        mask = np.array(value) if "attention_mask" in path and _is_flat(value) else None
        known = None if mask is None else _value_of(path, mask)
        return Field(path, LIST, "list", (len(value),), 8 * len(value), nans, infs, known)
    shape = getattr(value, "shape", None)
    return Field(path, OTHER, type(value).__name__, tuple(shape) if isinstance(shape, tuple) else ())


def _of_array(path: str, array: Array, dtype: str) -> Field:
    if array.ndim == 0 and array.dtype.kind in "biuf":
        return _of_number(path, array[()])._replace(dtype=dtype)
    nans = infs = 0
    if array.dtype.kind in "fc" and not np.isfinite(array).all():
        nans, infs = int(np.isnan(array).sum()), int(np.isinf(array).sum())
    eight_bit = array.dtype.kind == "f" and _was_bytes(array)
    return Field(path, ARRAY, dtype, array.shape, array.nbytes, nans, infs, _value_of(path, array), eight_bit)


def _value_of(path: str, array: Array) -> Any:
    """The number in an array of one; the class of a one-hot vector; the share of data in a mask."""
    if array.ndim != 1 or array.dtype.kind not in "biuf" or not 0 < array.size <= MOST_CLASSES:
        return None
    if array.size == 1:
        return array[0].item()
    if "attention_mask" in path:
        return float(np.count_nonzero(array) / array.size)
    place = int(array.argmax())
    return place if array[place] == 1 and np.count_nonzero(array) == 1 else None


def _of_number(path: str, value: Any) -> Field:
    kind = type(value).__name__
    known = value.item() if isinstance(value, np.generic) else value
    if isinstance(known, (int, float)):
        nan, inf = known != known, known in (float("inf"), float("-inf"))
        return Field(path, NUMBER, kind, (), 8, int(nan), int(inf), known)
    return Field(path, NUMBER, kind, (), 8)


def _was_bytes(array: Array) -> bool:
    """Is it an image (channels first or last) with at most 256 values per channel, but not just a few?"""
    if array.ndim == 3 and array.shape[0] in _CHANNELS:
        channels = list(array)
    elif array.ndim == 3 and array.shape[2] in _CHANNELS:
        channels = [array[..., channel] for channel in range(array.shape[2])]
    elif array.ndim == 2 and min(array.shape) >= 24:
        channels = [array]
    else:
        return False
    if channels[0].size < LEAST_IMAGE:
        return False
    counts = [len(np.unique(channel)) for channel in channels]
    most = min(BYTE_VALUES, channels[0].size // 2)
    return max(counts) <= most and max(counts) > 16


def digest(sample: Any) -> str:
    """Equal for equal samples; of a value that is neither array, number nor text, only the class counts."""
    made = hashlib.blake2b(digest_size=12)
    for path, value in leaves(sample):
        array = as_array(value)
        if isinstance(value, list) and value is not sample:
            made.update(f"{path}{[digest(each) for each in value]}".encode())
            continue
        if array is not None:
            made.update(f"{path}{array.dtype}{array.shape}".encode())
            made.update(np.ascontiguousarray(array).tobytes() if array.dtype != object else b"")
        elif value is None or isinstance(value, (str, bytes, Number, np.generic, list)):
            made.update(f"{path}{value!r}".encode())
        else:
            made.update(f"{path}{type(value).__name__}".encode())
    return made.hexdigest()


def content(sample: Any) -> str:
    """A digest of what a model would see: equal for equal inputs, whatever their labels, numbers and paths are.

    It covers the arrays of a sample; without any, its lists of numbers, then its single numbers if enough of them have
    fractions (a row of a table), then its texts. "" if there is too little, or only arrays of a single value: many
    samples may be equal in that.

    >>> image = np.arange(64.0)
    >>> content((image, 3)) == content({"image": image, "label": 4, "path": "a.jpg"}) != ""
    True
    >>> content((np.zeros(64), 3)), content(7), content({"a": 0.5, "b": 2.0})
    ('', '', '')
    """
    parts = [value for _, value in leaves(sample)]
    arrays = _arrays_in(parts)
    if arrays:
        return digest(tuple(arrays)) if _is_much(arrays) and not all(map(_is_constant, arrays)) else ""
    lists = [each for each in parts if isinstance(each, list) and len(each) >= LEAST_LISTED]
    numbers = [each for each in parts if isinstance(each, (float, np.floating)) and each % 1]  # integers may be labels
    for found in (
        [each for each in lists if all(isinstance(one, Number) for one in each[:LISTED])],
        numbers if len(numbers) >= LEAST_LISTED else [],
        [each for each in parts if isinstance(each, str) and len(each) >= LEAST_TEXT],
    ):
        if found:
            return digest({"": found})
    return ""


def is_blank(sample: Any) -> bool:
    """Are all its arrays zeros?

    >>> is_blank((np.zeros((8, 8)), 3)), is_blank({"image": np.ones(64), "mask": np.zeros(64)})
    (True, False)
    """
    arrays = _arrays_in(value for _, value in leaves(sample))
    return _is_much(arrays) and not any(array.any() for array in arrays)


def _arrays_in(parts: Iterable[Any]) -> list[Array]:
    """Arrays of more than one number: a single number is a label, or an identifier."""
    found = [array for value in parts if (array := as_array(value)) is not None]
    return [array for array in found if array.size > 1 and array.dtype.kind in "biufc"]


def _is_much(arrays: list[Array]) -> bool:
    numbers, size = sum(array.size for array in arrays), sum(array.nbytes for array in arrays)
    return numbers >= LEAST_LISTED and size >= LEAST_CONTENT


def _is_constant(array: Array) -> bool:
    return bool((array == array.flat[0]).all())
