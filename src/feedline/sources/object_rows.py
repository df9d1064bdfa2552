"""Rows that name objects: ids, keys and labels by one query, the bytes from a bucket.

Takes: a dataset whose samples are dicts (`SQLDataset`, or a plain list of them), and the field that names an object.
Gives: rows, many at once, and the object's name in each.
Promises: nothing is kept beside the dataset, so names take no more memory than its column; a row without a name is an
error that shows the row. Not its job: reading objects (object_dataset).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from feedline.datasets import described, fingerprint_of, length_of, read_samples, reads_many
from feedline.errors import OptionError, OptionTypeError, SourceError
from feedline.randomness.rng import enter_one_of


class ObjectRows:
    """The rows of a dataset, each of which names an object.

    >>> rows = ObjectRows([{"id": 7, "path": "a.jpg"}, {"id": 8, "path": None}], "path")
    >>> rows.name(rows.read([0])[0], 0)
    'a.jpg'
    """

    def __init__(self, dataset: Any, key: Any) -> None:
        if not isinstance(key, str) or not key:
            raise OptionTypeError(f"key must be the name of the column that names the objects; got {key!r}")
        if isinstance(dataset, str | bytes | Mapping) or not hasattr(type(dataset), "__getitem__"):
            raise OptionTypeError(
                f"names must be a dataset of rows if there is key={key!r}, such as SQLDataset(…); "
                f"got a {type(dataset).__name__}"
            )
        self.dataset, self.key = dataset, key
        length_of(dataset, "names")
        columns = _columns(dataset)
        if columns and key not in columns:
            raise OptionError(f"key must be one of the columns of the rows, {', '.join(columns)}; got {key!r}")

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def fingerprint(self) -> str | None:
        """That of the rows."""
        return fingerprint_of(self.dataset)

    def read(self, places: Sequence[int], indices: Sequence[int] = ()) -> list[dict[str, Any]]:
        """The rows at these places; `indices` are those of `__getitems__`, if it reads them."""
        if not indices or reads_many(self.dataset):
            return list(read_samples(self.dataset, list(places)))
        rows = []
        for number, place in enumerate(places):
            enter_one_of(number, indices)  # a row's own `transform` may draw, too
            rows.append(self.dataset[place])
        return rows

    def name(self, row: Any, place: int) -> str:
        """The name of a row's object."""
        if not isinstance(row, dict):
            raise OptionTypeError(
                f"names must be a dataset of rows, each a dict with {self.key!r}; sample {place} is a "
                f"{type(row).__name__}"
            )
        name = row.get(self.key)
        if not isinstance(name, str) or not name:
            has = f"its {self.key} is {name!r}" if self.key in row else f"it has only {', '.join(map(str, row))}"
            raise SourceError(f"{self.describe(place)} names no object: {has}")
        return name

    def describe(self, place: int) -> str:
        """A row, for messages."""
        return described(self.dataset, place) or f"row {place}"


def _columns(dataset: Any) -> list[str]:
    """The fields of its rows, if they are those of a table: `load` and `transform` may add some."""
    if not hasattr(type(dataset), "table") or any(getattr(dataset, each, None) for each in ("load", "transform")):
        return []
    return list(dataset.names)
