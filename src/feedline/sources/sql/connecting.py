"""Runs a query: connects, reads batch by batch, closes, and explains an error in words.

Takes: a database, queries and their values. Gives: `SQLSession`, a connection for queries; `Asked`, an iterator over
the record batches of one query, with a connection of its own.
Promises: a connection is closed at the end, after an error, and when nobody refers to it; none is kept for later.
Not its job: what becomes of the rows (columns, stream).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from typing import Any

from feedline.errors import OptionError, OptionTypeError
from feedline.machine.finalizers import undisturbed
from feedline.sources.sql.database import Database
from feedline.sources.sql.dbapi import AnyConnection
from feedline.sources.sql.drivers import DuckDB, PostgreSQL, SQLite, read_only
from feedline.sources.sql.mistakes import shortened, telling
from feedline.sources.sql.mysql import MySQL
from feedline.sources.sql.parameters import Params

Connection = SQLite | PostgreSQL | MySQL | DuckDB | AnyConnection

_KNOWN: dict[str, Callable[[str], Connection]] = {
    "sqlite": SQLite,
    "duckdb": DuckDB,
    "postgresql": PostgreSQL,
    "mysql": MySQL,
}


class SQLSession:
    """An open connection."""

    def __init__(self, database: Database, plainly: bool = False) -> None:
        self._database = database
        self._connection: Connection | None = None
        with telling(database):
            self._connection = connect(database, plainly)
        self.style = self._connection.style
        """The style of its placeholders."""

    def ask(self, query: str, params: Params, rows: int, shown: str = "") -> Generator[Any, None, None]:
        """The record batches of a query; errors show `shown`, the user's own query, if it is given."""
        assert self._connection is not None
        batches = self._connection.batches(query, params, rows)
        try:
            while True:
                with telling(self._database, shown or query):
                    batch = next(batches, None)
                if batch is None:
                    return
                yield batch
        finally:
            batches.close()

    def close(self) -> None:
        """Close everything."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Asked:
    """The record batches of one query, while its connection is open."""

    def __init__(
        self, database: Database, query: str, params: Params, rows: int, plainly: bool = False, shown: str = ""
    ) -> None:
        self._session: SQLSession | None = None
        self._session = SQLSession(database, plainly)
        self._batches = self._session.ask(query, params, rows, shown)

    def __iter__(self) -> Asked:
        return self

    def __next__(self) -> Any:
        """The next batch. MixedTypes if the query must be run again, plainly."""
        try:
            return next(self._batches)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close everything."""
        session, self._session = self._session, None
        if session is not None:
            self._batches.close()
            session.close()

    @undisturbed
    def __del__(self) -> None:
        if getattr(self, "_session", None) is not None:
            self.close()


def connect(database: Database, plainly: bool = False) -> Connection:
    """A new connection; `plainly` uses Python's own sqlite3, which has no column types."""
    if callable(database.where):
        return AnyConnection(database.where())
    database.check_file()
    database.check_password()
    if plainly and database.kind == "sqlite":
        return AnyConnection(sqlite3.connect(read_only(database.path), uri=True, check_same_thread=False), mixed=True)
    return _KNOWN[database.kind](database.path or database.where)


def check_query(value: Any) -> str:
    """A query's text, without a semicolon at its end."""
    if not isinstance(value, str):
        raise OptionTypeError(f"query must be a text of SQL; got a {type(value).__name__}")
    query = value.strip().rstrip(";").rstrip()
    if not query:
        raise OptionError("query is empty: give a SELECT")
    return query


def no_columns(database: Database, query: str) -> OptionError:
    """The error for a statement that returns no rows."""
    return OptionError(f"{database}: the query gives no columns, so it is not a SELECT: {shortened(query)}")
