"""Drawings as SVG, and the scales of charts."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from feedline.drawing.charts import Axis, Scale, Series, line_chart
from feedline.drawing.png import save
from feedline.drawing.svg import COLOURS, GROUNDS, Drawing, colour

SVG = "{http://www.w3.org/2000/svg}"
values = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


def parsed(drawing: Drawing) -> ElementTree.Element:
    return ElementTree.fromstring(str(drawing))


def test_what_is_written_is_escaped():
    drawing = Drawing(100, 50, "a < b & c")
    drawing.text(10, 20, "<script>&")
    (text,) = parsed(drawing).iter(f"{SVG}text")
    (title,) = parsed(drawing).iter(f"{SVG}title")
    assert (text.text, title.text) == ("<script>&", "a < b & c")


def test_everything_drawn_is_there_in_order():
    drawing = Drawing(100, 50, "all")
    drawing.box(1, 2, 3.04, 4.25, colour(0), rounded=2)
    drawing.line([(0, 0), (1.5, 2)], "rule", width=2, dashed=True)
    drawing.dot(5, 6, colour(9))
    drawing.text(7, 8, "t", "faint", "end", size=11, bold=True)
    drawing.legend(10, 20, [("pale", "padding")])
    parts = [(each.tag.removeprefix(SVG), each.attrib) for each in parsed(drawing)][3:]
    assert parts == [
        ("rect", {"x": "1", "y": "2", "width": "3", "height": "4.2", "rx": "2", "class": "c0"}),
        ("polyline", {"points": "0,0 1.5,2", "stroke-width": "2", "stroke-dasharray": "5 4", "class": "line-rule"}),
        ("circle", {"cx": "5", "cy": "6", "r": "3", "class": "c3"}),
        ("text", {"x": "7", "y": "8", "font-size": "11", "font-weight": "600", "text-anchor": "end", "class": "faint"}),
        ("rect", {"x": "10", "y": "10", "width": "11", "height": "11", "rx": "2", "class": "pale"}),
        ("text", {"x": "27", "y": "20", "class": "faint"}),
    ]


@given(low=values, span=st.floats(1e-3, 1e6), whole=st.booleans())
def test_ticks_are_even_few_and_within(low, span, whole):
    scale = Scale(low, low + span, 0, 100, whole=whole)
    ticks = scale.ticks()
    assert len(ticks) <= 6
    assert whole or len(ticks) >= 2
    assert all(-0.001 <= scale.at(tick) <= 100.001 for tick in ticks)
    steps = [after - before for before, after in pairwise(ticks)]
    assert steps == pytest.approx([steps[0]] * len(steps), rel=1e-3) if steps else True
    if whole:
        assert all(tick == round(tick) for tick in ticks)


@given(low=st.integers(-9, 5), more=st.integers(1, 9))
def test_logarithmic_ticks_are_all_powers_of_ten_within(low, more):
    scale = Scale(10.0**low, 10.0 ** (low + more), 0, 100, log=True)
    assert scale.ticks() == [10.0**power for power in range(low, low + more + 1)]
    assert [scale.at(tick) for tick in scale.ticks()] == pytest.approx([100 * k / more for k in range(more + 1)])


@given(points=st.lists(st.tuples(values, values), min_size=1, max_size=8), whole=st.booleans())
def test_every_point_of_a_chart_lies_within_it(points, whole):
    drawing = line_chart("any", [Series("s", points, dotted=True)], Axis("x", whole=whole), Axis("y"), 400, 300)
    dots = list(parsed(drawing).iter(f"{SVG}circle"))
    assert len(dots) == len(points)
    for dot in dots:
        assert 58 <= float(dot.attrib["cx"]) <= 400 - 24
        assert 78 <= float(dot.attrib["cy"]) <= 300 - 42


def test_heights_begin_at_zero():
    drawing = line_chart("zero", [Series("s", [(1, 50), (2, 100)], dotted=True)])
    lower, upper = (float(dot.attrib["cy"]) for dot in parsed(drawing).iter(f"{SVG}circle"))
    assert (lower, upper) == ((78 + 300 - 42) / 2, 78)


def test_as_png_the_same_shapes_are_in_the_same_places(tmp_path):
    drawing = Drawing(100, 50, "all")
    drawing.box(10, 10, 20, 20, colour(0))
    drawing.line([(40, 5), (40, 45)], colour(1), width=4, dashed=True)
    drawing.dot(60, 20, colour(2), radius=5)
    drawing.text(80, 40, "–×…", "ink", "middle")
    save(drawing, tmp_path / "all.png")
    assert [each.name for each in tmp_path.iterdir()] == ["all.png"]
    with Image.open(tmp_path / "all.png") as image:
        assert image.size == (200, 100)
        dots = image.convert("RGB")
        seen = {at: "#" + bytes(dots.getpixel((at[0] * 2, at[1] * 2))).hex() for at in PLACES}
        assert seen == PLACES
        words = image.convert("L").crop((130, 60, 190, 84))
        assert words.getextrema()[0] < 100  # something was written there


PLACES = {
    (20, 20): COLOURS[0],
    (40, 6): COLOURS[1],
    (40, 12): GROUNDS["ground"],  # a gap
    (40, 15): COLOURS[1],
    (60, 20): COLOURS[2],
    (66, 20): GROUNDS["ground"],
    (5, 25): GROUNDS["ground"],
}


def test_a_name_that_ends_so_is_svg_and_a_place_that_cannot_be_written_stays_empty(tmp_path):
    save(Drawing(10, 10, "empty"), tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(OSError, match=r"folder\.png"):
        save(Drawing(10, 10, "empty"), tmp_path / "folder.png")
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a.svg", "folder.png"]
