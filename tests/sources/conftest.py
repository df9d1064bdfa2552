"""What drivers keep for as long as the process lives is there before a test is asked what it has left behind."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def adbc_is_there() -> None:
    """ADBC's driver manager opens a pipe for Ctrl-C when it is first used."""
    import adbc_driver_sqlite.dbapi

    with adbc_driver_sqlite.dbapi.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        cursor.fetchall()
