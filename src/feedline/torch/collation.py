"""Collation in torch's own words: torch's rules and registrations, with tensors stacked straight into a slot.

Takes: samples, memory. Gives: type for type what torch's default_collate gives.
Promises: torch's `default_collate_fn_map` is honoured, also when changed; a ragged batch names the dataset's indices.
Not its job: custom collate functions (they run as they are).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch._C import _len_torch_function_stack
from torch.utils.data import _utils

from feedline.arena.segment import refused
from feedline.collate.default import stacked
from feedline.collate.ownership import own as own_copied
from feedline.collate.unshared import is_unshared as is_unshared_tree
from feedline.datasets import Empty, is_ordinary
from feedline.errors import CollateError, add_note
from feedline.machine.worker_info import of_this_thread
from feedline.reading.fetch import brief
from feedline.torch.tensors import empty_tensor, is_plain, is_unshared, lacks_memory, own_tensor

_stock = _utils.collate
_STOCK_TENSOR = _stock.collate_tensor_fn
_STOCK_ARRAY = _stock.collate_numpy_array_fn
_NUMBERS = frozenset(map(np.dtype, ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")))
"""Of both libraries; what torch makes of others, it may decide."""


def collate_into(samples: Sequence[Any], empty: Empty, names: Sequence[Any] | None) -> Any:
    """torch's default_collate, writing into memory of `empty`."""
    if len(samples) == 0:
        raise CollateError("there are no samples to make a batch of")
    samples = list(samples)  # a list that the dataset keeps must not become the batch
    try:
        # A mode, such as a default device, changes what torch's functions do.
        if _stock.default_collate_fn_map in _STOCK_MAPS and not _len_torch_function_stack():
            return _tree(samples, empty, names)
        return _as_torch_does(samples, empty, names)
    except Exception as error:
        if names is not None and not isinstance(error, CollateError):
            add_note(error, f"feedline: raised when collating dataset indices {brief(names)}")
        raise


def _tree(values: Sequence[Any], empty: Empty, names: Sequence[Any] | None) -> Any:
    """The same as torch's `collate` without registrations, for values of the usual types; of others torch decides."""
    first = values[0]
    kind = type(first)
    if kind is torch.Tensor:
        return _stack(values, empty, names)
    if kind is np.ndarray and _are_alike(values):
        return torch.from_numpy(stacked(values, first.dtype, empty))
    if kind in _DTYPES:
        return _numbers(values, kind)
    if kind is str or kind is bytes:
        return values
    if kind is dict:
        return {key: _tree([value[key] for value in values], empty, names) for key in first}
    if (kind is tuple or kind is list) and _are_of_one_length(values):
        return [_tree(column, empty, names) for column in zip(*values, strict=False)]
    if isinstance(first, (np.bool_, np.number)):
        return torch.as_tensor(values)
    return _as_torch_does(values, empty, names)


def convert(sample: Any) -> Any:
    """torch's default_convert, which takes longer than all else to find out that it leaves a number as it is."""
    return sample if type(sample) in _LEFT_AS_THEY_ARE else _default_convert(sample)


_default_convert: Any = _stock.default_convert
_LEFT_AS_THEY_ARE = frozenset((int, float, bool, str, bytes, torch.Tensor))


def _numbers(values: Sequence[Any], kind: type) -> torch.Tensor:
    """NumPy reads numbers in a third of the time. Where it finds others than the first, torch decides."""
    if len(set(map(type, values))) == 1:
        found = np.array(values)
        if found.dtype is _DTYPES[kind]:  # else there are large integers among them
            return torch.from_numpy(found)
    return torch.tensor(values, dtype=torch.float64 if kind is float else None)


_DTYPES: dict[type, Any] = {kind: np.dtype(kind) for kind in (int, float, bool)}


