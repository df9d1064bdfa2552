"""docs/tar-shards.md and docs/parquet.md are true."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

from feedline import sources

ROOT = Path(__file__).parent.parent.parent
PAGES = {
    "tar-shards.md": ("TarDataset", "TarStream", "TarWriter", "write_index", "decode_plain"),
    "parquet.md": ("ParquetDataset", "ParquetStream"),
}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_true_names_everything_and_is_linked(page: str) -> None:
    path = ROOT / "docs" / page
    failed, tried = doctest.testfile(str(path), module_relative=False)
    assert tried > 10
    assert not failed
    for name in PAGES[page]:
        assert f"`{name}" in path.read_text()
        assert name in sources.__all__
    assert f"docs/{page}" in (ROOT / "README.md").read_text()
