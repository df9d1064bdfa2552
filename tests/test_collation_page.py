"""docs/collation.md: what it shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

import feedline

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "collation.md"


def test_the_page_is_true():
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 15
    assert not failed


def test_the_page_names_every_collator_and_is_linked():
    text = PAGE.read_text()
    for name in ("stack", "keep", "pad", "pack", "detection", "drop_invalid", "compose"):
        assert f"`{name}" in text or f"## {name}" in text
        assert name in feedline.__all__
    for page in ("README.md", "docs/design.md"):
        assert "collation.md" in (ROOT / page).read_text()
