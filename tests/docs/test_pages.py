"""Pages of the docs whose examples need nothing but NumPy; those of sources are beside the tests of sources."""

from __future__ import annotations

import pytest
from pages import check_examples, check_links, text_of

import feedline
from feedline.reading.fetch_coroutines import COROUTINES

PAGES = {  # how many examples at least, and who links to it
    "collation.md": (16, ("docs/zensical.toml", "docs/design.md")),
    "latency.md": (7, ("docs/zensical.toml", "docs/design.md")),
    "samplers.md": (20, ("docs/zensical.toml",)),
    "splits-and-mixing.md": (21, ("docs/zensical.toml",)),
}


@pytest.mark.parametrize("page", PAGES)
def test_the_examples_give_what_they_say_and_the_page_is_linked(page: str) -> None:
    least, linked_from = PAGES[page]
    check_examples(page, least)
    check_links(page, linked_from)


def test_every_collator_is_on_its_page() -> None:
    text = text_of("collation.md")
    for name in ("stack", "keep", "pad", "pack", "detection", "drop_invalid", "compose"):
        assert f"`{name}" in text or f"## {name}" in text
        assert name in feedline.collate.__all__


def test_the_page_of_latency_says_how_many_wait_at_a_time() -> None:
    assert f"at most {COROUTINES} at a time" in text_of("latency.md")


@pytest.mark.parametrize("page", ["samplers.md", "splits-and-mixing.md"])
def test_a_page_names_what_runs_it(page: str) -> None:
    assert "`tests/docs/test_pages.py`" in text_of(page)
