"""Streams of Hugging Face's `datasets`.

Takes: a `datasets.IterableDataset`. Gives: `HuggingFaceStream`.
Promises: over all workers and ranks come the elements that iterating the dataset gives, each once; it continues from
where it was. Shards are read apart only where that changes no element; else each reader reads all, and takes its rows.
Not its job: what a stream is made of (hf_stages), who reads what (sharing).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from feedline.errors import OptionError
from feedline.errors.checks import check_flag
from feedline.randomness.rng import mix
from feedline.sources.hugging_face.hf_stages import BATCHED, apart, drawn, keeps_place, obstacle
from feedline.sources.sharing import State, Unit, UnitStream


class HuggingFaceStream(UnitStream):
    """What `from_hf` gives for a `datasets.IterableDataset`: its elements, shared out by its shards.

    >>> import datasets
    >>> table = datasets.Dataset.from_dict({"label": [5, 6, 7]})
    >>> list(HuggingFaceStream(table.to_iterable_dataset(num_shards=2)))
    [{'label': 5}, {'label': 6}, {'label': 7}]
    """

    def __init__(
        self,
        dataset: Any,
        *,
        row_by_row: bool = False,
        shuffle: bool = False,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(shuffle, num_replicas, rank)
        if dataset._formatting is not None and dataset._formatting.format_type is not None:
            raise OptionError("a streamed dataset is read without a format: take it off with with_format(None)")
        if dataset._distributed is not None:
            raise OptionError(
                "split_dataset_by_node has given the dataset one rank's part, and from_hf shares out by ranks itself: "
                "give it the whole one"
            )
        if dataset._starting_state_dict is not None:
            raise OptionError(
                "load_state_dict has told the dataset to begin in the middle: give from_hf one without a state, and "
                "load the state of the DataLoader"
            )
        self.dataset = dataset
        self._obstacle = obstacle(dataset, check_flag("row_by_row", row_by_row))

    def set_epoch(self, epoch: int) -> None:
        """Tell the dataset the epoch, if it shuffles."""
        self.dataset.set_epoch(epoch)

    def _count(self) -> int:
        return int(self.dataset.num_shards) if self._obstacle is None else 1

    def _names(self) -> Iterator[str]:
        yield f"{self._count()} {self.dataset.num_shards} {self.dataset.epoch} {list(self.dataset.features or ())}"
        yield from drawn(self.dataset)

    def units(self, key: int) -> list[Unit]:
        """The shards of this part; from epoch 1 on in another order in each epoch, if the dataset shuffles."""
        units = super().units(key)
        epoch = self.dataset.epoch
        return sorted(units, key=lambda unit: mix(epoch, unit.number)) if epoch and drawn(self.dataset) else units

    def _open(self, unit: Unit, place: State | None) -> _UnitReader:
        if self._obstacle is not None:
            return _UnitReader(apart(self.dataset), unit, place)
        shard = self.dataset.shard(self._count(), unit.number)
        shard.set_epoch(self.dataset.epoch)
        return _UnitReader(shard, unit, place)

    def _sharing_notice(self, readers: int) -> str | None:
        """What to tell the user when so many workers read this rank's share."""
        readers *= self.ranks[0]
        if self._obstacle is None or readers == 1 or self.dataset.num_shards == 1:
            return None
        remedy = _ROW_BY_ROW if self._obstacle == BATCHED else _BEFORE
        return _READ_BY_ALL.format(readers=readers, what=self._obstacle, remedy=remedy)


_READ_BY_ALL = (
    "the stream of `datasets` has {what}, and its shards, read apart, would give other elements: so each of the "
    "{readers} readers (workers of all ranks) reads the whole stream, and keeps its part of the rows. {remedy}"
)
_ROW_BY_ROW = (
    "Say from_hf(stream, row_by_row=True) if the function does to each row what it would do to that row alone (not if "
    "it joins or packs rows, or looks at others of the batch), or call it in collate_fn"
)
_BEFORE = "That is right, and not faster with more workers"


class _UnitReader:
    """One shard, or all. A shuffle buffer of `datasets` is not in its state, so then all is read again."""

    def __init__(self, dataset: Any, unit: Unit, place: State | None) -> None:
        self.ended = False
        self._unit = unit
        self._row = 0
        self._dataset = dataset
        self._keeps = keeps_place(dataset)
        wanted = place["row"] if place is not None else 0
        if place is not None and place["state"] is not None:
            dataset.load_state_dict(place["state"])
            self._row = wanted
        # Not iter(dataset), which would share it out once more in a worker of torch's.
        self._elements = dataset.iter(1)
        while self._row < wanted:
            self._next()

    def __iter__(self) -> _UnitReader:
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
