"""Servers that several files of tests use, started once; and what drivers keep for as long as the process lives, there
before a test is asked what it has left behind."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from object_server import ObjectServer
from sources.postgres import LEAN, PASSWORD, USER, Server, program, running


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


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    """A PostgreSQL with a user who may read only what is granted."""
    psycopg = pytest.importorskip("psycopg")
    if program("postgres") is None:
        pytest.skip("there is no PostgreSQL here: apt-get install postgresql")
    with running() as server:
        with psycopg.connect(server.owner, autocommit=True) as db:
            with contextlib.suppress(psycopg.Error):  # another version may not let it happen, and takes longer
                db.execute(LEAN)
            db.execute(f"CREATE ROLE {USER} LOGIN PASSWORD '{PASSWORD}'")
        yield server
