"""A connection by any driver that follows Python's DB-API: rows are Python objects, made into columns here.

Takes: a connection; a query with its values. Gives: record batches, as drivers does.
Promises: a column with values of several types is an error that names it, with the remedy.
Not its job: speed: each value is a Python object first.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from typing import Any

from feedline.errors import OptionTypeError
from feedline.errors.missing_packages import extra
from feedline.sources.sql.gathering import no_one_type
from feedline.sources.sql.parameters import STYLES, Params


class AnyConnection:
    """A user's driver; `mixed` for SQLite's own, where a column of numbers and texts (or bytes) becomes all texts."""

    def __init__(self, connection: Any, mixed: bool = False) -> None:
        if not callable(getattr(connection, "cursor", None)):
            raise OptionTypeError(
                f"url must return a DB-API connection, which has cursor(); it returned a {type(connection).__name__}"
            )
        self._connection = connection
        self._mixed = mixed
        self.style = style_of(connection)

    def batches(self, query: str, params: Params, rows: int) -> Generator[Any, None, None]:
        """The record batches of the query."""
        pyarrow = extra("pyarrow", "sql", "SQL")
        cursor = self._connection.cursor()
        try:
            cursor.execute(query, params) if params else cursor.execute(query)
            if cursor.description is None:
                return
            names = [column[0] for column in cursor.description]
            some = cursor.fetchmany(rows)
            while True:
                yield pyarrow.RecordBatch.from_arrays(self._columns(pyarrow, names, some), names)
                some = cursor.fetchmany(rows)
                if not some:
                    return
        finally:
            cursor.close()

    def close(self) -> None:
        """Close everything."""
        self._connection.close()

    def _columns(self, pyarrow: Any, names: list[str], rows: list[Any]) -> list[Any]:
        if rows and isinstance(rows[0], Mapping):  # the driver was configured to return dicts
            rows = [tuple(row.values()) for row in rows]
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
        return [_column(pyarrow, name, values, self._mixed) for name, values in zip(names, columns, strict=True)]


def style_of(connection: Any) -> str:
    """The style of its driver's placeholders; "qmark" if the driver doesn't say.

    >>> import sqlite3
    >>> with sqlite3.connect(":memory:") as connection:
    ...     style_of(connection)
    'qmark'
    >>> connection.close()
    """
    for kind in type(connection).__mro__:
        style = getattr(sys.modules.get(kind.__module__.partition(".")[0]), "paramstyle", None)
        if style in STYLES:
            return str(style)
    return "qmark"


def _column(pyarrow: Any, name: str, values: tuple[Any, ...], mixed: bool) -> Any:
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError) as error:
        kinds = {type(value) for value in values if value is not None}
        if mixed and kinds & {str, bytes}:
            return pyarrow.array([value if value is None else _written(value, bytes in kinds) for value in values])
        raise no_one_type(name, sorted(kind.__name__ for kind in kinds), error) from error


def _written(value: Any, as_bytes: bool) -> str | bytes:
    """A number as text, with all its digits; everything as bytes if some values are bytes.

    >>> _written(0.1, False), _written("a", True)
    ('0.1', b'a')
    """
    if isinstance(value, bytes):
        return value
    text = value if isinstance(value, str) else repr(value)
    return text.encode() if as_bytes else text
