"""Tensors in slots: how they get memory there, are pickled into a slot, and are copied out of the dataset's memory.

Takes: tensors. Gives: tensors on memory of the arena, without a copy after collation; reducers for arena.packing.
Promises: every dtype that has bytes, zero-size tensors, strides of dense tensors kept; anything else (sparse, nested,
quantised, subclasses, other devices) takes a slower way; a dataset's shared tensors stay shared.
Not its job: stacking (collation).
"""

from __future__ import annotations

import os
import pickle
import weakref
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import torch
from torch.multiprocessing import get_sharing_strategy
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from feedline.arena.ordinary import note
from feedline.arena.segment import refused
from feedline.collate.ownership import own
from feedline.collate.unshared import references
from feedline.datasets import SMALL_LEAF, Empty, is_ordinary


def empty_tensor(shape: tuple[int, ...], dtype: torch.dtype, empty: Empty) -> torch.Tensor:
    """An uninitialised tensor; in the slot if it is large."""
    size = prod(shape) * dtype.itemsize
    if is_ordinary(empty, size):
        try:
            return torch.empty(shape, dtype=dtype, device="cpu")  # not on the default device, which may be another
        except RuntimeError as error:
            raise (refused(size) if lacks_memory(error) else error) from None
    return torch.from_numpy(empty((size,), np.dtype(np.uint8))).view(dtype).view(shape)


def lacks_memory(error: RuntimeError) -> bool:
    """Is it the error of torch's allocator?"""
    return "allocate memory" in str(error)


def is_plain(tensor: torch.Tensor) -> bool:
    """Is it only bytes in this process's memory: no subclass, no graph, no device?"""
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and tensor.is_cpu
        and not tensor.requires_grad
        and not tensor.is_quantized
        and not tensor.is_nested
    )


def is_unshared(tensor: Any) -> bool:
    """Has a tensor that only one container holds its memory to itself?

    No C++ object may hold the tensor, and no other object its storage; memory that is another object's (a NumPy
    array's) is not resizable, and memory that another process may have is shared.
    """
    if not is_plain(tensor) or weakref.getweakrefcount(tensor) or tensor.__dict__:
        return False
    held: list[Any] = [tensor.untyped_storage()]
    if _counts(tensor, held) != _OF_A_NEW_ONE:
        return False
    storage, size = held[0], tensor.nbytes
    if not storage.resizable() or storage.is_shared() or weakref.getweakrefcount(storage):
        return False
    # Would a copy be better: with a place for each element, without memory beside it, of another mode or a gradient?
    if storage.nbytes() != size or not (tensor.is_contiguous() or _is_dense(tensor)) or tensor.grad is not None:
        return False
    if tensor.is_inference() and not torch.is_inference_mode_enabled():
        return False
    if size >= SMALL_LEAF:
        note(size)
    return True


def _counts(tensor: Any, held: list[Any]) -> tuple[int, int, int]:
    """How many have the tensor in C++, its storage in C++, and its storage in Python, which the list holds. A new
    tensor's numbers depend on the version of torch."""
    return tensor._use_count(), _storage_use_count(held[0]._cdata), references(held[0])


_storage_use_count: Any = getattr(torch._C, "_storage_Use_Count", None)


def _counts_of_a_new_one() -> tuple[int, int, int] | None:
    """None if this version of torch does not count: then every tensor is copied."""
    try:
        tensor = torch.empty(1, device="cpu")
        held = [tensor.untyped_storage()]
        counts = _counts(tensor, held)
        view = tensor[:]
        is_noticed = _counts(tensor, held) != counts
        del view
        return counts if is_noticed and _counts(tensor, held) == counts and references(None) >= 0 else None
    except Exception:
        return None


_OF_A_NEW_ONE = _counts_of_a_new_one()


def own_tensor(tensor: torch.Tensor, empty: Empty) -> torch.Tensor:
    """A copy that shares memory with nothing else."""
    if tensor.requires_grad:
        return tensor  # gradients must go where torch sends them
    if (type(tensor) is not torch.Tensor or tensor.__dict__) and isinstance(tensor, torch.nn.Parameter):
        mine: torch.Tensor = torch.nn.Parameter(tensor.detach().clone(), requires_grad=False)
    elif is_plain(tensor) and _is_dense(tensor) and not is_ordinary(empty, tensor.nbytes):
        mine = empty_tensor((tensor.numel(),), tensor.dtype, empty).as_strided(tensor.shape, tensor.stride())
        mine.copy_(tensor)
    else:
        mine = tensor.clone()
    if vars(tensor) and type(mine) is type(tensor):
        _add_attributes(mine, tensor)
    return mine


def _add_attributes(mine: torch.Tensor, tensor: torch.Tensor) -> None:
    """Copy the tensor's further attributes, unless its clone has its own copies of them."""
    made_of_others = is_traceable_wrapper_subclass(tensor)  # then clone() decides which of them are shared
    for name, value in vars(tensor).items():
        if name not in vars(mine) or (vars(mine)[name] is value and not made_of_others):
            vars(mine)[name] = own(value, np.empty, None, own_tensor, (torch.Tensor,))


