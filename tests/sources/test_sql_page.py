"""docs/sql.md: what it shows is what happens."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.usefixtures("adbc_is_there")
def test_the_page_is_true_and_linked() -> None:
    failed, tried = doctest.testfile(str(ROOT / "docs" / "sql.md"), module_relative=False)
    assert tried > 20
    assert not failed
    assert "docs/sql.md" in (ROOT / "README.md").read_text()
