"""A single statement that only reads: checks that drivers do not do themselves.

Takes: a query, as it is sent to SQLite or DuckDB. Gives: nothing, or an error that says what to write instead.
Promises: a second statement is an error (ADBC's SQLite would run only the first, DuckDB would return the rows of the
last), and so is one that makes files: in SQLite, attaching a database creates it, even from a read-only connection, and
DuckDB copies tables to files. Not its job: what the server or the file refuses itself (PostgreSQL refuses both).
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any

from feedline.errors import OptionError, SourceError
from feedline.sources.sql.mistakes import shortened

_NOTHING = r"(?:[\s;\ufeff]|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$))*"
_EMPTY = re.compile(_NOTHING, re.DOTALL)
_MAKES_FILES = re.compile(_NOTHING + r"(?:ATTACH|DETACH|VACUUM)\b", re.DOTALL | re.IGNORECASE)
_READS = ("SELECT", "PRAGMA", "CALL", "MULTI")
"""DuckDB's names of statements; "MULTI" is PIVOT. EXPLAIN is not in the list: with ANALYZE it does what it explains."""


def check_sqlite(query: str) -> None:
    """Uses Python's own SQLite, which knows where a statement ends and needs no database for that.

    >>> check_sqlite("SELECT ';' AS a -- ; that is all")
    >>> check_sqlite("SELECT 1; SELECT 2")
    Traceback (most recent call last):
        ...
    feedline.errors.OptionError: query has several statements, and only one is allowed: give one SELECT. The query: ...
    """
    if _MAKES_FILES.match(query):
        raise _no_select(query)
    for end in (found.end() for found in re.finditer(";", query)):
        if _EMPTY.fullmatch(query, 0, end) is None and sqlite3.complete_statement(query[:end]):
            if _EMPTY.fullmatch(query, end) is None:
                raise _several(query)
            return  # the first statement ends here, and there is no other


def check_duckdb(query: str, statements: list[Any]) -> None:
    """Checks the statements that DuckDB itself has found in the query."""
    if len(statements) > 1:
        raise _several(query)
    for statement in statements:
        if statement.type.name not in _READS:
            raise _no_select(query)


def _several(query: str) -> OptionError:
    return OptionError(
        f"query has several statements, and only one is allowed: give one SELECT. The query: {shortened(query)}"
    )


def _no_select(query: str) -> SourceError:
    return SourceError(
        f"the query is not a SELECT, and a source only reads: give a SELECT. The query: {shortened(query)}"
    )
