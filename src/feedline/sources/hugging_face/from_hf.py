"""Datasets of Hugging Face's `datasets`, read from their Arrow tables.

Takes: a `datasets.Dataset` or `datasets.IterableDataset`. Gives: `from_hf`.
Promises: a sample is what `dataset.with_format("numpy")[i]` is, indices (select, shuffle) and columns included; only
pictures and recordings are decoded by feedline's decoders. Columns that are not plain are read by `datasets` itself.
Not its job: streams (hf_stream), columns of numbers (hf_columns), of files (hf_media), formats and transforms of
`datasets` (map the result instead).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.datasets import Dataset, Empty, IntArray
from feedline.datasets.reading import position
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.missing_packages import extra
from feedline.sources.decoding import Decoders
from feedline.sources.hugging_face.hf_columns import column_of
from feedline.sources.hugging_face.hf_media import media_of
from feedline.sources.hugging_face.hf_stream import HuggingFaceStream

_PYTHON = (None, "python")
_FORMATS = (*_PYTHON, "numpy", "torch", "jax")


def from_hf(
    dataset: Any, *, decoders: Decoders | None = None, row_by_row: bool = False
) -> HuggingFaceDataset | HuggingFaceStream:
    """A dataset of Hugging Face's `datasets`, read by columns; a streamed one, read by shards.

    A stream whose shards, read apart, would give other elements than the stream (after take, skip, interleave_datasets,
    a map with batched=True, …) is read whole by every worker, which keeps its part of the rows. `row_by_row=True`
    promises that functions with batched=True do to each row what they would do to it alone; then they are no reason.

    >>> import datasets
    >>> data = from_hf(datasets.Dataset.from_dict({"x": [[1.0, 2.0], [3.0, 4.0]], "label": [0, 1]}))
    >>> data[1]
    {'x': array([3., 4.], dtype=float32), 'label': np.int64(1)}
    """
    library = extra("datasets", "hf", "from_hf")
    if isinstance(dataset, library.Dataset):
        if row_by_row:
            raise OptionError("row_by_row is for a streamed dataset, and this one is a table")
        return HuggingFaceDataset(dataset, decoders)
    if isinstance(dataset, library.IterableDataset):
        if decoders is not None:
            raise OptionError(
                "decoders is for a table; in a stream, cast the column to Image(decode=False) or Audio(decode=False), "
                "and decode its bytes in the stream's map"
            )
        return HuggingFaceStream(dataset, row_by_row=row_by_row)
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
        kind, kwargs, columns = form["type"], form["format_kwargs"], form["columns"]
        _check_format(kind, kwargs)
        others = [name for name in dataset.column_names if form["output_all_columns"] and name not in columns]
        if kind in _PYTHON:  # then output_all_columns=True only takes back what columns= says
            columns, others = columns + others, []
        self.dataset = dataset.with_format("numpy", columns=columns, **kwargs)
        self._names: list[str] = columns
        self._as_they_are = others
        self._plain = not kwargs
        self._decoders = decoders
        self._open()

    def _open(self) -> None:
        table, features = self.dataset.data, self.dataset.features
        decoded = self._names if self._plain or self._decoders else []
        media = {name: media_of(name, table.column(name), features[name], self._decoders) for name in decoded}
        self._media = {name: column for name, column in media.items() if column is not None}
        names = [name for name in self._names if name not in self._media]
        found = {name: column_of(table.column(name)) for name in names} if self._plain else {}
        self._columns = {name: column for name, column in found.items() if column is not None}
        self._others = [name for name in names if name not in self._columns]
        self._slow = self.dataset.select_columns(self._others) if self._others else None
        rest = self._as_they_are
        self._unformatted = self.dataset.with_format(None).select_columns(rest) if rest else None
        mapping = self.dataset._indices
        self._rows = None if mapping is None else mapping.column(0).to_numpy()

    def __getstate__(self) -> dict[str, Any]:
        opened = ("_columns", "_slow", "_unformatted", "_media", "_rows")
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
        return not self._others and not self._media and self._unformatted is None

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = position(index, len(self), "HuggingFaceDataset")
        row = place if self._rows is None else int(self._rows[place])
        others = self._slow[place] if self._slow is not None else {}
        formatted = {name: self._value(name, row, place, others) for name in self._names}
        return formatted if self._unformatted is None else {**formatted, **self._unformatted[place]}

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


def _check_format(kind: str | None, kwargs: dict[str, Any]) -> None:
    if kind not in _FORMATS:
        raise OptionError(
            f"the dataset has the format {kind!r}, which feedline does not read: take it off with with_format(None), "
            "and do in .map or collate_fn what its transform did"
        )
    if kwargs and kind != "numpy":
        told = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        raise OptionError(
            f"the dataset's format {kind!r} has options ({told}), which feedline does not read, because it gives what "
            "the format 'numpy' gives: take them off with with_format('numpy'), and convert batches instead"
        )
