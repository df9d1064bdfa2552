"""Bars in groups: the same few things, measured again and again.

Takes: the things' names, and groups of one bar for each. Gives: `bar_chart`, a `Drawing`.
Promises: bars begin at zero, and are compared within a group (a full bar is the group's `full`, or its largest); what a
bar says is written at its end, and what a group says beside its name; nothing lies on anything else.
Not its job: how things look (svg), lines over axes (charts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from feedline.drawing.svg import Drawing, colour, text_width

SMALL = 11
BAR, BETWEEN, APART = 14, 4, 20
"""Heights: of a bar, of the gap to the next, and of the room before the next group's name."""
LEFT, TOP = 16, 60
"""Room for the title and the legend under it, and beside all of it."""


@dataclass(frozen=True)
class Bar:
    """A value, what is written at it, and the lowest and highest that were met."""

    value: float
    label: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Group:
    """One bar for each thing, a name, and what follows from them."""

    name: str
    bars: Sequence[Bar]
    note: str = ""
    full: float | None = None
    """The value of a bar of full length."""


def bar_chart(title: str, names: Sequence[str], groups: Sequence[Group], width: float = 760) -> Drawing:
    """One picture, as high as its groups need.

    >>> picture = bar_chart("Speed", ["ours", "theirs"], [Group("small", [Bar(30, "30/s"), Bar(10, "10/s")], "3×")])
    >>> [round(shape.width) for shape in picture.shapes if type(shape).__name__ == "Box"][-2:]
    [694, 231]
    """
    each = [_head(group, width) + (BAR + BETWEEN) * len(group.bars) + APART for group in groups]
    drawing = Drawing(width, TOP + sum(each), title)
    drawing.text(LEFT, 24, title, bold=True)
    drawing.legend(LEFT, 46, [(colour(number), name) for number, name in enumerate(names)])
    room = width - 2 * LEFT - max((_room(bar.label) for group in groups for bar in group.bars), default=0.0)
    top = float(TOP)
    for group, height in zip(groups, each, strict=True):
        _draw_group(drawing, group, top, room)
        top += height
    return drawing


def _draw_group(drawing: Drawing, group: Group, top: float, room: float) -> None:
    head = _head(group, drawing.width)
    drawing.text(LEFT, top + BAR, _cut(group.name, drawing.width), size=SMALL, bold=True)
    drawing.text(drawing.width - LEFT, top + head, _cut(group.note, drawing.width), "ink", "end", size=SMALL)
    reach = max(max(bar.value, bar.high or 0) for bar in group.bars)
    scale = room / max(reach, group.full or 0) if reach > 0 else 0.0
    for number, bar in enumerate(group.bars):
        y = top + head + 8 + number * (BAR + BETWEEN)
        drawing.box(LEFT, y, bar.value * scale, BAR, colour(number), rounded=2)
        end = bar.value
        if bar.low is not None and bar.high is not None and bar.high > bar.low:
            drawing.line([(LEFT + bar.low * scale, y + BAR / 2), (LEFT + bar.high * scale, y + BAR / 2)], "ink", 1.5)
            end = max(end, bar.high)
        drawing.text(LEFT + end * scale + 6, y + BAR - 3, bar.label, "faint", size=SMALL)


def _head(group: Group, width: float) -> int:
    """The height of what is written above the bars: one line, or two if that is too long."""
    long = text_width(group.name, SMALL) + text_width(group.note, SMALL)
    return BAR if long + 2 * SMALL <= width - 2 * LEFT else 2 * BAR


def _cut(text: str, width: float) -> str:
    """What fits into a line; of a long path the end is what tells."""
    letters = int((width - 2 * LEFT) / text_width(".", SMALL))
    return text if len(text) <= letters else f"…{text[1 - letters :]}"


def _room(label: str) -> float:
    return text_width(label, SMALL) + 8
