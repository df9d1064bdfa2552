"""docs/files.md: what it shows is what happens."""

from __future__ import annotations

import doctest
import logging
from pathlib import Path

import pytest

from feedline.sources.decoding import Decoders

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "files.md"


def test_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(logging.getLogger("feedline"), "disabled", True)  # the damaged file's line
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 15
    assert not failed


def test_the_page_names_every_suffix_and_is_linked() -> None:
    text = PAGE.read_text()
    for suffix in Decoders(None).suffixes:
        assert f"`{suffix}`" in text
    for page in ("README.md", "docs/design.md"):
        assert "files.md" in (ROOT / page).read_text()
