"""SQLStream: the rows of a query in the order of a key, read when needed.

Takes: where a database is, a query and its values, the column that is its key. Gives: samples, one after the other.
Promises: at most `chunk` rows are in memory; each worker and rank reads its own range of keys (if they are integers;
any other keys are shared out by hash), so each row comes once; it resumes after the last row delivered. A key that
comes twice, or is NULL, is an error that names it.
Not its job: shuffling (`shuffle_buffer` of the loader), rows by number (dataset).
"""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable, Iterator
from itertools import compress
from typing import Any

from feedline.datasets.joining import IterableDataset
from feedline.errors import OptionError, OptionTypeError, StateError, add_note
from feedline.errors.checks import check_function, check_whole
from feedline.machine.rank_questions import note_sharing
from feedline.machine.this_rank import ranks
from feedline.sources.sql.connecting import Asked, check_query
from feedline.sources.sql.database import Database
from feedline.sources.sql.keyed import Ends, Key, Keyed
from feedline.sources.sql.mistakes import MixedTypes, shortened
from feedline.sources.sql.parameters import check_params
from feedline.sources.sql.sql_columns import checked_names
from feedline.sources.sql.sql_parts import KeyRange

CHUNK = 10_000
"""Rows: a megabyte or two of ordinary ones. From PostgreSQL, 5,000 and 20,000 at a time were equally fast."""


