"""feedline's collators for torch: tensors in, tensors out.

Takes: samples with tensors, arrays or lists of numbers. Gives: tensors, in the slot when a worker collates.
Promises: every dtype whose elements have bytes of their own; torch's rules for mixing dtypes; arrays become tensors as
in torch's default_collate; tensor subclasses count as tensors. A tensor without bytes in this process's memory (sparse,
nested, on a device, part of a graph) is refused.
Not its job: how to collate (feedline.collate); these are the same classes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import torch

from feedline import collate as core
from feedline.collate.array_kinds import check_fits, is_untyped, plain
from feedline.collate.composing import Stack, keep
from feedline.collate.default import field_name
from feedline.collate.making import Making
from feedline.datasets import Array
from feedline.errors import add_note
from feedline.torch.collation import collate_into

__all__ = ["TENSORS", "compose", "detection", "drop_invalid", "keep", "pack", "pad", "stack"]

_SAME_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes that carry the bytes of dtypes that NumPy does not have."""


class Tensors:
    """torch's tensors, for collators."""

    refusal = "Make it dense, on the CPU and without a gradient: detach() or convert it in __getitem__."

    def stack(self, values: Sequence[Any], making: Making, path: str) -> Any:
        try:
            return collate_into(values, making.empty, making.names)
        except Exception as error:
            if path:
                add_note(error, f"feedline: raised when collating {field_name(path)}")
            raise

    def carry(self, value: Any) -> tuple[Array, Any] | None:
        if isinstance(value, torch.Tensor):
            try:
                return value.numpy(), value.dtype
            except (RuntimeError, TypeError):
                return _bytes_of(value)
        array = plain(value)
        if array is None:
            return None
        if not array.dtype.isnative:
            array = array.astype(array.dtype.newbyteorder("="))  # torch has no other byte order
        try:
            dtype = torch.from_numpy(np.empty(0, array.dtype)).dtype
        except TypeError:
            return None
        return array, None if is_untyped(array, value) else dtype

    def common(self, dtypes: Sequence[Any]) -> Any:
        try:
            return reduce(torch.promote_types, dtypes)
        except RuntimeError as error:
            raise TypeError(str(error)) from None

    def cast(self, array: Array, was: Any, dtype: Any) -> Array:
        found = _bytes_of(self.wrap(array.copy(), was).to(dtype))
        assert found is not None
        return found[0]

    def element(self, value: Any, dtype: Any) -> Any:
        if dtype is torch.bool:
            check_fits(value, "b", 0, 1)
        elif dtype.is_complex:
            check_fits(value, "c", 0, torch.finfo(dtype).max)
        elif dtype.is_floating_point:
            check_fits(value, "f", 0, torch.finfo(dtype).max)
        else:
            limits = torch.iinfo(dtype)
            check_fits(value, "i", limits.min, limits.max)
        made = torch.tensor(value, dtype=dtype, device="cpu")
        if dtype.is_floating_point and not _is_rounded(float(made), value):
            raise ValueError(value)
        found = _bytes_of(made)
        assert found is not None
        return found[0][()]

    def wrap(self, array: Array, dtype: Any = None) -> Any:
        tensor = torch.from_numpy(array)
        return tensor if dtype is None or tensor.dtype is dtype else tensor.view(dtype)


TENSORS = Tensors()


def _is_rounded(made: float, value: Any) -> bool:
    """Is it that value except for rounding? If a small float lacks infinity, sign or zero, torch takes the nearest."""
    if not math.isfinite(value):
        return made == value or (math.isnan(made) and math.isnan(value))
    return math.isfinite(made) and (made == 0 or (made > 0) == (value > 0))


def _bytes_of(tensor: torch.Tensor) -> tuple[Array, torch.dtype] | None:
    """A tensor as NumPy array, of integers if NumPy lacks its dtype; None if its bytes are not in this memory."""
    if tensor.requires_grad or tensor.layout is not torch.strided or tensor.device.type != "cpu":
        return None
    if tensor.is_quantized or tensor.is_nested:
        return None
    tensor = tensor.resolve_conj().resolve_neg()
    try:
        return tensor.numpy(), tensor.dtype
    except TypeError:
        return tensor.view(_SAME_SIZE[tensor.itemsize]).numpy(), tensor.dtype


class pad(core.pad):
    """`feedline.collate.pad` for tensors.

    >>> import torch
    >>> batch = pad()([torch.tensor([1, 2, 3]), torch.tensor([4])])
    >>> batch.data, batch.lengths
    (tensor([[1, 2, 3],
            [4, 0, 0]]), tensor([3, 1]))
    """

    arrays = TENSORS


class pack(core.pack):
    """`feedline.collate.pack` for tensors.

    >>> import torch
    >>> batch = pack(4)([torch.tensor([1, 2, 3]), torch.tensor([4, 5]), torch.tensor([6])])
    >>> batch.data, batch.segments
    (tensor([[1, 2, 3, 6],
            [4, 5, 0, 0]]), tensor([[1, 1, 1, 3],
            [2, 2, 0, 0]]))
    """

    arrays = TENSORS


class detection(core.detection):
    """`feedline.collate.detection` for tensors.

    >>> import torch
    >>> batch = detection()([(torch.ones(3, 2, 4), {"boxes": 1}), (torch.ones(3, 5, 2), {"boxes": 0})])
    >>> batch.images.shape, batch.sizes.tolist()
    (torch.Size([2, 3, 5, 4]), [[2, 4], [5, 2]])
    """

    arrays = TENSORS


class drop_invalid(core.drop_invalid):
    """`feedline.collate.drop_invalid` for tensors.

    >>> import torch
    >>> drop_invalid()([torch.tensor(1), None, torch.tensor(3)])
    tensor([1, 3])
    """

    arrays = TENSORS


class compose(core.compose):
    """`feedline.collate.compose` for tensors.

    >>> import torch
    >>> compose((stack, keep))([(torch.tensor(1), "a"), (torch.tensor(2), "b")])
    (tensor([1, 2]), ['a', 'b'])
    """

    arrays = TENSORS


class TorchStack(Stack):
    """Default collation, as torch's."""

    arrays = TENSORS


stack = TorchStack()
