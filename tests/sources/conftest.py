"""Servers that several files of tests use, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from object_server import ObjectServer


@pytest.fixture(scope="session")
def objects() -> Iterator[ObjectServer]:
    """Object storage over HTTP: a bucket `pictures`, empty."""
    server = ObjectServer()
    yield server
    server.stop()
