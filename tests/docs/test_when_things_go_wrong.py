"""docs/when-things-go-wrong.md quotes what feedline says, and names options that there are.

Before each block of printed text the page has a comment, `<!-- fixed: … | … -->`, with those parts of it that are the
same whenever it is printed. They must be in the block, and in a string of feedline's source.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import feedline
from feedline.options.option import rows
from feedline.options.table import CoreOptions, ErrorPolicyOptions

HERE = Path(__file__).parents[2]
PAGE = (HERE / "docs" / "when-things-go-wrong.md").read_text()
QUOTED = re.findall(r"<!-- fixed: (.*?) -->\n```text\n(.*?)```", PAGE, re.DOTALL)
TABLE = re.findall(r"^\| `(\w+)` \| `?([^|`]*)`? \|", PAGE, re.MULTILINE)


def strings_of_the_source() -> list[str]:
    """Whatever feedline may say. Taken from what Python has compiled already: to parse all of it takes a second."""
    files = Path(feedline.__file__).parent.rglob("*.py")
    codes = [SourceFileLoader(path.stem, str(path)).get_code(path.stem) for path in files]
    return [string for code in codes for string in strings_in(code)]


def strings_in(constant: Any) -> Iterator[str]:
    if isinstance(constant, str):
        yield constant
    inner = constant.co_consts if isinstance(constant, CodeType) else constant
    if isinstance(inner, tuple | frozenset):
        for each in inner:
            yield from strings_in(each)


def test_every_quoted_phrase_is_still_said() -> None:
    strings = strings_of_the_source()
    for comment, block in QUOTED:
        for phrase in map(str.strip, comment.split("|")):
            assert phrase in block
            assert any(phrase in string for string in strings), f"feedline no longer says: {phrase}"


def test_every_message_in_the_table_of_messages_is_still_said() -> None:
    page = (HERE / "docs" / "symptoms.md").read_text()
    rows = re.findall(r"^\| ([^|]*) \|[^|]*\|$", page.partition("## What a message says")[2], re.MULTILINE)
    said = "\n".join(strings_of_the_source()) + " " + " ".join(feedline.errors.__dict__)
    phrases = [part.strip(" :") for row in rows if "torch: " not in row for part in re.findall(r"`([^`]*)`", row)]
    parts = [
        part.strip(" :") for phrase in phrases for part in re.split(r"…|: |dataset\[13\]|SIGKILL| 2 |while ", phrase)
    ]
    assert [part for part in parts if part not in said and part != "Too many open files"] == []  # that is the system's
    assert len(parts) > 20


def test_every_block_of_printed_text_says_which_parts_are_fixed() -> None:
    assert PAGE.count("```text\n") == len(QUOTED) > 10


def test_every_option_on_the_page_exists() -> None:
    assert set(re.findall(r"\b([a-z_]+)=", PAGE)) <= rows(CoreOptions).keys() | {"maxsize"}


def test_the_table_of_options_is_complete_and_has_their_defaults() -> None:
    assert dict(TABLE).keys() == rows(ErrorPolicyOptions).keys() | {"timeout"}
    for name, row in rows(ErrorPolicyOptions).items():
        assert ast.literal_eval(dict(TABLE)[name]) == row.default


@pytest.mark.parametrize("page", ["docs/zensical.toml", "docs/design.md"])
def test_it_is_linked(page: str) -> None:
    assert "when-things-go-wrong.md" in (HERE / page).read_text()
