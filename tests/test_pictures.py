"""The documentation's pictures are what the code draws now, and readable."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from xml.etree import ElementTree

import pytest

from feedline.drawing.svg import text_width

DOCS = Path(__file__).parent.parent / "docs"
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
    drawn = str(make_pictures.PICTURES[name]())
    assert drawn == (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8"), "run `make pictures`"


@pytest.mark.parametrize("name", NAMES)
def test_nothing_lies_outside_the_picture(name):
    svg = ElementTree.parse(DOCS / "pictures" / f"{name}.svg").getroot()
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    for part in svg.iter():
        kind = part.tag.rpartition("}")[2]
        x, y = float(part.get("x", 0)), float(part.get("y", 0))
        if kind == "rect":
            assert 0 <= x <= x + float(part.attrib["width"]) <= width + 0.1
            assert 0 <= y <= y + float(part.attrib["height"]) <= height + 0.1
        if kind == "text":
            long = text_width(part.text or "", float(part.get("font-size", 13)))
            left = {"start": x, "middle": x - long / 2, "end": x - long}[part.get("text-anchor", "start")]
            assert 0 <= left <= left + long <= width, part.text
            assert 10 <= y <= height - 4, part.text


def boxes_of_texts(svg: ElementTree.Element) -> Iterator[tuple[str, float, float, float]]:
    for part in svg.iter("{http://www.w3.org/2000/svg}text"):
        x, long = float(part.attrib["x"]), text_width(part.text or "", float(part.get("font-size", 13)) * 0.95)
        left = {"start": x, "middle": x - long / 2, "end": x - long}[part.get("text-anchor", "start")]
        yield part.text or "", left, left + long, float(part.attrib["y"])


@pytest.mark.parametrize("name", NAMES)
def test_no_text_lies_on_another(name):
    texts = list(boxes_of_texts(ElementTree.parse(DOCS / "pictures" / f"{name}.svg").getroot()))
    for number, (text, left, right, y) in enumerate(texts):
        for other, others_left, others_right, others_y in texts[:number]:
            apart = abs(y - others_y) >= 11 or left >= others_right or others_left >= right
            assert apart, (text, other)


@pytest.mark.parametrize("name", NAMES)
def test_every_kind_has_its_colour_by_day_and_in_the_dark(name):
    text = (DOCS / "pictures" / f"{name}.svg").read_text(encoding="utf-8")
    used = set(re.findall(r'class="([\w-]+)"/?>', text)) - {"drawing"}
    by_day, in_the_dark = text.partition("@media (prefers-color-scheme: dark)")[::2]
    for kind in used:
        assert f".drawing .{kind} {{" in by_day
        assert f".drawing .{kind} {{" in in_the_dark


def test_every_picture_is_shown_on_a_page():
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.glob("*.md"))
    assert {name for name in NAMES if f"(pictures/{name}.svg)" in pages} == set(NAMES)
