"""A query with a key: its rows from a key on, of one part, in the order of the key.

Takes: a database, a query, its values, the name of its key. Gives: what is known about the key (`About`); the rows of a
part from a key on, ordered by it.
Promises: values are bound; the user's query is used unchanged, inside a query of ours.
Not its job: keeping the place (sql_stream).
"""

from __future__ import annotations

import re
from datetime import date, time
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

from feedline.errors import OptionError, OptionTypeError, SourceError
from feedline.sources.sql.connecting import Asked, SQLSession, no_columns
from feedline.sources.sql.database import Database
from feedline.sources.sql.mistakes import OURS, shortened
from feedline.sources.sql.parameters import Bound, Params
from feedline.sources.sql.sql_parts import KeyRange

Key = int | float | str
Ends = tuple[int | None, int | None]
WRITTEN = str | float | bool | UUID | date | time | Decimal
"""Types that servers can read in the form that Python writes; not bytea, intervals, arrays, addresses."""
HASHES = {
    "postgresql": "((hashtextextended(CAST({0} AS text), 0) >> 32) & 4294967295)",
    # Of a text of ours: the query itself may have chosen its rows by a hash of this column.
    "mysql": "CAST(CONV(LEFT(MD5(CONCAT('feedline', CAST({0} AS CHAR))), 8), 16, 10) AS UNSIGNED)",
}
"""A hash of the key, as 32 bits."""


class About(NamedTuple):
    """What is known about a key."""

    is_empty: bool
    bounds: tuple[int, int] | None
    """The smallest and largest key, if keys are integers; None for any other key, which is shared out by hash."""


class Keyed:
    """A query with a key."""

    def __init__(self, database: Database, query: str, params: Params, key: str) -> None:
        if not isinstance(key, str) or not key:
            raise OptionTypeError(f"key must be the name of a column that the query gives; got {key!r}")
        self.database, self.query, self.params, self.key = database, query, params, key
        if database.kind == "dbapi":  # its way of quoting is unknown
            if re.fullmatch(r"\w+", key) is None:
                raise OptionError(f"key must be a plain name here; got {key!r}")
            self._column = f"{OURS}.{key}"
        else:  # with the table's name: otherwise SQLite takes an unknown column in quotes for a text
            quote = "`" if database.kind == "mysql" else '"'
            self._column = f"{OURS}.{quote}{key.replace(quote, 2 * quote)}{quote}"
        self._style = ""
        self._kind = ""
        """The server's name for the type of the key, if it is no integer."""

    def about(self, bounds: tuple[int, int] | None) -> About:
        """Query the facts about the key; `bounds`, if given, are known already."""
        session = SQLSession(self.database)
        try:
            self._style = session.style
            return self._seen(session, bounds)
        finally:
            session.close()

    def _seen(self, session: SQLSession, bounds: tuple[int, int] | None) -> About:
        order = f" ORDER BY {self._column}"
        first = self._one(session, self._text(self._column, "", order))
        if first is None:
            return About(True, bounds or (0, 0))
        key, self._kind = first
        if key is None or self._one(session, self._text(self._column, f" WHERE {self._column} IS NULL")) is not None:
            raise self.null()
        if isinstance(key, int) and not isinstance(key, bool):
            self._kind = ""
            found = self._one(session, self._text(f"MAX({self._column})"))
            most = found[0] if found else key
            if not isinstance(most, int | float | Decimal):  # SQLite's columns can hold anything
                raise self._no_key(key, most)
            return About(False, bounds or (key, int(most)))
        if not isinstance(key, WRITTEN if self._kind else str | float):
            raise self._no_key(key)
        return About(False, None)

    def _no_key(self, *keys: Any) -> OptionTypeError:
        kinds = " and a ".join(type(key).__name__ for key in keys)
        return OptionTypeError(
            f"key {self.key!r} is a {kinds}, but must be whole numbers or texts: let the query convert it, such as "
            f"CAST({self.key} AS {self.database.text}) AS {self.key}"
        )

    def _no_order(self, why: str, instead: str) -> OptionTypeError:
        return OptionTypeError(
            f"key {self.key!r} is of type {why}, so a stream could not go on after one: let the query convert it, "
            f"such as {instead.format(self.key)} AS {self.key}"
        )

    def rows(self, part: KeyRange, ends: Ends | None, start: Key | None, chunk: int, plainly: bool) -> Asked:
        """The rows of a part from a key on, in its order; the part is the range `ends`, or else decided by hash."""
        bound = Bound(self._style, self.params)
        conditions = []
        for sign, key in ((">=", start), (">=", ends[0] if ends else None), ("<", ends[1] if ends else None)):
            if key is not None:
                conditions.append(f"{self._column} {sign} {self._value(bound, key)}")
        if ends is None and part.count > 1 and self.hashes_there:
            word = HASHES[self.database.kind].format(self._column)
            conditions.append(f"(({word} * {part.count}) >> 32) = {part.index}")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        text = self._text("*", where, f" ORDER BY {self._column}", bound.text(self.query))
        return Asked(self.database, text, bound.params, chunk, plainly, shown=self.query)

    @property
    def hashes_there(self) -> bool:
        """Can the server decide to which part a row belongs? Otherwise all rows are read, and some left out."""
        return self.database.kind in HASHES

    def null(self) -> SourceError:
        """The error for a row that has no key."""
        return SourceError(
            f"{self.database}: key {self.key!r} is NULL in some row, which therefore has no position in the order: "
            f"leave such rows out (WHERE {self.key} IS NOT NULL) or take another key. The query: "
            f"{shortened(self.query)}"
        )

    def twice(self, key: Any) -> SourceError:
        """The error for a key that several rows have."""
        return SourceError(
            f"{self.database}: {self.key} = {key!r} comes more than once, so a resumed stream could not tell those "
            f"rows apart: take a key that is unique, or make the rows so (DISTINCT, GROUP BY). The query: "
            f"{shortened(self.query)}"
        )

    def _value(self, bound: Bound, key: Key) -> str:
        if not self._kind:
            return bound.add(key)
        return f"CAST(CAST({bound.add(str(key))} AS {self.database.text}) AS {self._kind})"

    def _text(self, what: str, where: str = "", order: str = "", query: str = "") -> str:
        # On lines of its own: the query may end with a comment.
        return f"SELECT {what} FROM (\n{query or self.query}\n) {OURS}{where}{order}"

    def _one(self, session: SQLSession, text: str) -> tuple[Any, str] | None:
        """The value in the first row, and the server's name for its type."""
        limit = "" if self.database.kind == "dbapi" else " LIMIT 1"  # not every database has LIMIT
        asked = session.ask(text + limit, self.params, 1, shown=self.query)
        batch = next(asked, None)
        del asked  # at once: DuckDB has one result at a time
        if batch is None:
            raise no_columns(self.database, self.query)
        about = batch.schema.field(0).metadata or {}
        if b"MYSQL:no key" in about:
            raise self._no_order(*about[b"MYSQL:no key"].decode().split("\0"))
        kind = (about.get(b"POSTGRESQL:type") or about.get(b"MYSQL:type", b"")).decode()
        kind = kind if re.fullmatch(r"\w+(\([\d, ]+\))?", kind) else ""
        return (batch.column(0)[0].as_py(), kind) if batch.num_rows else None
