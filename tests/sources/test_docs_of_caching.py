"""The page of caching: its examples are run."""

from __future__ import annotations

from pages import check_examples, check_links


def test_the_examples_give_what_they_say_and_the_page_is_linked() -> None:
    check_examples("caching.md", 15)
    check_links("caching.md", ("README.md", "docs/files.md"))
