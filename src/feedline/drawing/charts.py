"""Charts of numbers: lines and dots over two axes.

Takes: series of points. Gives: `line_chart`, as a `Drawing` or in a place of one.
Promises: axes from the smallest to the largest value (from zero, when they are not logarithmic), few and round ticks.
Not its job: how things look (svg).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from feedline.drawing.svg import Drawing, colour, text_width

LEFT, RIGHT, TOP, BOTTOM = 58, 24, 78, 42
"""Room around the axes: for numbers, the title, the legend under it, and the axis' name."""


@dataclass(frozen=True)
class Series:
    """Points of one kind, joined by a line, marked by dots, or both."""

    name: str
    points: Sequence[tuple[float, float]]
    joined: bool = True
    dotted: bool = False
    dashed: bool = False


def plain(value: float) -> str:
    """A number as an axis shows it.

    >>> plain(0.25), plain(1500), plain(0), plain(1e-6)
    ('0.25', '1,500', '0', '1e-06')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(frozen=True)
class Axis:
    """What a direction of a chart means."""

    name: str = ""
    log: bool = False
    label: Callable[[float], str] = plain
    whole: bool = False
    """Are there only whole numbers on it, such as epochs?"""


@dataclass(frozen=True)
class Scale:
    """From values to places on the page.

    >>> Scale(0, 10, 100, 300).at(5)
    200.0
    >>> Scale(1, 100, 0, 10, log=True).at(10)
    5.0
    """

    low: float
    high: float
    begin: float
    end: float
    log: bool = False
    whole: bool = False
    label: Callable[[float], str] = plain

    def at(self, value: float) -> float:
        """Where a value lies."""
        share = _log(value / self.low) / _log(self.high / self.low) if self.log else (value - self.low) / self._span
        return self.begin + (self.end - self.begin) * share

    @property
    def _span(self) -> float:
        return self.high - self.low

    def ticks(self) -> list[float]:
        """Round values to write at the axis: powers of ten, or some five equal steps.

        >>> Scale(0, 0.9, 0, 1).ticks()
        [0.0, 0.2, 0.4, 0.6, 0.8]
        >>> Scale(2, 3000, 0, 1, log=True).ticks()
        [10.0, 100.0, 1000.0]
        """
        if self.log:
            powers = range(math.ceil(_log(self.low) - 1e-9), math.floor(_log(self.high) + 1e-9) + 1)
            return [10.0**power for power in powers]
        rough = max(self._span / 5, 1.0 if self.whole else 0.0)
        power = 10.0 ** math.floor(_log(rough))
        step = next(size * power for size in (1, 2, 5, 10) if size * power >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [round(number * step, 10) for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


def line_chart(
    title: str,
    series: Sequence[Series],
    x: Axis = Axis(),  # frozen
    y: Axis = Axis(),
    width: float = 760,
    height: float = 300,
) -> Drawing:
    """One chart, as a picture of its own.

    >>> picture = line_chart("Loss", [Series("training", [(1, 2.3), (2, 1.1), (3, 0.8)])], Axis("epoch"))
    >>> "<title>Loss</title>" in str(picture)
    True
    """
    drawing = Drawing(width, height, title)
    draw_lines(drawing, title, series, x, y, (0, 0, width, height))
    return drawing


def draw_lines(
    drawing: Drawing,
    title: str,
    series: Sequence[Series],
    x: Axis,
    y: Axis,
    place: tuple[float, float, float, float],
) -> tuple[Scale, Scale]:
    """A chart in a part of a drawing (left, top, width, height); gives its scales, to draw more on it."""
    left, top, width, height = place
    across = _scale([at for each in series for at, _ in each.points], x, left + LEFT, left + width - RIGHT)
    up = _scale([at for each in series for _, at in each.points], y, top + height - BOTTOM, top + TOP)
    _draw_axes(drawing, across, up)
    drawing.text(left + 16, top + 22, title, bold=True)
    drawing.text(left + LEFT, top + TOP - 14, y.name, "faint", size=11)
    drawing.text(across.end, top + height - 8, x.name, "faint", "end", size=11)
    names = [(colour(number), each.name) for number, each in enumerate(series)]
    room = sum(text_width(name) + 35 for _, name in names)
    drawing.legend(left + width - RIGHT - room + 18, top + 44, names)
    for number, each in enumerate(series):
        _draw_series(drawing, each, colour(number), across, up)
    return across, up


def _scale(values: list[float], axis: Axis, begin: float, end: float) -> Scale:
    low, high = min(values), max(values)
    if begin > end and not axis.log:  # upwards: heights are compared, so they begin at zero
        low = min(0.0, low)
    if high <= low:
        high = low * 10 if axis.log else low + 1.0
    return Scale(low, high, begin, end, axis.log, axis.whole, axis.label)


def _draw_axes(drawing: Drawing, across: Scale, up: Scale) -> None:
    for value in up.ticks():
        drawing.line([(across.begin, up.at(value)), (across.end, up.at(value))], "rule")
        drawing.text(across.begin - 8, up.at(value) + 4, up.label(value), "faint", "end", size=11)
    for value in across.ticks():
        drawing.line([(across.at(value), up.begin), (across.at(value), up.begin + 4)], "rule")
        drawing.text(across.at(value), up.begin + 17, across.label(value), "faint", "middle", size=11)


def _draw_series(drawing: Drawing, series: Series, kind: str, across: Scale, up: Scale) -> None:
    points = [(across.at(x), up.at(y)) for x, y in series.points]
    if series.joined:
        drawing.line(points, kind, width=2, dashed=series.dashed)
    if series.dotted:
        for x, y in points:
            drawing.dot(x, y, kind)


def _log(value: float) -> float:
    return math.log10(value)
