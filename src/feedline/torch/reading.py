"""Whole batches from torch's own in-memory datasets, and from feedline's, as tensors.

Takes: a dataset. Gives: a `BatchReader` if a batch can be gathered at once.
Promises: the same as torch's loader gives for the same indices: a list of tensors. Subclasses may have changed
`__getitem__`, so they are read sample by sample.
Not its job: any other dataset (reading.fetch).
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import StackDataset, Subset, TensorDataset

from feedline.datasets import Array, Empty, IntArray, Mixture, awaits, is_ordinary, reads_batches
from feedline.datasets import ConcatDataset as OwnConcat
from feedline.datasets import reads_many as numpy_reads_many
from feedline.reading.fetch import BatchReader
from feedline.reading.fetch import batch_reader as numpy_reader
from feedline.torch.collation import is_stock
from feedline.torch.tensors import empty_tensor, is_plain


def batch_reader(dataset: Any) -> BatchReader | None:
    """How to read whole batches, if the dataset can give them."""
    if not (type(dataset) in _KNOWN or isinstance(dataset, np.ndarray) or reads_batches(dataset)):
        return None
    if not is_stock(torch.Tensor, np.ndarray, np.number, tuple, dict):
        return None  # the user's registration decides, sample by sample
    if type(dataset) is TensorDataset and all(map(_can_gather, dataset.tensors)):
        columns = [_Column.of(tensor) for tensor in dataset.tensors]
        return BatchReader(lambda indices, empty: _rows(columns, indices, empty), draws=False)
    if type(dataset) is Subset:
        return _subset_reader(dataset)
    if isinstance(dataset, np.ndarray) and not _is_plain_array(dataset):
        return None  # torch must decide what becomes of its rows, or which error to raise
    inner = numpy_reader(dataset)
    if inner is None:
        return None
    return BatchReader(lambda indices, empty: _as_tensors(inner.read(indices, empty)), inner.draws)


_KNOWN = frozenset((TensorDataset, Subset))


def _is_plain_array(array: np.ndarray[Any, Any]) -> bool:
    return type(array) in (np.ndarray, np.memmap) and array.dtype.isnative and array.dtype.kind in "?biufc"


def reads_many(dataset: Any) -> bool:
    """Does `__getitems__` do more than read one by one? torch's Subset and StackDataset always have it."""
    if type(dataset) not in _WRAPPERS:
        return numpy_reads_many(dataset)
    if type(dataset) is Subset:
        return reads_many(dataset.dataset)
    if awaits(dataset):
        return False  # reading many at once would give a list of coroutines
    if type(dataset) is StackDataset:
        parts = dataset.datasets
        return any(reads_many(part) for part in (parts.values() if isinstance(parts, dict) else parts))
    return all(map(reads_many, dataset.datasets))


_WRAPPERS = frozenset((Subset, StackDataset, OwnConcat, Mixture))


def _can_gather(tensor: torch.Tensor) -> bool:
    if not is_plain(tensor):
        return False
    try:
        tensor.index_select(0, torch.zeros(min(1, len(tensor)), dtype=torch.int64, device="cpu"))
    except NotImplementedError:  # 16-bit unsigned numbers without another axis, for example
        return False
    return True


def _subset_reader(dataset: Subset[Any]) -> BatchReader | None:
    inner = batch_reader(dataset.dataset)
    if inner is None:
        return None
    try:
        chosen = np.asarray(dataset.indices)
    except (TypeError, ValueError):
        return None
    if chosen.dtype.kind not in "iu" or chosen.ndim != 1 or (chosen < 0).any():
        return None  # only the dataset itself knows what those mean
    chosen = chosen.astype(np.int64, copy=False)
    return BatchReader(lambda indices, empty: inner.read(chosen.take(indices), empty), inner.draws)


class _Column(NamedTuple):
    """One of a dataset's tensors, and how its rows are gathered."""

    tensor: torch.Tensor
    row_bytes: int
    array: Array | None
    """The same memory as a NumPy array, if possible: for few bytes NumPy gathers in half of torch's time
    (benchmarks/torch_front.py, 256 rows of 32: 8 against 15 µs)."""

    @classmethod
    def of(cls, tensor: torch.Tensor) -> _Column:
        can_take = tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()
        array = tensor.numpy() if can_take and tensor.dtype in _ALSO_NUMPYS else None
        return cls(tensor, tensor.itemsize * prod(tensor.shape[1:]), array)


_ALSO_NUMPYS = {torch.from_numpy(np.empty(0, code)).dtype for code in "?bBhilefdFD"}


def _rows(columns: list[_Column], indices: IntArray, empty: Empty) -> list[torch.Tensor]:
    size = len(indices)
    return [
        torch.from_numpy(array.take(indices, 0))
        if array is not None and is_ordinary(empty, size * row_bytes)
        else _gather(tensor, indices, size, empty)
        for tensor, row_bytes, array in columns
    ]


def _gather(tensor: torch.Tensor, indices: IntArray, size: int, empty: Empty) -> torch.Tensor:
    index = torch.from_numpy(indices if indices.flags.writeable else indices.copy())  # torch warns about read-only ones
    out = empty_tensor((size, *tensor.shape[1:]), tensor.dtype, empty)
    return torch.index_select(tensor, 0, index, out=out)


def _as_tensors(batch: Any) -> Any:
    if batch is NotImplemented:
        return batch
    if isinstance(batch, dict):
        return {key: _as_tensors(value) for key, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        return [_as_tensors(value) for value in batch]
    return torch.as_tensor(batch, device="cpu")
