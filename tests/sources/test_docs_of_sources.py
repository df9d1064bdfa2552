"""Pages of the docs about sources: their examples give what they say, they name what there is, and are linked.

That of object storage has fixtures, and so a file, of its own.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from pages import check_examples, check_links, text_of

from feedline import sources
from feedline.sources.decoding import Decoders

PAGES = {  # how many examples at least, and who links to it
    "files.md": (16, ("docs/zensical.toml", "docs/design.md")),
    "parquet.md": (11, ("docs/zensical.toml",)),
    "sound-and-video.md": (18, ("docs/zensical.toml",)),
    "sql.md": (21, ("docs/zensical.toml",)),
    "streams.md": (26, ("docs/zensical.toml",)),
    "tar-shards.md": (11, ("docs/zensical.toml",)),
}
NAMED = {
    "parquet.md": ("ParquetDataset", "ParquetStream"),
    "sound-and-video.md": ("SoundDataset", "SoundWindow", "VideoClip", "VideoDataset"),
    "tar-shards.md": ("TarDataset", "TarStream", "TarWriter", "write_index", "decode_plain"),
}


@pytest.mark.usefixtures("adbc_is_there")
@pytest.mark.parametrize("page", PAGES)
def test_the_examples_give_what_they_say_and_the_page_is_linked(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(logging.getLogger("feedline"), "disabled", True)  # the line about a damaged file
    least, linked_from = PAGES[page]
    check_examples(page, least)
    check_links(page, linked_from)


@pytest.mark.parametrize("page", NAMED)
def test_a_page_names_everything_it_is_about(page: str) -> None:
    for name in NAMED[page]:
        assert f"`{name}" in text_of(page)
        assert name in sources.__all__


def test_every_suffix_is_on_the_page_of_files() -> None:
    for suffix in Decoders(None).suffixes:
        assert f"`{suffix}`" in text_of("files.md")
