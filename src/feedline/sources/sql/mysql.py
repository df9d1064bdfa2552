"""Connections to MySQL and MariaDB, by PyMySQL.

Takes: a URL; a query with its values. Gives: record batches, as drivers does; columns have the types that the server
says, also if they hold nothing.
Promises: it only reads, in a read-only transaction. Rows come while the server sends them, so that neither side holds
all; a reader that pauses for hours is not cut off, and one that stops early does not read the rest. DECIMAL comes as an
exact text. A FLOAT column is warned of, because the server itself sends only six of its digits.
Not its job: explaining errors (mistakes).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from feedline.errors import OptionError
from feedline.errors.masking import address
from feedline.errors.missing_packages import extra
from feedline.sources.sql.drivers import CONNECT_TIMEOUT, Batches
from feedline.sources.sql.gathering import no_one_type
from feedline.sources.sql.parameters import Params
from feedline.sources.sql.statements import check_mysql

PATIENCE = 365 * 24 * 3600
"""Seconds that the server waits for a reader that does not read. It would hang up after 60: training may pause longer
(a validation), while batches that are ready wait for it."""
STEP = 1024
"""Rows that are Python objects at a time: 300,000 of benchmarks/sql.py took 0.83 s with so many, and 1.07 s with 8,192
or 65,536. (fetchall() took 0.72 s.)"""
BINARY = 63
"""The server's number for "no character set": the bytes are not a text."""
UNSIGNED, COMPUTED, ENUM, SET = 32, 128, 256, 2048
"""Flags of a column; the second one only says so of a BIT."""
NO_KEYS = {
    "BIT": ("the server computes with it now as bits, now as digits", "{} + 0"),
    "ENUM": ("it is ordered by number, and compared as a text", "CAST({} AS CHAR)"),
    "SET": ("it is ordered by number, and compared as a text", "CAST({} AS CHAR)"),
    "JSON": ("it is not ordered as a text is", "CAST({} AS CHAR)"),
    "TIMESTAMP": ("when clocks are set back, two moments look the same", "UNIX_TIMESTAMP({})"),
}
"""Types in whose order a stream could not go on after a value: why, and what to write instead."""


def _flag(text: str) -> bool:
    return text.lower() in ("1", "true", "yes")


OPTIONS: dict[str, Callable[[str], Any]] = {
    "connect_timeout": int,
    "read_default_file": os.path.expanduser,
    "read_timeout": int,
    "ssl_ca": str,
    "ssl_cert": str,
    "ssl_key": str,
    "ssl_verify_cert": _flag,
    "ssl_verify_identity": _flag,
    "unix_socket": str,
}
"""What may follow the ? of a URL: PyMySQL's names."""


FILES = ("read_default_file", "ssl_ca", "ssl_cert", "ssl_key")
"""Options that name a file, which has to be there."""


class MySQL:
    """A connection. Nothing keeps its rows before they are asked for."""

    style = "pyformat"

    def __init__(self, url: str) -> None:
        driver, self._arrow, self._cursors, types, converters = (
            extra(name, "mysql", "a mysql:// URL")
            for name in ("pymysql", "pyarrow", "pymysql.cursors", "pymysql.constants.FIELD_TYPE", "pymysql.converters")
        )
        conv = converters.conversions | {types.DECIMAL: str, types.NEWDECIMAL: str}
        self._connection = driver.connect(**connecting(url), charset="utf8mb4", conv=conv)
        self._told = False
        with self._connection.cursor() as cursor:
            cursor.execute(f"SET SESSION net_write_timeout = {PATIENCE}")
            cursor.execute("START TRANSACTION READ ONLY")

    def batches(self, query: str, params: Params, rows: int) -> Batches:
        """The record batches of the query. Some rows are read ahead, so that it is known which batch is the last."""
        check_mysql(query)
        cursor = self._connection.cursor(self._cursors.SSCursor)
        try:
            _execute(cursor, query, params)
            if cursor.description is None:
                return
            # The public description says neither what is unsigned nor what is bytes.
            columns = [_Column(self._arrow, field) for field in cursor._result.fields]
            self._warn_of_floats([column.name for column in columns if column.is_float])
            schema = self._arrow.schema([column.field for column in columns])
            ahead = cursor.fetchmany(min(STEP, rows))
            if not ahead:
                yield self._arrow.RecordBatch.from_pylist([], schema=schema)
            while ahead:
                parts, count = [], 0
                while ahead and count < rows:
                    count += len(ahead)
                    parts.append(
                        [each.array(values) for each, values in zip(columns, zip(*ahead, strict=True), strict=True)]
                    )
                    ahead = cursor.fetchmany(min(STEP, rows - count or rows))
                arrays = [self._arrow.concat_arrays(same) for same in zip(*parts, strict=True)]
                yield self._arrow.RecordBatch.from_arrays(arrays, schema=schema)
        finally:
            result = cursor._result
            if result is not None and result.unbuffered_active:  # closing would first read all that is left
                result.unbuffered_active = False
                self.close()
            cursor.close()

    def close(self) -> None:
        """Close everything."""
        if self._connection.open:
            self._connection.close()

    def _warn_of_floats(self, names: list[str]) -> None:
        if names and not self._told:
            self._told = True
            warnings.warn(
                f"column {', '.join(names)} is a FLOAT, of which MySQL sends six digits (16777215 comes as 16777200): "
                f"let the query give all of them, by CAST({names[0]} AS DOUBLE) AS {names[0]}",
                stacklevel=2,
            )


