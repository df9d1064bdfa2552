"""Tensors in slots: how they get memory there, are pickled into one, and are copied away from the dataset.

Takes: tensors. Gives: tensors on memory of the arena, without a copy after collation; reducers for arena.packing.
Promises: every dtype that has bytes, zero-size tensors, strides of dense tensors kept; anything else (sparse, nested,
quantised, subclasses, other devices) goes the framework's own, slower way.
Not its job: stacking (collate).
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch

from feedline.arena.slots import SMALL_LEAF
from feedline.datasets import Empty


def empty_tensor(shape: tuple[int, ...], dtype: torch.dtype, empty: Empty) -> torch.Tensor:
    """An uninitialised tensor: in the slot if it is large."""
    size = prod(shape) * dtype.itemsize
    if size < SMALL_LEAF:
        return torch.empty(shape, dtype=dtype)
    return torch.from_numpy(empty((size,), np.dtype(np.uint8))).view(dtype).view(shape)


def is_plain(tensor: torch.Tensor) -> bool:
    """Bytes in this process's memory and nothing else: no subclass, no graph, no device."""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.device.type == "cpu"
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_nested
    )


def own_tensor(tensor: torch.Tensor, empty: Empty) -> torch.Tensor:
    """A copy that shares memory with nothing else."""
    if not is_plain(tensor):
        return tensor if tensor.requires_grad else tensor.clone()
    if not tensor.is_contiguous():
        return tensor.clone()  # keeps the strides of dense tensors
    mine = empty_tensor(tuple(tensor.shape), tensor.dtype, empty)
    return mine.copy_(tensor)


def reduce_tensor(tensor: torch.Tensor, empty: Empty) -> Any:
    """Pickle a tensor as one buffer, which may then go out of band."""
    if not is_plain(tensor):
        if is_plain(tensor.detach()):
            return _with_grad, (tensor.detach(),)  # a graph does not leave its process
        return _frameworks_way(tensor)
    tensor = tensor.resolve_conj().resolve_neg()
    if not _is_dense(tensor):
        tensor = empty_tensor(tuple(tensor.shape), tensor.dtype, empty).copy_(tensor)
    in_memory_order = tensor.as_strided((tensor.numel(),), (1,))
    raw: Any = in_memory_order.view(torch.uint8).numpy()
    return tensor_from, (pickle.PickleBuffer(raw), tensor.dtype, tuple(tensor.shape), tensor.stride())


def tensor_from(raw: Any, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """The tensor again, on the bytes it is given."""
    if prod(shape) == 0:
        return torch.empty_strided(shape, stride, dtype=dtype)
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).as_strided(shape, stride)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Do its elements fill a stretch of memory, each place once, whatever the order of its axes?"""
    if tensor.is_contiguous():
        return True
    stride = tensor.stride()
    return tensor.permute(sorted(range(tensor.dim()), key=lambda dim: -stride[dim])).is_contiguous()


def _with_grad(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.requires_grad_()


def _frameworks_way(tensor: torch.Tensor) -> Any:
    if tensor.is_quantized:  # by its own __reduce__ torch warns of a deprecation inside torch
        saved = io.BytesIO()
        torch.save(tensor.clone(), saved)  # the clone without what it may be a part of
        return _loaded, (saved.getvalue(),)
    return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]


def _loaded(saved: bytes) -> torch.Tensor:
    tensor: torch.Tensor = torch.load(io.BytesIO(saved), weights_only=False)
    return tensor


REDUCERS: dict[type, Callable[..., Any]] = {torch.Tensor: reduce_tensor}