def reduce_tensor(tensor: torch.Tensor, empty: Empty) -> Any:
    """Pickle a tensor as one buffer, which can then be sent out of band."""
    if not is_plain(tensor):
        if tensor.requires_grad:
            return _with_grad, (tensor.detach(),)  # a graph cannot leave its process
        return _reduce_by_parts(tensor)
    # A dataset's tensor on its way to a worker; a tensor of a batch is copied, so that the batch owns it.
    if empty is np.empty and tensor.is_shared():  # type: ignore[no-untyped-call]
        return _reduce_shared(tensor)
    code = _CODES.get(tensor.dtype)
    if code is not None and tensor.dim() == 1 and 0 < tensor.nbytes < _TINY and tensor.is_contiguous():
        # Labels go straight into the pickle: views and a separate buffer cost more than such a small tensor.
        return _row_from, (bytearray(tensor.resolve_neg().numpy().data), code)
    tensor = tensor.resolve_conj().resolve_neg()
    if not _is_dense(tensor):
        tensor = empty_tensor(tuple(tensor.shape), tensor.dtype, empty).copy_(tensor)
    in_memory_order = tensor.as_strided((tensor.numel(),), (1,))
    raw: Any = in_memory_order.view(torch.uint8).numpy()
    return tensor_from, (pickle.PickleBuffer(raw), tensor.dtype, tuple(tensor.shape), tensor.stride())


_TINY = 1 << 12
"""Size in bytes; measured in benchmarks/torch_front.py, 8 numbers a batch."""
_DTYPES = (torch.int64, torch.float32, torch.float64, torch.int32, torch.uint8, torch.int8, torch.int16, torch.bool)
_CODES = {dtype: code for code, dtype in enumerate(_DTYPES)}  # pickling a dtype's name takes longer than its data


def _row_from(raw: bytearray, code: int) -> torch.Tensor:
    return torch.frombuffer(raw, dtype=_DTYPES[code])


def tensor_from(raw: Any, dtype: torch.dtype, shape: tuple[int, ...], stride: tuple[int, ...]) -> torch.Tensor:
    """Rebuild a tensor on the given bytes."""
    if prod(shape) == 0:
        return torch.empty_strided(shape, stride, dtype=dtype, device="cpu")
    return torch.frombuffer(raw, dtype=torch.uint8).view(dtype).as_strided(shape, stride)


def _is_dense(tensor: torch.Tensor) -> bool:
    """Do its elements fill one stretch of memory, each place once, in any order of its axes?"""
    if tensor.is_contiguous():
        return True
    stride = tensor.stride()
    return tensor.permute(sorted(range(tensor.dim()), key=lambda dim: -stride[dim])).is_contiguous()


def _reduce_shared(tensor: torch.Tensor) -> Any:
    # After share_memory_() sharing is intended: all processes see what one writes, as with torch's loader.
    storage: Any = tensor.untyped_storage()
    layout = (tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tensor.stride())
    if get_sharing_strategy() == "file_system":  # type: ignore[no-untyped-call]
        return _shared_by_name, (*storage._share_filename_cpu_(), *layout)
    fd, size = storage._share_fd_cpu_()
    # The descriptor lives as long as the dataset, and all workers can open it in this process.
    return _shared_by_descriptor, (f"/proc/{os.getpid()}/fd/{fd}", size, *layout)


_Storage: Any = torch.UntypedStorage


def _shared_by_descriptor(path: str, size: int, *layout: Any) -> torch.Tensor:
    fd = os.open(path, os.O_RDWR)
    try:
        return _on(_Storage._new_shared_fd_cpu(fd, size), *layout)
    finally:
        os.close(fd)


def _shared_by_name(manager: bytes, name: bytes, size: int, *layout: Any) -> torch.Tensor:
    return _on(_Storage._new_shared_filename_cpu(manager, name, size), *layout)


def _on(storage: Any, dtype: torch.dtype, offset: int, shape: Any, stride: Any) -> torch.Tensor:
    return torch.empty(0, dtype=dtype, device="cpu").set_(storage, offset, shape, stride)


def _with_grad(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.requires_grad_()


def _reduce_by_parts(tensor: torch.Tensor) -> Any:
    # torch's own __reduce__ keeps every sparse tensor it rebuilt alive, and warns about itself for quantised tensors.
    layout = tensor.layout
    if layout is torch.sparse_coo:
        return _sparse, (tensor._indices(), tensor._values(), tuple(tensor.shape), tensor.is_coalesced())
    if layout in (torch.sparse_csr, torch.sparse_bsr):
        return _compressed, (tensor.crow_indices(), tensor.col_indices(), tensor.values(), tuple(tensor.shape), layout)
    if layout in (torch.sparse_csc, torch.sparse_bsc):
        return _compressed, (tensor.ccol_indices(), tensor.row_indices(), tensor.values(), tuple(tensor.shape), layout)
    if tensor.is_quantized and tensor.qscheme() is torch.per_tensor_affine:
        return _quantised, (tensor.int_repr(), tensor.q_scale(), tensor.q_zero_point())
    if tensor.is_quantized and tensor.qscheme() is torch.per_channel_affine:
        scales, zeros = tensor.q_per_channel_scales(), tensor.q_per_channel_zero_points()
        return _quantised_by_channel, (tensor.int_repr(), scales, zeros, tensor.q_per_channel_axis())
    return tensor.__reduce_ex__(5)  # type: ignore[no-untyped-call]


def _sparse(indices: Any, values: Any, shape: tuple[int, ...], coalesced: bool) -> torch.Tensor:
    return torch.sparse_coo_tensor(
        indices, values, shape, is_coalesced=coalesced, check_invariants=False, device=values.device
    )


def _compressed(groups: Any, places: Any, values: Any, shape: tuple[int, ...], layout: Any) -> torch.Tensor:
    return torch.sparse_compressed_tensor(
        groups, places, values, shape, layout=layout, check_invariants=False, device=values.device
    )


def _quantised(numbers: Any, scale: float, zero: int) -> torch.Tensor:
    return torch._make_per_tensor_quantized_tensor(numbers, scale, zero)


def _quantised_by_channel(numbers: Any, scales: Any, zeros: Any, axis: int) -> torch.Tensor:
    return torch._make_per_channel_quantized_tensor(numbers, scales, zeros, axis)


REDUCERS: dict[type, Callable[..., Any]] = {torch.Tensor: reduce_tensor}