class _Column:
    """A column of a result, as the server describes it."""

    def __init__(self, arrow: Any, field: Any) -> None:
        types = extra("pymysql.constants.FIELD_TYPE", "mysql", "a mysql:// URL")
        code = field.type_code
        self._arrow, self.name = arrow, str(field.name)
        self.is_float, self._is_bits = code == types.FLOAT, code == types.BIT
        if self._is_bits and field.flags & COMPUTED:
            raise OptionError(
                f"column {self.name} is a computed BIT, and servers send it now as bits, now as digits: let the query "
                "compute with a number instead, such as MAX(flag + 0)"
            )
        written, self._kind = "", arrow.null()
        if self._is_bits or (code == types.LONGLONG and field.flags & UNSIGNED):
            self._kind = arrow.uint64()
        elif code in (types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG, types.YEAR):
            self._kind = arrow.int64()
        elif code in (types.FLOAT, types.DOUBLE):
            self._kind = arrow.float64()
        elif code in (types.DECIMAL, types.NEWDECIMAL):
            self._kind, written = arrow.string(), f"DECIMAL(65, {field.scale})"  # another scale would cut long ones
        elif code in (types.DATETIME, types.TIMESTAMP):
            self._kind, written = arrow.timestamp("us"), "DATETIME(6)"
        elif code in (types.DATE, types.NEWDATE):
            self._kind, written = arrow.date32(), "DATE"
        elif code == types.TIME:
            self._kind = arrow.duration("us")
        elif code != types.NULL:
            is_text = code == types.JSON or field.charsetnr != BINARY
            self._kind = arrow.string() if is_text else arrow.binary()
        # The type to which a key of this column is cast, after it was written as a text; "" if it need not be.
        about = {b"MYSQL:type": written.encode()}
        if (name := _no_key(types, field)) is not None:
            why, instead = NO_KEYS[name]
            about[b"MYSQL:no key"] = f"{name}: {why}\0{instead}".encode()
        self.field = arrow.field(self.name, self._kind, metadata=about)

    def array(self, values: Sequence[Any]) -> Any:
        """Values of it as an Arrow array."""
        if self._is_bits:
            values = [None if value is None else int.from_bytes(value, "big") for value in values]
        try:
            return self._arrow.array(values, self._kind)
        except (self._arrow.ArrowException, OverflowError, TypeError) as error:  # 0000-00-00 comes as a text
            kinds = sorted({type(value).__name__ for value in values if value is not None})
            raise no_one_type(self.name, kinds, error, "CHAR") from error


def _no_key(types: Any, field: Any) -> str | None:
    """The name of a column's type, if a stream cannot go by it."""
    for flag, name in ((ENUM, "ENUM"), (SET, "SET")):
        if field.flags & flag and field.type_code in (types.STRING, types.VAR_STRING, types.ENUM, types.SET):
            return name
    return {types.BIT: "BIT", types.JSON: "JSON", types.TIMESTAMP: "TIMESTAMP"}.get(field.type_code)


def _execute(cursor: Any, query: str, params: Params) -> None:
    try:
        cursor.execute(query, params or None)
    except KeyError as error:
        raise OptionError(
            f"params have no value for {error} of the query; they have {', '.join(dict(params)) or 'none'}"
        ) from None
    except ValueError as error:
        if "format" not in str(error):
            raise
        raise OptionError(
            f"params do not fit the query's placeholders ({error}): with params, a percent sign is written %%"
        ) from None


def connecting(url: str) -> dict[str, Any]:
    """PyMySQL's arguments for a URL.

    >>> connecting("mysql://ann:p%40ss@host:3307/shop?unix_socket=/run/my.sock") == {
    ...     "user": "ann", "password": "p@ss", "host": "host", "port": 3307, "database": "shop",
    ...     "unix_socket": "/run/my.sock", "connect_timeout": 10,
    ... }
    True
    """
    parts = urlsplit(url)
    try:
        given = {"host": parts.hostname, "port": parts.port}
    except ValueError as error:
        raise OptionError(f"url={address(url)!r}: the port is not a number of a port ({error})") from error
    given |= {"user": parts.username, "password": parts.password, "database": parts.path.removeprefix("/")}
    found = {name: unquote(value) if isinstance(value, str) else value for name, value in given.items() if value}
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name not in OPTIONS:
            raise OptionError(f"url={address(url)!r}: {name} is no option here; there are {', '.join(OPTIONS)}")
        try:
            found[name] = OPTIONS[name](value)
        except ValueError:
            raise OptionError(f"url={address(url)!r}: {name} must be a whole number; got {value!r}") from None
        if name in FILES and not os.path.isfile(found[name]):  # PyMySQL would ignore it, or not say which it is
            raise OptionError(f"url={address(url)!r}: {name}: there is no file {found[name]}")
    return {"connect_timeout": CONNECT_TIMEOUT} | found
