"""Connections by drivers that return Arrow: SQLite and PostgreSQL by ADBC, DuckDB by its own package.

Takes: where a database is; a query with its values. Gives: record batches of at most `rows` rows, one after the other;
the first even if it is empty (it has the columns).
Promises: it only reads: nothing can be written, and no file is made. PostgreSQL is read through a server-side cursor,
so that neither side holds more than a batch. Not its job: explaining errors (mistakes).
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from typing import Any
from urllib.parse import quote

from feedline.errors import OptionError
from feedline.errors.missing_packages import extra
from feedline.sources.sql.digits import check_digits
from feedline.sources.sql.mistakes import MixedTypes
from feedline.sources.sql.parameters import Params
from feedline.sources.sql.statements import check_duckdb, check_sqlite

CONNECT_TIMEOUT = 10
"""Seconds to wait for a host, unless the URL (connect_timeout=) or PGCONNECT_TIMEOUT says otherwise."""

Batches = Generator[Any, None, None]


class SQLite:
    """Through ADBC, which takes a column's type from its first rows."""

    style = "qmark"

    def __init__(self, path: str) -> None:
        driver = extra("adbc_driver_sqlite.dbapi", "sql", "a sqlite:/// URL")
        self._connection = driver.connect(read_only(path))

    def batches(self, query: str, params: Params, rows: int) -> Batches:
        """The record batches of the query."""
        check_sqlite(query)
        cursor = self._connection.cursor(adbc_stmt_kwargs={"adbc.sqlite.query.batch_rows": str(rows)})
        try:
            wanted = cursor.adbc_prepare(query).names
            cursor.execute(query, _in_order(wanted, params) if isinstance(params, dict) else params)
            for number, batch in enumerate(_with_columns(cursor.fetch_record_batch())):
                if number or batch.num_rows > 1:  # a single value has its own type
                    check_digits(batch)
                yield batch
        except OSError as error:
            if "Type mismatch" in str(error):
                raise MixedTypes(str(error)) from error
            raise
        finally:
            cursor.close()

    def close(self) -> None:
        """Close everything."""
        self._connection.close()


class PostgreSQL:
    """Through ADBC: binary rows from a server-side cursor in a read-only transaction."""

    style = "dollar"

    def __init__(self, url: str) -> None:
        driver = extra("adbc_driver_postgresql.dbapi", "sql", "a postgresql:// URL")
        self._connection = driver.connect(_with_timeout(url))
        self._asked = 0
        with self._connection.cursor() as cursor:
            cursor.execute("SET TRANSACTION READ ONLY")

    def batches(self, query: str, params: Params, rows: int) -> Batches:
        """The record batches of the query."""
        if isinstance(params, dict):
            raise OptionError("PostgreSQL has no params by name: write $1, $2, … and give a tuple")
        self._asked += 1
        name = f"feedline_{self._asked}"
        with self._connection.cursor() as cursor:
            cursor.execute(f"DECLARE {name} NO SCROLL CURSOR FOR {query}", params or None)
        # COPY, the driver's default, cannot read from a cursor.
        cursor = self._connection.cursor(adbc_stmt_kwargs={"adbc.postgresql.use_copy": "false"})
        try:
            while True:
                cursor.execute(f"FETCH FORWARD {rows} FROM {name}")
                count = 0
                for batch in _with_columns(cursor.fetch_record_batch()):
                    count += batch.num_rows
                    yield batch
                if count < rows:
                    break
        finally:
            cursor.close()

    def close(self) -> None:
        """Close everything."""
        self._connection.close()


class DuckDB:
    """Through its own package, read-only: any number of processes may read one file."""

    style = "qmark"

    def __init__(self, path: str) -> None:
        extra("pyarrow", "sql", "a duckdb:/// URL")
        driver = extra("duckdb", "duckdb", "a duckdb:/// URL")
        self._connection = driver.connect(path, read_only=True)
        self._connection.execute("SET python_enable_replacements = false")  # our Python variables are no tables

    def batches(self, query: str, params: Params, rows: int) -> Batches:
        """The record batches of the query."""
        check_duckdb(query, self._connection.extract_statements(query))
        found = self._connection.sql(query, params=params or None)
        if found is not None:  # None: the statement returns no rows
            yield from _with_columns(found.to_arrow_reader(rows))

    def close(self) -> None:
        """Close everything."""
        self._connection.close()


def read_only(path: str) -> str:
    """A SQLite URI that opens a file without creating or changing it."""
    return f"file:{quote(path)}?mode=ro"


def _with_columns(reader: Any) -> Batches:
    """The reader's batches; an empty one if there is none."""
    pyarrow = extra("pyarrow", "sql", "SQL")
    is_empty = True
    for batch in reader:
        if batch.num_rows:
            is_empty = False
            yield batch
    if is_empty:
        yield pyarrow.RecordBatch.from_pylist([], schema=reader.schema)


def _in_order(wanted: list[str], params: dict[str, Any]) -> tuple[Any, ...]:
    """Values by name, in the order of the query's placeholders (`:a`, `@a` or `$a`)."""
    missing = [name for name in wanted if name[1:] not in params]
    if missing:
        known = ", ".join(params) or "none"
        raise OptionError(f"params have no value for {', '.join(missing)} of the query; they have {known}")
    return tuple(params[name[1:]] for name in wanted)


def _with_timeout(url: str) -> str:
    if re.search(r"[?&]connect_timeout=", url) or "PGCONNECT_TIMEOUT" in os.environ:
        return url
    return f"{url}{'&' if '?' in url else '?'}connect_timeout={CONNECT_TIMEOUT}"
