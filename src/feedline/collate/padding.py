"""Arrays of different lengths in one batch: the shorter ones are filled up.

Takes: the values of one field, which have equal shapes except in one axis or several. Gives: one array, a mask and the
lengths.
Promises: each value is written once, straight into the slot; nothing is cut unless the user asks for it.
Not its job: choosing samples of similar lengths (samplers), several sequences in one row (packing).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from math import prod
from numbers import Number
from typing import Any, NamedTuple

import numpy as np

from feedline.collate.array_kinds import uniform
from feedline.collate.collator import Collator
from feedline.collate.making import Making
from feedline.datasets import Array, IntArray
from feedline.errors import CollateError, OptionError, OptionTypeError
from feedline.errors.checks import check_flag, check_whole


class Padded(NamedTuple):
    """The result of `pad` for one field; a part that was not requested is None.

    >>> from feedline.collate import pad
    >>> batch = pad()([[1, 2, 3], [4]])
    >>> batch.data.shape, batch.lengths.tolist()
    ((2, 3), [3, 1])
    """

    data: Any
    """The batch; samples are along its first axis."""
    mask: Any
    """True where there is data, False for padding; its axes: samples, then the padded axes in the order of `data`."""
    lengths: Any
    """The length of each sample, int64; with several axes a column for each, in the order they were given."""

    @property
    def samples_first(self) -> bool:
        """Are its first axes those of samples? `accumulate` asks."""
        return True


@dataclass(frozen=True)
class pad(Collator):
    """Fill the shorter arrays of a batch up with `value`, to the length of the longest.

    `axis` is the axis of a sample that varies (several for images: `axis=(1, 2)`). `multiple` rounds the length up.
    `length` fixes it: a longer sample is an error, or is cut with `truncate=True`. The result is
    `Padded(data, mask, lengths)`; with `mask=False, lengths=False` it is the bare array.

    >>> batch = pad()([[1, 2, 3], [4]])
    >>> batch.data
    array([[1, 2, 3],
           [4, 0, 0]])
    >>> batch.mask.tolist(), batch.lengths
    ([[True, True, True], [True, False, False]], array([3, 1]))
    >>> pad(-1, multiple=4, mask=False, lengths=False)([[1, 2, 3], [4]])
    array([[ 1,  2,  3, -1],
           [ 4, -1, -1, -1]])
    """

    value: Any = 0
    _: KW_ONLY
    axis: int | tuple[int, ...] = 0
    multiple: int | None = None
    length: int | None = None
    truncate: bool = False
    mask: bool = True
    lengths: bool = True

    def __post_init__(self) -> None:
        check_value(self.value)
        for axis in self._axes:
            if isinstance(axis, bool) or not isinstance(axis, (int, np.integer)):
                raise OptionTypeError(f"axis must be a whole number, or a tuple of whole numbers; got {self.axis!r}")
        if not self._axes:
            raise OptionError("axis must name at least one axis; got ()")
        if self.multiple is not None:
            check_whole("multiple", self.multiple, least=1)
        if self.length is not None:
            check_whole("length", self.length, least=0)
        if self.multiple is not None and self.length is not None:
            raise OptionError("multiple and length both say how long a batch is: leave one of them out")
        if check_flag("truncate", self.truncate) and self.length is None:
            raise OptionError("truncate=True needs length=, to which samples are cut")
        check_flag("mask", self.mask)
        check_flag("lengths", self.lengths)

    @property
    def _axes(self) -> tuple[int, ...]:
        return tuple(self.axis) if isinstance(self.axis, (tuple, list)) else (self.axis,)

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The padded values, in the slot."""
        arrays, dtype, filler = uniform(values, self.value, making, path)
        axes = self._check_shapes(arrays, making, path)
        sizes = np.array([[array.shape[axis] for axis in axes] for array in arrays], np.int64)
        goal = self._goal(sizes, making, path)
        if self.length is not None:
            making.tally.cut += int((sizes > goal).any(1).sum())
            np.minimum(sizes, goal, out=sizes)
        shape = list(arrays[0].shape)
        for axis, size in zip(axes, goal, strict=True):
            shape[axis] = size
        out = making.empty((len(arrays), *shape), arrays[0].dtype)
        if axes == (0,):
            _line_up(out, arrays, sizes[:, 0].tolist(), filler)
        else:
            for row, array, size in zip(out, arrays, sizes.tolist(), strict=True):
                _fill(row, array, axes, size, filler)
        others = prod(size for axis, size in enumerate(shape) if axis not in axes)
        making.tally.places += out.size
        making.tally.padding += out.size - int(sizes.prod(1).sum()) * others
        return self._result(making.arrays.wrap(out, dtype), axes, sizes, goal, making)

    def _result(self, data: Any, axes: tuple[int, ...], sizes: IntArray, goal: tuple[int, ...], making: Making) -> Any:
        if not self.mask and not self.lengths:
            return data
        mask = None
        if self.mask:
            order = sorted(range(len(axes)), key=axes.__getitem__)  # (1, 0) names the same axes of the data
            mask = making.arrays.wrap(_mask(sizes[:, order], tuple(goal[place] for place in order), making))
        lengths = None
        if self.lengths:
            lengths = making.arrays.wrap(sizes if isinstance(self.axis, (tuple, list)) else sizes[:, 0].copy())
        return Padded(data, mask, lengths)

    def _goal(self, sizes: IntArray, making: Making, path: str) -> tuple[int, ...]:
        if self.length is None:
            by = self.multiple or 1
            return tuple(-(-size // by) * by for size in sizes.max(0).tolist())
        if not self.truncate and (sizes > self.length).any():
            position, axis = np.argwhere(sizes > self.length)[0].tolist()
            raise CollateError(
                f"{making.where(path, position)} has length {sizes[position, axis]} along axis {self._axes[axis]}, "
                f"more than length={self.length}. Set truncate=True to cut it, or leave length out."
            )
        return (self.length,) * len(self._axes)

    def _check_shapes(self, arrays: list[Array], making: Making, path: str) -> tuple[int, ...]:
        """The axes, counted from the front; an error if an array lacks them or the arrays differ in other axes."""
        first = arrays[0]
        for position, array in enumerate(arrays) if len({array.ndim for array in arrays}) > 1 else ():
            if array.ndim != first.ndim:
                raise making.differ("their number of axes", path, position, array.shape, first.shape, "")
        axes = tuple(axis + first.ndim if axis < 0 else axis for axis in self._axes)
        if not all(0 <= axis < first.ndim for axis in axes) or len(set(axes)) < len(axes):
            raise CollateError(
                f"{making.where(path, 0)} has shape {first.shape}, in which axis={self.axis} names no axis to pad"
                f"{'' if first.ndim else ': it is a single number, which stack collates'}."
            )
        others = [axis for axis in range(first.ndim) if axis not in axes]
        for position, array in enumerate(arrays) if others else ():
            if any(array.shape[axis] != first.shape[axis] for axis in others):
                differing = (axis for axis in others if array.shape[axis] != first.shape[axis])
                remedy = self._remedy(tuple(sorted({*axes, *differing})))
                raise making.differ("shape", path, position, array.shape, first.shape, remedy)
        return axes

    def _remedy(self, axes: tuple[int, ...]) -> str:
        return f", and only axis {self.axis} is padded. Make them equal, or pad several axes: axis={axes}."


def check_value(value: Any) -> None:
    """Check that a value can stand where there is no data."""
    if not isinstance(value, (Number, np.generic)):
        raise OptionTypeError(f"value, which fills the padding, must be a number; got {value!r}")


def _line_up(out: Array, arrays: list[Array], sizes: list[int], filler: Any) -> None:
    """Write all samples and their padding end to end: along the first axis, this is the batch."""
    count, length, *rest = out.shape
    padding = np.full((length - min(sizes), *rest), filler, out.dtype)
    parts: list[Array] = []
    for array, size in zip(arrays, sizes, strict=True):
        parts.append(array if len(array) == size else array[:size])
        if size < length:
            parts.append(padding[: length - size])
    np.concatenate(parts, out=out.reshape(count * length, *rest))


def _fill(row: Array, array: Array, axes: tuple[int, ...], sizes: list[int], filler: Any) -> None:
    """Write one sample and the padding next to it; each place is written once."""
    box = [slice(None)] * row.ndim
    for axis, size in zip(axes, sizes, strict=True):
        if size < row.shape[axis]:
            box[axis] = slice(size, None)
            row[tuple(box)] = filler
        box[axis] = slice(size)
    inside = tuple(box)
    row[inside] = array[inside]


def _mask(sizes: IntArray, goal: tuple[int, ...], making: Making) -> Array:
    mask = making.empty((len(sizes), *goal), np.dtype(bool))
    if len(goal) == 1:
        return np.less(np.arange(goal[0]), sizes, out=mask)
    mask[...] = True
    for number, size in enumerate(goal):
        shape = [len(sizes), *(1 if other != number else size for other in range(len(goal)))]
        mask &= (np.arange(size) < sizes[:, number, None]).reshape(shape)
    return mask
