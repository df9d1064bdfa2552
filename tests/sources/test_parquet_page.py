"""docs/parquet.md is true."""

from __future__ import annotations

import doctest
from pathlib import Path

from feedline import sources

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "parquet.md"


def test_the_page_is_true() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 10
    assert not failed


def test_the_page_names_everything_and_is_linked() -> None:
    text = PAGE.read_text()
    for name in ("ParquetDataset", "ParquetStream"):
        assert f"`{name}" in text
        assert name in sources.__all__
    assert "docs/parquet.md" in (ROOT / "README.md").read_text()
