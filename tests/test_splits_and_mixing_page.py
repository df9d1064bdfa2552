"""docs/splits-and-mixing.md: what its blocks print is what they show."""

from __future__ import annotations

import doctest
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = "docs/splits-and-mixing.md"


def test_the_page_shows_what_is_printed() -> None:
    results = doctest.testfile(str(ROOT / PAGE), module_relative=False, encoding="utf-8")
    assert results.attempted > 20
    assert results.failed == 0


def test_it_is_linked_and_names_a_test_that_exists() -> None:
    assert "splits-and-mixing.md" in (ROOT / "README.md").read_text()
    assert "`tests/test_splits_and_mixing_page.py`" in (ROOT / PAGE).read_text()
