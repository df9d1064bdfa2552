"""docs/latency.md: what it shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

from feedline.line.coroutines import COROUTINES

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "latency.md"


def test_the_page_is_true_and_linked() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 6
    assert not failed
    assert f"at most {COROUTINES} at a time" in PAGE.read_text()
    for page in ("README.md", "docs/design.md"):
        assert "latency.md" in (ROOT / page).read_text()
