"""docs/tricks.md names every file of ours that changes, or leans on, what others do not promise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import feedline

ROOT = Path(feedline.__file__).parent
TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "tricks.md").read_text()
SIGNS = {
    "another's code": r"\.__code__ = |, \w+\.__code__ = ",
    "another's functions": r"setattr\((module|where|helper), ",
    "another's table": r"default_collate_fn_map\[.*\] = |sys\.modules\.update|_worker_info = |_new_process = ",
    "memory by its address": r"\.from_address\(|\.in_dll\(",
    "frames": r"sys\._getframe\(|sys\._current_frames\(",
    "what runs in every call": r"sys\.set(profile|trace)\(|threading\.set(profile|trace)\(",
    "an exception in another thread": r"SetAsyncExc",
    "the collector's lists": r"gc\.get_(objects|referents|referrers)\(",
    "a crash's words": r"faulthandler\.(enable|register)\(",
    "another's settings": r"\bmallopt\(",
    "the main script": r"main\.__(spec|file)__",
    "private names": r"\b(random|mtrand|asyncio|resource_tracker|multiprocessing|threading|ctypes|torch)\._[a-z]\w*\(?",
}


def code_of(file: Path) -> str:
    """Without docstrings and comments, which may speak of anything."""
    return re.sub(r"#.*", "", re.sub(r'""".*?"""', "", file.read_text(), flags=re.DOTALL))


def is_named(file: str) -> bool:
    return f"`{file}`" in PAGE


@pytest.mark.parametrize("sign", SIGNS)
def test_every_file_that_does_it_is_named(sign: str) -> None:
    found = {str(file.relative_to(ROOT)) for file in ROOT.rglob("*.py") if re.search(SIGNS[sign], code_of(file))}
    assert found, "nobody does it any more: leave out the sign"
    assert {file for file in found if not is_named(file)} == set()


def test_what_is_named_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)`", PAGE)
    assert len(named) > 30
    assert [name for name in named if not any((root / name).exists() for root in (ROOT, TESTS, TESTS.parent))] == []