class SQLStream(IterableDataset[Any]):
    """The rows of a query in the order of its `key`, through a server-side cursor, a few at a time.

    `key` is a column of the result, unique and best with an index: integers are shared out over workers and ranks by
    ranges, anything else by hash. A state holds the key after which to continue. `url`, `params`, `load` and
    `transform` are those of `SQLDataset`. Ranks are detected, or given (`num_replicas`, `rank`).

    >>> import sqlite3, tempfile
    >>> file = tempfile.NamedTemporaryFile(suffix=".db")
    >>> with sqlite3.connect(file.name) as db:
    ...     _ = db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, what TEXT)")
    ...     _ = db.executemany("INSERT INTO events VALUES (?, ?)", [(3, "c"), (1, "a"), (2, "b")])
    >>> db.close()
    >>> stream = SQLStream(f"sqlite:///{file.name}", "SELECT id, what FROM events", key="id")
    >>> [row["what"] for row in stream]
    ['a', 'b', 'c']
    >>> [row["what"] for row in stream.shard(0, 2)]
    ['a']
    """

    def __init__(
        self,
        url: str | Callable[[], Any],
        query: str,
        key: str,
        params: Any = (),
        *,
        load: Callable[[dict[str, Any]], Any] | None = None,
        transform: Callable[[Any], Any] | None = None,
        chunk: int = CHUNK,
        bounds: tuple[int, int] | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        self._keyed = Keyed(Database(url), check_query(query), check_params(params), key)
        self.load = check_function("load", load)
        self.transform = check_function("transform", transform)
        self.chunk = check_whole("chunk", chunk, least=1)
        count, index = self.ranks = ranks(num_replicas, rank, alone=True)
        self.part = KeyRange(index, count)
        about = self._keyed.about(_check_bounds(bounds))
        self._bounds = about.bounds
        if about.is_empty:
            warnings.warn(
                f"{self._keyed.database}: the query gives no rows: look at its conditions and params. The query: "
                f"{shortened(self._keyed.query)}",
                stacklevel=2,
            )

    @property
    def key(self) -> str:
        """The name of the column that orders the rows."""
        return self._keyed.key

    @property
    def fingerprint(self) -> str:
        """A fingerprint of the query, not of the rows: a state is not continued with another query."""
        asked = repr((self._keyed.query, self._keyed.params, self.key)).encode(errors="surrogatepass")
        return f"query by {self.key}, {hashlib.blake2b(asked, digest_size=8).hexdigest()}"

    def shard(self, index: int, count: int) -> SQLStream:
        """A part of this stream; all parts together are this stream."""
        part = copy.copy(self)
        part.part = self.part.split(index, count)
        return part

    def __iter__(self) -> Iterator[Any]:
        note_sharing(self.ranks[0])
        return CursorReading(self)

    def __repr__(self) -> str:
        return f"SQLStream({str(self._keyed.database)!r}, {shortened(self._keyed.query)!r}, key={self.key!r})"

    def ends(self) -> Ends | None:
        """The range of keys of this part; None if a hash decides."""
        return None if self._bounds is None else self.part.ends(*self._bounds)

    def asked(self, ends: Ends | None, start: Key | None, plainly: bool) -> Asked:
        """The rows from a key on."""
        return self._keyed.rows(self.part, ends, start, self.chunk, plainly)

    def check_names(self, names: list[str]) -> None:
        """Check that each name occurs once, and that the key is one of them."""
        if self.key not in checked_names(names):  # the database accepted it: it may be Id instead of id
            raise OptionError(f"key must be one of the names that the query gives, {names}; got {self.key!r}")

    def mine(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The rows of this part, if the server could not select them."""
        if self._bounds is not None or self.part.count == 1 or self._keyed.hashes_there:
            return rows
        return list(compress(rows, self.part.keeps([row[self.key] for row in rows])))

    def checked(self, row: dict[str, Any], before: Key | None) -> Key:
        """The row's key as a JSON value; an error if it has none, or the same as the row before."""
        key = row[self.key]
        if key is None:
            raise self._keyed.null()
        plain: Key = key if isinstance(key, int | float | str) else str(key)
        if plain == before:
            raise self._keyed.twice(key)
        return plain

    def sample(self, row: dict[str, Any]) -> Any:
        """The sample made from a row."""
        try:
            sample = row if self.load is None else self.load(row)
            return sample if self.transform is None else self.transform(sample)
        except Exception as error:
            add_note(error, f"feedline: at the row with {self.key} = {row[self.key]!r}")
            raise


class CursorReading:
    """A stream while it is read: one connection, opened for the first row."""

    def __init__(self, stream: SQLStream) -> None:
        self._stream = stream
        self._ends = stream.ends()
        self._after: Key | None = None
        self._asked: Asked | None = None
        self._rows: Iterator[dict[str, Any]] = iter(())
        self._again: Key | None = None
        """The key after which reading continued; its row comes first again."""
        self._plainly = False
        self._ended = False

    def __iter__(self) -> CursorReading:
        return self

    def __next__(self) -> Any:
        row = next(self._rows, None)
        while row is None:
            self._rows = iter(self._chunk())
            row = next(self._rows, None)
        self._after = self._stream.checked(row, self._after)
        return self._stream.sample(row)

    def _chunk(self) -> list[dict[str, Any]]:
        """The next rows; StopIteration if there are none."""
        if self._ended:
            raise StopIteration
        if self._asked is None:
            self._again = self._after
            self._asked = self._stream.asked(self._ends, self._after, self._plainly)
        try:
            batch = next(self._asked)
        except MixedTypes:
            self._asked, self._plainly = None, True
            return []
        except StopIteration:
            self._asked, self._ended = None, True
            raise
        except BaseException:
            self._asked = None  # if reading continues, it does so after the last key
            raise
        self._stream.check_names(batch.schema.names)
        rows = self._stream.mine(batch.to_pylist())
        if self._again is not None and rows:
            again, self._again = self._again, None
            # Usually the first row. Before it there are only rows whose keys are equal in the column's collation.
            keys = [row[self._stream.key] for row in rows]
            return rows[next((at + 1 for at, key in enumerate(keys) if key == again or str(key) == again), 0) :]
        return rows

    def state_dict(self) -> dict[str, Any]:
        """The key after which to continue, and the part."""
        return {"after": self._after, "ends": self._ends, "part": [self._stream.part.index, self._stream.part.count]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue there. The range is the one it began with, even if rows were added to the table since."""
        part = self._stream.part
        if tuple(state["part"]) != (part.index, part.count):
            then, now = "part {} of {}".format(*state["part"]), f"part {part.index} of {part.count}"
            raise StateError(
                f"the state is for {then} of the table, and this is {now}: each rank must continue from its own "
                "state, with as many ranks as before"
            )
        self.close()
        ends = state["ends"]
        self._after, self._ends = state["after"], None if ends is None else (ends[0], ends[1])
        self._rows, self._ended = iter(()), False

    def close(self) -> None:
        """Release the connection."""
        asked, self._asked = self._asked, None
        if asked is not None:
            asked.close()


def _check_bounds(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, tuple | list) or len(value) != 2 or not all(type(each) is int for each in value):
        raise OptionTypeError(f"bounds must be the key's least and greatest value, two whole numbers; got {value!r}")
    if value[0] > value[1]:
        raise OptionError(f"bounds must be the least and then the greatest; got {value!r}")
    return value[0], value[1]
