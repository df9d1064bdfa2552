"""The page of Hugging Face datasets: its examples are run."""

from __future__ import annotations

from hf_without_torch import datasets
from pages import check_examples, check_links


def test_the_examples_give_what_they_say_and_the_page_is_linked() -> None:
    assert datasets
    check_examples("hugging-face.md", 13)
    check_links("hugging-face.md", ("README.md",))
