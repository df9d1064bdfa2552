"""docs/object-storage.md: what it shows is what happens, against a real server."""

from __future__ import annotations

import doctest
import io
from pathlib import Path

import numpy as np
import pytest
from object_fixtures import *  # noqa: F403
from object_server import ObjectServer

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "object-storage.md"


def test_the_page_is_true(objects: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        for animal in ("cat", "dog"):
            written = io.BytesIO()
            np.save(written, np.full(3, float(number)))
            objects.put("samples", {f"page/{animal}/{number}.npy": written.getvalue()})
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", objects.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", objects.secret)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", objects.endpoint)
    objects.befall()
    failed, tried = doctest.testfile(str(PAGE), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 15
    assert not failed


def test_the_page_is_linked() -> None:
    for page in ("README.md", "docs/design.md"):
        assert "object-storage.md" in (ROOT / page).read_text()
