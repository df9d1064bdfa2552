"""What a source says of the address that it was given has no password, key or signature in it."""

from __future__ import annotations

import io
import pickle
import sqlite3
import traceback
from typing import Any

import pytest

from feedline import OptionError, SourceError
from feedline.sources import (
    FilesDataset,
    FolderDataset,
    ObjectDataset,
    ParquetDataset,
    SocketStream,
    SQLDataset,
    SQLStream,
    TarDataset,
)
from feedline.sources.object_store.store import _checked_url, _where
from feedline.sources.object_store.store_errors import told

pytestmark = pytest.mark.usefixtures("adbc_is_there")

DSN = "host=127.0.0.1 port=1 password=hush!42 user=me"
GIVEN = [
    lambda: SQLDataset("postgresql://me:hu@hush!42@127.0.0.1:1/db", "SELECT 1 AS a"),
    lambda: SQLDataset("postgresql://me:hu/hush!42@127.0.0.1:1/db", "SELECT 1 AS a"),
    lambda: SQLDataset("postgresql://me:hush!42@127.0.0.1:1/db", "SELECT 1 AS a"),
    lambda: SQLStream("postgresql://127.0.0.1:1/db?user=me&password=hush!42", "SELECT 1 AS a", key="a"),
    lambda: SQLDataset("mysql://me:hush!42@127.0.0.1:1/db", "SELECT 1 AS a"),
    lambda: SQLDataset("mysql://me:hu@hush!42@127.0.0.1:1/db", "SELECT 1 AS a"),
    lambda: SQLStream("mysql://127.0.0.1:1/db?user=me&password=hush!42", "SELECT 1 AS a", key="a"),
    lambda: SQLDataset(DSN, "SELECT 1 AS a"),
    lambda: SQLDataset("oracle://me:my hush!42@host/db", "SELECT 1 AS a"),
    lambda: SQLDataset("sqlite://me:hush!42@host/db", "SELECT 1 AS a"),
    lambda: SQLDataset(lambda: _refused(f"could not connect: {DSN}"), "SELECT 1 AS a"),
    lambda: SQLDataset(lambda: _refused("could not connect: host=x password=a,hush!42 user=me"), "SELECT 1 AS a"),
    lambda: SQLDataset(lambda: _refused("could not connect: host=x password='a hush!42'"), "SELECT 1 AS a"),
    lambda: SQLDataset(lambda: sqlite3.connect(":memory:"), "SELECT * FROM postgres_scan('password=hush!42')"),
    lambda: TarDataset("ftp://me:hush!42@host/a.tar"),
    lambda: TarDataset("https://me:hu/hush!42@host/a.tar"),
    lambda: TarDataset("s3://key:hush!42@bucket/"),
    lambda: TarDataset("https://hu@hush!42@127.0.0.1:1/a.tar"),
    lambda: _checked_url("s3://bucket/a.tar?X-Amz-Signature=hush!42"),
    lambda: ParquetDataset("https://me:hush!42@host/a.parquet"),
    lambda: ObjectDataset("https://me:hush!42@host/x"),
    lambda: FolderDataset("ftp://me:hush!42@host/a"),
    lambda: FilesDataset(["ftp://me:hush!42@host/a.png"]),
    lambda: SocketStream("tcp://me:hush!42@host"),
    lambda: _checked_url("https://host/a?sig=hush!42"),
    lambda: _checked_url("https://me:hu@hush!42@host/a"),
    lambda: _checked_url("azure://host/a?sig=hush!42"),
]


def _refused(text: str) -> Any:
    raise OSError(text)


@pytest.mark.parametrize("give", GIVEN, ids=range(len(GIVEN)))
def test_no_error_of_a_source_shows_it(give: Any) -> None:
    with pytest.raises((OptionError, SourceError)) as raised:
        give()
    shown = io.StringIO()
    lines = traceback.TracebackException.from_exception(raised.value).format(chain=True)
    shown.write("".join(line for line in lines if "lambda" not in line and "DSN" not in line))
    assert "hush!42" not in str(raised.value)
    assert "hush!42" not in shown.getvalue()
    assert "hush!42" not in str(pickle.loads(pickle.dumps(raised.value)))


def test_a_password_with_an_at_sign_is_told_how_to_write() -> None:
    with pytest.raises(OptionError, match=r"postgresql://me:\*\*\*@host/db'.*%40 for @"):
        SQLDataset("postgresql://me:p@ss@host/db", "SELECT 1 AS a")


def test_places_and_their_errors() -> None:
    assert _where("s3", {"endpoint": "http://me:p@hush!42@host:9000"}) == {"endpoint": "http://host:9000"}
    failed = told(
        OSError("error sending request for url (http://me:p@hush!42@host/b?X-Amz-Signature=hush!42)"), "s3://b/x"
    )
    assert "hush!42" not in str(failed)
    assert repr(SocketStream("me:hush!42@host:1")) == "SocketStream(me:hush!42@host:1)"  # which is no URL
