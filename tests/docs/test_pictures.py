"""The documentation's pictures are what the code draws now, and readable."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from figures import check_places
from kinds import thorough

DOCS = Path(__file__).parents[2] / "docs"
PINS = Path(__file__).parents[1] / "pins.txt"
NAMES = sorted(path.stem for path in (DOCS / "pictures").glob("*.svg"))


@pytest.fixture(scope="module")
def make_pictures() -> Iterator[ModuleType]:
    sys.path.insert(0, str(DOCS))
    yield importlib.import_module("make_pictures")
    sys.path.remove(str(DOCS))


def test_there_are_no_others(make_pictures):
    assert sorted(make_pictures.PICTURES) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_the_picture_in_the_tree_is_what_is_drawn_now(make_pictures, name):
    matplotlib = pytest.importorskip("matplotlib")
    if f"matplotlib=={matplotlib.__version__}" not in re.split(r"\s", PINS.read_text()):
        pytest.skip("another version of matplotlib draws a little differently")
    assert make_pictures.drawn(name) == (DOCS / "pictures" / f"{name}.svg").read_bytes(), "run `make pictures`"


# A picture that is not what the script draws now is found above: one look at each when it is drawn anew is enough.
@thorough
@pytest.mark.parametrize("name", NAMES)
def test_everything_written_can_be_read(name):
    pytest.importorskip("matplotlib")
    check_places((DOCS / "pictures" / f"{name}.svg").read_bytes())


@pytest.mark.parametrize("name", NAMES)
def test_it_brings_its_own_ground_for_light_and_dark_pages(name):
    svg = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    assert "fill: #fbfaf7" in svg.partition("</g>")[0]


def test_every_picture_is_shown_on_a_page():
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    assert {name for name in NAMES if f"(pictures/{name}.svg)" in pages} == set(NAMES)