def _as_torch_does(values: Sequence[Any], empty: Empty, names: Sequence[Any] | None) -> Any:
    """torch's `collate`, whose functions for tensors and arrays are replaced by ours if they are torch's own."""
    fn_map: dict[Any, Any] = dict(_stock.default_collate_fn_map)
    if is_stock(torch.Tensor):  # else the user's own registration stands

        def stack(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
            return _stack(batch, empty, names)

        fn_map[torch.Tensor] = stack
        if fn_map.get(np.ndarray) is _STOCK_ARRAY:

            def stack_arrays(batch: Sequence[Any], *, collate_fn_map: Any = None) -> Any:
                if _are_alike(batch):
                    return torch.from_numpy(stacked(batch, batch[0].dtype, empty))
                return _STOCK_ARRAY(batch, collate_fn_map=collate_fn_map)

            fn_map[np.ndarray] = stack_arrays
    return _stock.collate(values, collate_fn_map=fn_map)


def _are_of_one_length(values: Sequence[Any]) -> bool:
    try:
        return len(set(map(len, values))) == 1
    except TypeError:  # one has no length: torch says so
        return False


def is_stock(*kinds: type) -> bool:
    """Are these types collated by torch's own rules, no registration in `default_collate_fn_map` having a say?"""
    return all(_function_for(kind) in _STOCK for kind in kinds)


def _function_for(kind: type) -> Any:
    fn_map: dict[Any, Any] = _stock.default_collate_fn_map
    if kind in fn_map:
        return fn_map[kind]
    return next((function for types, function in fn_map.items() if issubclass(kind, types)), None)


def is_all_stock() -> bool:
    """Is there no registration of the user's at all?"""
    return all(function in _STOCK for function in _stock.default_collate_fn_map.values())


def collate_without_shared_files() -> None:
    """In a worker process: torch's default_collate, when a custom collate_fn calls it, stacks in ordinary memory.

    torch's own would ask for a file in /dev/shm per tensor, which a container may not have room for.
    """
    if is_stock(torch.Tensor):
        _stock.default_collate_fn_map[torch.Tensor] = _stack_plainly


def collate_by_thread() -> None:
    """In worker threads the same; any other caller in this process gets torch's own, unchanged."""
    if _stock.default_collate_fn_map.get(torch.Tensor) is _STOCK_TENSOR:
        _stock.default_collate_fn_map[torch.Tensor] = _stack_by_thread


def collate_as_torch_does() -> None:
    """There is no worker thread any more. What somebody else has registered since is theirs."""
    if _stock.default_collate_fn_map.get(torch.Tensor) is _stack_by_thread:
        _stock.default_collate_fn_map[torch.Tensor] = _STOCK_TENSOR


def _stack_by_thread(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    if of_this_thread() is not None:
        return _slow_stack(batch)
    stacked: torch.Tensor = _STOCK_TENSOR(batch, collate_fn_map=collate_fn_map)
    return stacked


def _stack_plainly(batch: Sequence[torch.Tensor], *, collate_fn_map: Any = None) -> torch.Tensor:
    return _slow_stack(batch)


def _stack(batch: Sequence[torch.Tensor], empty: Empty, names: Sequence[Any] | None) -> torch.Tensor:
    first = batch[0]
    is_strided = first.layout is torch.strided  # a sparse one cannot say how many bytes it has
    if is_strided and not is_ordinary(empty, first.nbytes * len(batch)) and _may_be_written_to_a_slot(batch):
        out = empty_tensor((len(batch), *first.shape), first.dtype, empty)
        with contextlib.suppress(RuntimeError):  # one has a graph, another device or shape: torch decides, and says so
            return torch.stack(batch, out=out)  # type: ignore[arg-type]
    try:
        return _slow_stack(batch)
    except RuntimeError as error:
        if is_strided and lacks_memory(error):
            raise refused(first.nbytes * len(batch)) from None
        if all(map(is_plain, batch)):
            for position, tensor in enumerate(batch):
                if tensor.shape != first.shape:
                    raise _ragged(batch, position, names) from None
        raise


def _are_alike(batch: Sequence[Any]) -> bool:
    """Can NumPy stack these arrays, as torch would? That takes a tenth of the time of a tensor for each of them."""
    first = batch[0]
    shape, dtype = first.shape, first.dtype
    if dtype not in _NUMBERS or not first.size or (first.ndim == 4 and not first.flags.c_contiguous):
        return False  # of channels that lie last torch decides, as for tensors
    return all(type(array) is np.ndarray and array.shape == shape and array.dtype is dtype for array in batch)


def _may_be_written_to_a_slot(batch: Sequence[torch.Tensor]) -> bool:
    """Is nothing lost by it? A class of its own, a wider dtype further on, or channels that lie last would be."""
    first = batch[0]
    if not is_plain(first) or (first.dim() == 4 and not first.is_contiguous()):
        return False
    return all(type(tensor) is torch.Tensor and tensor.dtype is first.dtype for tensor in batch)


def _slow_stack(batch: Sequence[torch.Tensor]) -> torch.Tensor:
    # Nested and sparse ones are refused there as torch refuses them.
    first = batch[0]
    if first.is_nested or first.layout is not torch.strided:
        refused: torch.Tensor = _STOCK_TENSOR(batch)
        return refused
    return torch.stack(batch)  # type: ignore[arg-type]


_STOCK_MAPS = [
    {**_stock.default_collate_fn_map, torch.Tensor: function}
    for function in (_STOCK_TENSOR, _stack_plainly, _stack_by_thread)
]
_STOCK = (
    _STOCK_TENSOR,
    _stack_plainly,
    _stack_by_thread,
    _STOCK_ARRAY,
    _stock.collate_numpy_scalar_fn,
    _stock.collate_float_fn,
    _stock.collate_int_fn,
    _stock.collate_str_fn,
    None,
)


def _ragged(batch: Sequence[torch.Tensor], position: int, names: Sequence[Any] | None) -> CollateError:
    def who(place: int) -> str:
        return f"entry {place}" if names is None else f"dataset index {names[place]!r} (entry {place})"

    return CollateError(
        f"stack expects each tensor to be equal size, but got {list(batch[0].shape)} at {who(0)} and "
        f"{list(batch[position].shape)} at {who(position)}. Make them equal in __getitem__ (crop, "
        "resize), or pad them: collate=pad() or, for one field of many, collate={'field': pad()}."
    )


def own(held: list[Any], empty: Empty, keep: Any = None) -> Any:
    """The tree that the list holds, such that writing to its tensors and arrays changes nothing else."""
    if is_unshared_tree(held, 0, is_unshared):
        return held[0]
    if type(held[0]) is torch.Tensor:  # as below, where everything is prepared for a tree
        return own_tensor(held[0], empty)
    return own_copied(held[0], empty, keep, own_tensor, (torch.Tensor,))
