"""SQLDataset: the rows of one query, as a dataset.

Takes: where a database is, a query and its values, a function that makes a sample from a row. Gives: samples by number.
Promises: one query when it is made; then the connection is closed, and nothing is kept that cannot be pickled. All
workers share the rows.
Not its job: data that does not fit into memory (sql_stream).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from feedline.datasets.joining import Dataset
from feedline.datasets.reading import position
from feedline.errors import add_note
from feedline.errors.checks import check_function
from feedline.errors.counting import counted
from feedline.sources.sql.connecting import Asked, check_query, no_columns
from feedline.sources.sql.database import Database
from feedline.sources.sql.mistakes import MixedTypes, shortened
from feedline.sources.sql.parameters import check_params
from feedline.sources.sql.sql_columns import SQLColumns

ROWS = 65_536
"""Rows fetched at a time: in benchmarks/sql.py, 10 M rows of SQLite took 6.9 s with this and 9.2 s with 8,192."""
LONGEST_VALUE = 60


class SQLDataset(Dataset[Any]):
    """The rows of a query, read once when the dataset is made: ids, paths and labels are here, `load` reads the files.

    `url`: `sqlite:///file.db`, `postgresql://user:password@host/name`, `mysql://user:password@host/name`,
    `duckdb:///file.duckdb`, or a function that returns a DB-API connection. The driver binds `params` to the query's
    placeholders, in its own style: `?` or `:name` for SQLite, `$1` for PostgreSQL, `%s` for MySQL. A row is a dict;
    `load(row)` makes the sample from it (reads the file, say), and `transform(sample)` changes the sample.

    >>> import sqlite3, tempfile
    >>> file = tempfile.NamedTemporaryFile(suffix=".db")
    >>> with sqlite3.connect(file.name) as db:
    ...     _ = db.execute("CREATE TABLE samples (id INTEGER, path TEXT, label INTEGER)")
    ...     _ = db.executemany("INSERT INTO samples VALUES (?, ?, ?)", [(1, "a.jpg", 0), (2, "b.jpg", 1)])
    >>> db.close()
    >>> query = "SELECT id, path, label FROM samples WHERE label >= ? ORDER BY id"
    >>> data = SQLDataset(f"sqlite:///{file.name}", query, params=(0,))
    >>> len(data), data[1], data.names
    (2, {'id': 2, 'path': 'b.jpg', 'label': 1}, ['id', 'path', 'label'])
    >>> SQLDataset(f"sqlite:///{file.name}", query, (1,), load=lambda row: (row["path"].upper(), row["label"]))[0]
    ('B.JPG', 1)
    """

    def __init__(
        self,
        url: str | Callable[[], Any],
        query: str,
        params: Any = (),
        *,
        load: Callable[[dict[str, Any]], Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self._database = Database(url)
        self.query = check_query(query)
        self._params = check_params(params)
        self.load = check_function("load", load)
        self.transform = check_function("transform", transform)
        self._fingerprint: str | None = None
        self._columns = self._asked()

    @property
    def table(self) -> Any:
        """The rows as a `pyarrow.Table`, without a copy."""
        return self._columns.table

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return self._columns.names

    @property
    def nbytes(self) -> int:
        """The memory of the rows in bytes, once for all workers."""
        return self._columns.nbytes

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the rows and their order. It is in a loader's state: resuming with other rows is refused."""
        if self._fingerprint is None:
            self._fingerprint = self._columns.fingerprint()
        return self._fingerprint

    def refresh(self) -> bool:
        """Run the query again; has anything changed? Workers that are running keep their rows."""
        before = self.fingerprint
        self._columns = self._asked()
        self._fingerprint = None
        return self.fingerprint != before

    def __len__(self) -> int:
        return len(self._columns)

    def __getitem__(self, index: int) -> Any:
        place = position(index, len(self), "SQLDataset")
        return self._sample(place, self._columns.row(place))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        places = [position(index, len(self), "SQLDataset") for index in indices]
        return [self._sample(place, row) for place, row in zip(places, self._columns.rows(places), strict=True)]

    def _reads_many(self) -> bool:
        return self.load is None and self.transform is None  # those may use the sample's rng()

    def describe(self, index: int) -> str:
        """The row: its number and its values, shortened."""
        if not -len(self) <= index < len(self):
            return f"row {index} of {len(self)}"
        place = position(index, len(self), "SQLDataset")
        return _described(place, self._columns.row(place))

    def __repr__(self) -> str:
        return f"SQLDataset({str(self._database)!r}, {counted(len(self), 'row')} of {', '.join(self.names)})"

    def _sample(self, place: int, row: dict[str, Any]) -> Any:
        try:
            sample = row if self.load is None else self.load(row)
            return sample if self.transform is None else self.transform(sample)
        except Exception as error:
            add_note(error, f"feedline: at {_described(place, row)}")
            raise

    def _asked(self) -> SQLColumns:
        try:
            found = SQLColumns.of(Asked(self._database, self.query, self._params, ROWS))
        except MixedTypes:
            found = SQLColumns.of(Asked(self._database, self.query, self._params, ROWS, plainly=True))
        if not found.names:
            raise no_columns(self._database, self.query)
        if not len(found):
            warnings.warn(
                f"{self._database}: the query gave no rows: look at its conditions and params. The query: "
                f"{shortened(self.query)}",
                stacklevel=3,
            )
        return found


def _described(place: int, row: dict[str, Any]) -> str:
    said = ", ".join(f"{name} = {_short(value)}" for name, value in row.items())
    return f"row {place}: {said}"[:280]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
