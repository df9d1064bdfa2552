"""docs/streams.md: what it shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_page_is_true_and_linked() -> None:
    failed, tried = doctest.testfile(str(ROOT / "docs" / "streams.md"), module_relative=False)
    assert tried > 25
    assert not failed
    assert "docs/streams.md" in (ROOT / "README.md").read_text()
