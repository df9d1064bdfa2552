"""A single statement that only reads: checks that drivers do not do themselves.

Takes: a query, as it is sent to SQLite or DuckDB. Gives: nothing, or an error that says what to write instead.
Promises: a second statement is an error (ADBC's SQLite would run only the first, DuckDB would return the rows of the
last), and so is one that makes files: in SQLite, attaching a database creates it, even from a read-only connection,
DuckDB copies tables to files, and MySQL writes INTO OUTFILE, or ends a read-only transaction by COMMIT.
Not its job: what the server or the file refuses itself (PostgreSQL refuses all of it).
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


_QUOTED = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--(?=\s|$)[^\n]*|#[^\n]*|/\*(?!M?!).*?(?:\*/|$)""",
    re.DOTALL,
)
"""What says nothing in MySQL: texts, names in quotes, comments (but /*! … */ is no comment)."""
_MYSQL_READS = re.compile(r"[\s(]*(?:SELECT|WITH|TABLE|VALUES|SHOW|DESC|DESCRIBE)\b", re.IGNORECASE)
_MYSQL_WRITES = re.compile(r"\bINTO\s+(?:OUTFILE|DUMPFILE)\b", re.IGNORECASE)


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


def check_mysql(query: str) -> None:
    """By its words: the server says nothing about a statement without doing it.

    >>> check_mysql("SELECT 'a; b' AS a, `INTO OUTFILE` FROM t -- ; that is all")
    >>> check_mysql("SELECT 1 INTO OUTFILE '/tmp/x'")
    Traceback (most recent call last):
        ...
    feedline.errors.SourceError: the query is not a SELECT, and a source only reads: give a SELECT. The query: ...
    """
    plain = _QUOTED.sub(" ", query)
    if ";" in plain:
        raise _several(query)
    if _MYSQL_READS.match(plain) is None or _MYSQL_WRITES.search(plain):
        raise _no_select(query)


def _several(query: str) -> OptionError:
    return OptionError(
        f"query has several statements, and only one is allowed: give one SELECT. The query: {shortened(query)}"
    )


def _no_select(query: str) -> SourceError:
    return SourceError(
        f"the query is not a SELECT, and a source only reads: give a SELECT. The query: {shortened(query)}"
    )
