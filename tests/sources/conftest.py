"""Servers that several files of tests use, started once; and what drivers keep for as long as the process lives, there
before a test is asked what it has left behind."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from object_server import ObjectServer


@pytest.fixture(scope="session")
def adbc_is_there() -> None:
    """ADBC's driver manager opens a pipe for Ctrl-C when it is first used."""
    import adbc_driver_sqlite.dbapi

    with adbc_driver_sqlite.dbapi.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchall()


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectServer]:
    """Object storage over HTTP: a bucket `pictures`, empty."""
    server = ObjectServer()
    yield server
    server.stop()
