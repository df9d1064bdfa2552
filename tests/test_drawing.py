"""Drawings as SVG, and the scales of charts."""

from __future__ import annotations

from itertools import pairwise
from xml.etree import ElementTree

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from feedline.drawing.bars import Bar, Group, bar_chart
from feedline.drawing.charts import Axis, Scale, Series, line_chart
from feedline.drawing.png import save
from feedline.drawing.svg import COLOURS, GROUNDS, Box, Drawing, Line, Text, colour, text_width

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


def bars_of(drawing: Drawing, number: int) -> list[Box]:
    """Of one thing, without the box in the legend."""
    return [shape for shape in drawing.shapes if isinstance(shape, Box) and shape.kind == colour(number)][1:]


def test_bars_are_compared_within_a_group_and_groups_where_it_is_wished():
    drawing = bar_chart(
        "speed",
        ["ours", "theirs"],
        [
            Group("own", [Bar(5), Bar(10)]),
            Group("shared", [Bar(5), Bar(10)], full=20),
            Group("none", [Bar(0, "could not be measured"), Bar(0)]),
        ],
    )
    ours, theirs = ([bar.width for bar in bars_of(drawing, number)] for number in (0, 1))
    full = theirs[0]
    assert ours == pytest.approx([full / 2, full / 4, 0])
    assert theirs == pytest.approx([full, full / 2, 0])


def test_the_lowest_and_highest_are_a_line_and_the_bar_gives_way_to_it():
    drawing = bar_chart("spread", ["ours"], [Group("g", [Bar(10, "ten", 5, 20)]), Group("h", [Bar(10, "ten", 10, 10)])])
    (first, second), lines = bars_of(drawing, 0), [shape for shape in drawing.shapes if isinstance(shape, Line)]
    assert second.width == pytest.approx(2 * first.width)
    ((begin, _), (end, _)) = lines[0].points
    assert (begin - first.x, end - first.x) == pytest.approx((first.width / 2, 2 * first.width))
    assert len(lines) == 1
    label = next(shape for shape in drawing.shapes if isinstance(shape, Text) and shape.text == "ten")
    assert label.x > end


@given(
    st.lists(
        st.builds(
            Group,
            name=st.text("ab", max_size=150),
            bars=st.lists(
                st.builds(
                    lambda value, up, label: Bar(value, label, value / 2, value + up),
                    values.map(abs),
                    values.map(abs),
                    st.text("ab", max_size=25),
                ),
                min_size=2,
                max_size=2,
            ),
            note=st.text("ab", max_size=150),
        ),
        min_size=1,
        max_size=4,
    )
)
@example([Group("a" * 100, [Bar(1), Bar(2)], "b" * 100)])
@example([Group("a" * 56, [Bar(1), Bar(2)], "b" * 56)])
def test_nothing_of_a_bar_chart_lies_outside_or_on_another(groups):
    drawing = bar_chart("any", ["ours", "theirs"], groups)
    texts = []
    for shape in drawing.shapes:
        if isinstance(shape, Box):
            assert 0 <= shape.x <= shape.x + shape.width <= drawing.width
            assert 0 <= shape.y <= shape.y + shape.height <= drawing.height
        if isinstance(shape, Text):
            long = text_width(shape.text, shape.size)
            left = shape.x - long if shape.anchor == "end" else shape.x
            assert -1e-6 <= left <= left + long <= drawing.width + 1e-6
            assert shape.y <= drawing.height - 4
            texts.append((left, left + long, shape.y))
    for number, (left, right, y) in enumerate(texts):
        assert all(abs(y - other[2]) >= 11 or left >= other[1] or other[0] >= right for other in texts[:number])
