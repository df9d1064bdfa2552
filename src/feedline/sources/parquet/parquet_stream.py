"""Rows of Parquet and Arrow files from front to back, row group by row group.

Takes: files. Gives: a stream of dicts, shared out by row groups over ranks and workers.
Promises: what `sharing` promises; a few thousand rows are decoded at a time; a row group that cannot be read is an
error that names it, and the next one follows. A place is a row group and a row in it: on resuming, the earlier rows of
that group are decoded again, other groups are not.
Not its job: shuffling (reading/shuffle_buffer; `shuffle` here is about the order of row groups), files (groups).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from feedline.datasets import IntArray
from feedline.errors import SourceError
from feedline.errors.checks import check_function
from feedline.sources.located import names_apart
from feedline.sources.parquet.groups import Group, Groups
from feedline.sources.parquet.parquet_columns import ParquetColumns
from feedline.sources.sharing import State, Unit, UnitStream

Transform = Callable[[dict[str, Any]], Any]


class ParquetStream(UnitStream):
    """The rows of Parquet files (or Arrow IPC files), in the order they are stored.

    Samples, `columns`, `filters` and `transform` are those of `ParquetDataset`, but rows are tested as they are read.
    `shuffle=True` reads the row groups in another order in each epoch; the loader's `shuffle_buffer` mixes their rows.
    Over ranks and workers each row comes once: as many row groups as possible are given out whole, in equal numbers;
    the rest is shared by rows. `num_replicas=1, rank=0` reads everything on every rank.

    >>> import tempfile, pyarrow, pyarrow.parquet
    >>> from feedline import DataLoader
    >>> folder = tempfile.TemporaryDirectory()
    >>> pyarrow.parquet.write_table(pyarrow.table({"label": range(10)}), f"{folder.name}/a.parquet", row_group_size=4)
    >>> stream = ParquetStream(f"{folder.name}/a.parquet", filters=[("label", ">", 4)])
    >>> for batch in DataLoader(stream, batch_size=4):
    ...     print(batch["label"])
    [5 6 7 8]
    [9]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        urls: Any,
        columns: Iterable[str] | None = None,
        filters: Any = None,
        transform: Transform | None = None,
        *,
        shuffle: bool = False,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(shuffle, num_replicas, rank)
        self._groups = Groups(urls, columns, filters)
        self._transform = check_function("transform", transform)

    def _count(self) -> int:
        return len(self._groups.list)

    def _names(self) -> Iterator[str]:
        yield repr((self._groups.columns, self._groups.filters))
        names = names_apart(self._groups.files)
        for group in self._groups.list:
            yield f"{names[group.file]} {group.number} {group.rows}"

    def _open(self, unit: Unit, place: State | None) -> GroupReader:
        return GroupReader(self._groups, unit, (place or {"row": 0})["row"], self._transform)


class _Unread:
    """Takes the place of a sample, and says why there is none."""

    def __init__(self, error: SourceError) -> None:
        self.error = error


class GroupReader:
    """One row group, or the part of its rows that belongs to a unit."""

    def __init__(self, groups: Groups, unit: Unit, row: int, transform: Transform | None) -> None:
        self._group: Group = groups.list[unit.number]
        self._where = groups.where(self._group)
        self._unit = unit
        self._row = row
        self._transform = transform
        self._slices = groups.slices(self._group)
        self._ready: Iterator[tuple[int, Any]] = iter(())
        self.ended = False

    def __iter__(self) -> GroupReader:
        return self

    def __next__(self) -> Any:
        while True:
            for number, sample in self._ready:
                self._row = number + 1
                if isinstance(sample, _Unread):
                    raise self._of_row(str(sample.error)) from sample.error.__cause__
                return sample if self._transform is None else self._transformed(self._transform, sample)
            self._next_slice()

    def place(self) -> State:
        """The first row that has not been given yet."""
        return {"row": self._row}

    def _next_slice(self) -> None:
        try:
            table, numbers = next(self._slices)
        except SourceError:
            self.ended = True
            raise
        mine = np.flatnonzero((numbers >= self._row) & (numbers % self._unit.every == self._unit.first))
        self._ready = zip(numbers[mine].tolist(), self._samples(ParquetColumns(table), mine), strict=True)

    def _samples(self, columns: ParquetColumns, rows: IntArray) -> list[Any]:
        try:
            return list(columns.rows(rows))
        except SourceError:  # one row failed: the others are not lost
            return [self._sample(columns, row) for row in rows.tolist()]

    def _sample(self, columns: ParquetColumns, row: int) -> Any:
        try:
            return columns.rows(np.array([row]))[0]
        except SourceError as error:
            return _Unread(error)

    def _transformed(self, transform: Transform, sample: dict[str, Any]) -> Any:
        try:
            return transform(sample)
        except Exception as error:
            raise self._of_row(f"transform failed: {type(error).__name__}: {error}") from error

    def _of_row(self, said: str) -> SourceError:
        return SourceError(f"{self._where}, in row {self._group.first + self._row - 1}: {said}")
