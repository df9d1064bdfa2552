"""docs/object-storage.md: what it shows is what happens, against a real server."""

from __future__ import annotations

import doctest
import io

import numpy as np
import pytest
from object_fixtures import *  # noqa: F403
from object_server import ObjectServer
from pages import check_examples, check_links


@pytest.mark.usefixtures("adbc_is_there")
def test_the_examples_give_what_they_say_and_the_page_is_linked(
    objects: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    check_examples("object-storage.md", 24, doctest.NORMALIZE_WHITESPACE)
    check_links("object-storage.md", ("docs/zensical.toml", "docs/design.md"))
