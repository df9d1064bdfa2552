"""Rows of Parquet and Arrow files by number, with bounded memory.

Takes: files. Gives: a map-style dataset of dicts, and the number of rows in each group, for a sampler.
Promises: a row group is decoded whole and kept as long as it fits into `cache_bytes`; a batch's rows are read group by
group. Any order works; an order that stays in a few groups at a time (`BlockSampler`) is fast.
Not its job: order (order/blocks), files (groups), values (columns).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.datasets import Dataset, Empty, IntArray
from feedline.datasets.reading import position
from feedline.errors import SourceError
from feedline.errors.checks import check_function, check_whole
from feedline.randomness.rng import enter_one_of
from feedline.sources.parquet.groups import Groups
from feedline.sources.parquet.parquet_columns import ParquetColumns


class ParquetDataset(Dataset[Any]):
    """The rows of Parquet files (or Arrow IPC files, also called Feather), by number.

    A sample is a dict: NumPy numbers, lists of numbers as arrays, texts, bytes, and Python values for the rest; None
    for a missing value. `columns` chooses some. `filters` keeps the rows for which all tests hold,
    `[("split", "=", "train"), ("label", "in", [3, 7])]`; with a list of such lists, the rows for which all tests of
    one list hold. Row groups that their statistics rule out are not read; in the others the tested columns are read
    once, when this is made. `transform` gets the dict. `cache_bytes` limits the decoded row groups that a process keeps
    (one is always kept).

    `block_sizes` has the number of rows in each row group, for `feedline.BlockSampler`: shuffled by it, each row
    group is decoded about once per epoch and process. With `workers="thread"` it is once for all workers.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> from feedline import BlockSampler, DataLoader
    >>> folder = tempfile.TemporaryDirectory()
    >>> table = pyarrow.table({"x": [[0.5, number] for number in range(10)], "label": range(10)})
    >>> pyarrow.parquet.write_table(table, f"{folder.name}/a.parquet", row_group_size=4)
    >>> data = ParquetDataset(f"{folder.name}/*.parquet", filters=[("label", ">=", 2)])
    >>> len(data), data.block_sizes, data[0]["x"]
    (8, [2, 4, 2], array([0.5, 2. ]))
    >>> sampler = BlockSampler(data.block_sizes, window=2)
    >>> for batch in DataLoader(data, batch_size=4, sampler=sampler, seed=2):
    ...     print(batch["label"])
    [7 5 6 9]
    [4 8 2 3]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        urls: Any,
        columns: Iterable[str] | None = None,
        filters: Any = None,
        transform: Callable[[dict[str, Any]], Any] | None = None,
        *,
        cache_bytes: int = 256 << 20,
    ) -> None:
        self._groups = Groups(urls, columns, filters)
        self._transform = check_function("transform", transform)
        self._most = check_whole("cache_bytes", cache_bytes, least=0)
        self._rows = self._passing()
        self.block_sizes = [len(rows) for rows in self._rows] if self._rows is not None else self._whole()
        self._ends = np.cumsum(self.block_sizes, dtype=np.int64)
        self._length = int(self._ends[-1]) if len(self._ends) else 0
        self._forget()

    def _whole(self) -> list[int]:
        return [group.rows for group in self._groups.list]

    def _passing(self) -> list[npt.NDArray[np.int32]] | None:
        """The rows of each group that pass the filters; groups without such rows are left out."""
        if self._groups.filters is None:
            return None
        found = [(group, self._groups.passing(group).astype(np.int32, copy=False)) for group in self._groups.list]
        self._groups.list = [group for group, rows in found if len(rows)]
        return [rows for _, rows in found if len(rows)]

    def _forget(self) -> None:
        self._kept: OrderedDict[int, ParquetColumns] = OrderedDict()
        self._unlock()

    def _unlock(self) -> None:
        self._lock, self._pid = threading.Lock(), os.getpid()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_kept", "_lock", "_pid")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        group, row = self._find(position(index, len(self), "ParquetDataset"))
        columns = self._decoded(group)
        try:
            [sample] = columns.rows(np.array([row], np.int64))
        except SourceError as error:
            raise SourceError(f"{self.describe(index)}: {error}") from error.__cause__
        return sample if self._transform is None else self._transform(sample)

    def __getitems__(self, indices: list[int]) -> list[Any]:
        found: dict[int, Any] = {}
        for group, places, rows in self._by_group(np.asarray(indices, np.int64)):
            found |= zip(places.tolist(), self._decoded(group).rows(rows), strict=True)
        samples = [found[place] for place in range(len(indices))]
        if self._transform is None:
            return samples
        return [self._transformed(place, indices, sample) for place, sample in enumerate(samples)]

    def __getbatch__(self, indices: IntArray, empty: Empty) -> Any:
        if self._transform is not None or not len(indices):
            return NotImplemented
        batch: dict[str, Any] = {}
        for group, places, rows in self._by_group(indices):
            arrays = self._decoded(group).arrays()
            if arrays is None:
                return NotImplemented
            for name, array in arrays.items():
                if name not in batch:
                    batch[name] = empty((len(indices), *array.shape[1:]), array.dtype)
                if batch[name].shape[1:] != array.shape[1:]:
                    return NotImplemented
                batch[name][places] = array[rows]
        return batch

    def _transformed(self, place: int, indices: list[int], sample: dict[str, Any]) -> Any:
        enter_one_of(place, indices)  # `feedline.rng()` in transform belongs to the sample
        assert self._transform is not None
        return self._transform(sample)

    def describe(self, index: int) -> str:
        """The sample's file and row."""
        if not -len(self) <= index < len(self):
            return f"no such row: there are {len(self)}"
        number, row = self._find(position(index, len(self), "ParquetDataset"))
        group = self._groups.list[number]
        return f"{self._groups.files[group.file].url[-250:]}: row {group.first + row}"

    def _find(self, place: int) -> tuple[int, int]:
        """The group of a sample, and its row in the group."""
        group = int(np.searchsorted(self._ends, place, side="right"))
        row = place - (int(self._ends[group - 1]) if group else 0)
        return group, row if self._rows is None else int(self._rows[group][row])

    def _by_group(self, indices: IntArray) -> Iterator[tuple[int, IntArray, IntArray]]:
        """For each group: the places in the batch, and the rows at these places."""
        if len(indices) and (indices.min() < -len(self) or indices.max() >= len(self)):
            for index in indices.tolist():
                position(index, len(self), "ParquetDataset")
        inside = np.where(indices < 0, indices + len(self), indices)
        groups = np.searchsorted(self._ends, inside, side="right")
        for group in np.unique(groups).tolist():
            places = np.flatnonzero(groups == group)
            rows = inside[places] - (self._ends[group - 1] if group else 0)
            yield group, places, rows if self._rows is None else self._rows[group][rows].astype(np.int64)

    def _decoded(self, number: int) -> ParquetColumns:
        if self._pid != os.getpid():  # after a fork: the thread that held the lock may not exist in this process
            self._unlock()
        with self._lock:  # worker threads wait while one of them decodes a group, instead of decoding it too
            if number not in self._kept:
                columns = ParquetColumns(self._groups.read(self._groups.list[number]))
                while self._kept and sum(each.bytes for each in self._kept.values()) + columns.bytes > self._most:
                    self._kept.popitem(last=False)
                self._kept[number] = columns
            self._kept.move_to_end(number)
            return self._kept[number]
