"""CONTRIBUTING.md: its map is of this house, and what it names is there."""

from __future__ import annotations

import re

from pages import ROOT

PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SOURCE = ROOT / "src" / "feedline"


def test_every_package_is_on_the_map() -> None:
    rows = re.findall(r"^\| (`[^|]*`) \|[^|]*\| `tests/", PAGE, re.MULTILINE)
    mapped = {name.rstrip("/") for row in rows for name in re.findall(r"`([\w/]+)`", row)}
    packages = {path.parent.name for path in SOURCE.glob("*/__init__.py")}
    assert packages - mapped == set()
    assert mapped <= packages | {path.stem for path in SOURCE.glob("*.py")}


def test_every_file_that_it_names_is_there() -> None:
    named = set(re.findall(r"`((?:\w+/)+[\w.-]*\w\.(?:py|md|toml|txt))`|\]\(([\w/.-]+)\)", PAGE))
    for name in (either or other for either, other in named):
        places = (ROOT / name, SOURCE / name, SOURCE / "diagnose" / name)
        assert any(place.exists() for place in places), name


def test_every_make_target_that_it_names_is_there() -> None:
    made = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    said = [line.partition("#")[0] for line in re.findall(r"^ +make ([^\n]*)", PAGE, re.MULTILINE)]
    assert {word for line in said for word in line.split() if "=" not in word} - made == set()
