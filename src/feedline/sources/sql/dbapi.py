"""A connection by any driver that follows Python's DB-API: rows as Python's objects, made into columns here.

Takes: a connection; a query with its values. Gives: record batches, as drivers does.
Promises: a column whose values are of several types is named, with the remedy.
Not its job: speed: each value is a Python object first.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Mapping
from typing import Any

from feedline.errors import OptionTypeError
from feedline.extras import extra
from feedline.sources.sql.gathering import no_one_type
from feedline.sources.sql.parameters import STYLES, Params


class AnyConnection:
    """Of the user's driver."""

    def __init__(self, connection: Any) -> None:
        if not callable(getattr(connection, "cursor", None)):
            raise OptionTypeError(
                f"url must return a DB-API connection, which has cursor(); it returned a {type(connection).__name__}"
            )
        self._connection = connection
        self.style = style_of(connection)

    def batches(self, query: str, params: Params, rows: int) -> Generator[Any, None, None]:
        """What the query gives."""
        pyarrow = extra("pyarrow", "sql", "SQL")
        cursor = self._connection.cursor()
        try:
            cursor.execute(query, params) if params else cursor.execute(query)
            if cursor.description is None:
                return
            names = [column[0] for column in cursor.description]
            some = cursor.fetchmany(rows)
            while True:
                yield pyarrow.RecordBatch.from_arrays(_columns(pyarrow, names, some), names)
                some = cursor.fetchmany(rows)
                if not some:
                    return
        finally:
            cursor.close()

    def close(self) -> None:
        """Nothing is open afterwards."""
        self._connection.close()


def style_of(connection: Any) -> str:
    """How its driver's placeholders look; "qmark" if it doesn't say.

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


def _columns(pyarrow: Any, names: list[str], rows: list[Any]) -> list[Any]:
    if rows and isinstance(rows[0], Mapping):  # a driver told to give dicts
        rows = [tuple(row.values()) for row in rows]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(names)
    return [_column(pyarrow, name, values) for name, values in zip(names, columns, strict=True)]


def _column(pyarrow: Any, name: str, values: tuple[Any, ...]) -> Any:
    try:
        return pyarrow.array(values)
    except (pyarrow.ArrowException, OverflowError) as error:
        kinds = sorted({type(value).__name__ for value in values if value is not None})
        raise no_one_type(name, kinds, error) from error
