"""Datasets of Hugging Face's `datasets`, read from their Arrow tables.

Takes: a `datasets.Dataset` or `datasets.IterableDataset`. Gives: `from_hf`.
Promises: a sample is what `dataset.with_format("numpy")[i]` is, indices (select, shuffle) and columns included; only
pictures and recordings are decoded by feedline's decoders. Columns that are not plain are read by `datasets` itself. A
stream is shared out by its shards over ranks and workers, each element once, and continues from where it was.
Not its job: columns of numbers (hf_columns), of files (hf_media), formats and transforms of `datasets` (map the result
instead).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from feedline.datasets import Dataset, Empty, IntArray
from feedline.datasets.reading import position
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.missing_packages import extra
from feedline.sources.decoding import Decoders
from feedline.sources.hugging_face.hf_columns import column_of
from feedline.sources.hugging_face.hf_media import media_of
from feedline.sources.sharing import State, Unit, UnitStream

_FORMATS = (None, "numpy", "torch", "python", "jax")


def from_hf(dataset: Any, *, decoders: Decoders | None = None) -> HuggingFaceDataset | HuggingFaceStream:
    """A dataset of Hugging Face's `datasets`, read by columns; a streamed one, read by shards.

    >>> import datasets
    >>> data = from_hf(datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]}))
    >>> data[1]
    {'x': array([3., 4.], dtype=float32), 'label': np.int64(1)}
    """
    library = extra("datasets", "hf", "from_hf")
    if isinstance(dataset, library.Dataset):
        return HuggingFaceDataset(dataset, decoders)
    if isinstance(dataset, library.IterableDataset):
        return HuggingFaceStream(dataset)
    kind = type(dataset).__name__
    which = "; choose a split: dataset['train']" if isinstance(dataset, dict) else ""
    raise OptionTypeError(f"from_hf needs a Dataset or an IterableDataset of `datasets`; got {kind}{which}")


class HuggingFaceDataset(Dataset[Any]):
    """What `from_hf` gives for a `datasets.Dataset`.

    >>> import datasets
    >>> data = HuggingFaceDataset(datasets.Dataset.from_dict({"label": [5, 6, 7]}).select([2, 0]))
    >>> len(data), data[0]["label"], data.describe(1)
    (2, np.int64(7), 'row 1')
    """

    def __init__(self, dataset: Any, decoders: Decoders | None = None) -> None:
        form = dataset.format
        if form["type"] not in _FORMATS:
            raise OptionError(
                f"the dataset has the format {form['type']!r}, which feedline does not read: take it off with "
                "with_format(None), and do in .map or collate_fn what its transform did"
            )
        kwargs = form["format_kwargs"] if form["type"] == "numpy" else {}
        self.dataset = dataset.with_format("numpy", columns=form["columns"], **kwargs)
        self._names: list[str] = form["columns"]
        self._plain = not kwargs
        self._decoders = decoders
        self._open()

    def _open(self) -> None:
        table, features = self.dataset.data, self.dataset.features
        media = {name: media_of(name, table.column(name), features[name], self._decoders) for name in self._names}
        self._media = {name: column for name, column in media.items() if column is not None}
        names = [name for name in self._names if name not in self._media]
        found = {name: column_of(table.column(name)) for name in names} if self._plain else {}
        self._columns = {name: column for name, column in found.items() if column is not None}
        self._others = [name for name in names if name not in self._columns]
        self._slow = self.dataset.select_columns(self._others) if self._others else None
        mapping = self.dataset._indices
        self._rows = None if mapping is None else mapping.column(0).to_numpy()

    def __getstate__(self) -> dict[str, Any]:
        opened = ("_columns", "_slow", "_media", "_rows")
        return {name: value for name, value in self.__dict__.items() if name not in opened}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._open()

    @property
    def fingerprint(self) -> str:
        """The dataset's own: it changes with its data, and with what was done to it."""
        return str(self.dataset._fingerprint)

    def __len__(self) -> int:
        return len(self.dataset)

    def _reads_batches(self) -> bool:
        return not self._others and not self._media

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = position(index, len(self), "HuggingFaceDataset")
        row = place if self._rows is None else int(self._rows[place])
        others = self._slow[place] if self._slow is not None else {}
        return {name: self._value(name, row, place, others) for name in self._names}

    def _value(self, name: str, row: int, place: int, others: dict[str, Any]) -> Any:
        if name in self._columns:
            return self._columns[name].one(row)
        return self._media[name].one(row, place) if name in self._media else others[name]

    def __getbatch__(self, indices: IntArray, empty: Empty) -> Any:
        if not self._reads_batches():
            return NotImplemented
        count = len(self)
        if not len(indices) or indices.min() < 0 or indices.max() >= count:
            indices = np.array([position(index, count, "HuggingFaceDataset") for index in indices.tolist()], np.int64)
        rows = indices if self._rows is None else self._rows[indices].astype(np.int64)
        return {name: self._columns[name].many(rows, empty) for name in self._names}

    def describe(self, index: int) -> str:
        """The number of the row."""
        return f"row {index % len(self)}" if -len(self) <= index < len(self) else ""


class HuggingFaceStream(UnitStream):
    """What `from_hf` gives for a `datasets.IterableDataset`: its elements, shared out by its shards.

    >>> import datasets
    >>> table = datasets.Dataset.from_dict({"label": [5, 6, 7]})
    >>> list(HuggingFaceStream(table.to_iterable_dataset(num_shards=2)))
    [{'label': 5}, {'label': 6}, {'label': 7}]
    """

    def __init__(
        self, dataset: Any, *, shuffle: bool = False, num_replicas: int | None = None, rank: int | None = None
    ) -> None:
        super().__init__(shuffle, num_replicas, rank)
        if dataset._formatting is not None:
            raise OptionError("a streamed dataset is read without a format: take it off with with_format(None)")
        if dataset._distributed is not None:
            raise OptionError(
                "split_dataset_by_node has given the dataset one rank's part, and from_hf shares out by ranks itself: "
                "give it the whole one"
            )
        self.dataset = dataset

    def set_epoch(self, epoch: int) -> None:
        """Tell the dataset the epoch, if it shuffles."""
        self.dataset.set_epoch(epoch)

    def _count(self) -> int:
        return int(self.dataset.num_shards)

    def _names(self) -> Iterator[str]:
        yield f"{self.dataset.num_shards} {self.dataset.epoch} {list(self.dataset.features or ())}"

    def _open(self, unit: Unit, place: State | None) -> _ShardReader:
        # Always a dataset of its own: two that are read at once would share a place.
        return _ShardReader(self.dataset.shard(self._count(), unit.number), unit, place)


class _ShardReader:
    """One shard. A shuffle buffer of `datasets` is not in its state, so then the shard is read again."""

    def __init__(self, dataset: Any, unit: Unit, place: State | None) -> None:
        self.ended = False
        self._unit = unit
        self._row = 0
        self._dataset = dataset
        self._keeps = not _has_buffer(dataset._ex_iterable)
        wanted = place["row"] if place is not None else 0
        if place is not None and place["state"] is not None:
            dataset.load_state_dict(place["state"])
            self._row = wanted
        # Not iter(dataset), which would share it out once more in a worker of torch's.
        self._elements = dataset.iter(1)
        while self._row < wanted:
            self._next()

    def __iter__(self) -> _ShardReader:
        return self

    def __next__(self) -> Any:
        while True:
            row = self._row
            batch = self._next()
            if self._unit.has(row):
                return {name: values[0] for name, values in batch.items()}

    def _next(self) -> dict[str, Any]:
        try:
            batch: dict[str, Any] = next(self._elements)
        except StopIteration:
            raise
        except Exception:
            self.ended = True  # it is a generator
            raise
        self._row += 1
        return batch

    def place(self) -> State:
        """The next row."""
        return {"row": self._row, "state": self._dataset.state_dict() if self._keeps and self._row else None}


def _has_buffer(examples: Any, depth: int = 50) -> bool:
    if "Buffer" in type(examples).__name__:
        return True
    inner = [getattr(examples, "ex_iterable", None), *(getattr(examples, "ex_iterables", None) or ())]
    return depth > 0 and any(_has_buffer(each, depth - 1) for each in inner if each is not None)
