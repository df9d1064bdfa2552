"""A picture: shapes in the order in which they cover each other, and how they are written down as SVG.

Takes: rectangles, lines, dots and texts. Gives: `Drawing`, whose `str` is an SVG file, or a part of an HTML page.
Promises: no dependencies; the same calls, the same bytes; readable on light and dark ground (it brings its own, and
follows the reader's setting), and by those who do not see colours (the palette is Okabe and Ito's, lightened for dark).
Not its job: scales and axes (charts), pictures of dots (png).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

Anchor = Literal["start", "middle", "end"]

Point = tuple[float, float]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
_COLOURS_IN_THE_DARK = ("#3d9bdc", "#f0b43c", "#2fc19a", "#dd94bd", "#ef7d35", "#8accf2")
GROUNDS = {"ground": "#fbfaf7", "ink": "#20242a", "faint": "#62686f", "rule": "#dddad2", "pale": "#e6e3db"}
_GROUNDS_IN_THE_DARK = {"ground": "#15181c", "ink": "#e8e6e1", "faint": "#a0a7af", "rule": "#363b42", "pale": "#2c3137"}

FONT_SIZE = 13
DASH, GAP = 5, 4
CORNER = 8
"""The ground's own corners."""
_WIDTH_OF_A_LETTER = 0.6
"""Of the font's size: as in DejaVu Sans, the widest of the usual sans-serif fonts (looked at)."""


def colour(number: int) -> str:
    """The name of a colour of the palette, which begins again after six.

    >>> colour(1), colour(7)
    ('c1', 'c1')
    """
    return f"c{number % len(COLOURS)}"


def text_width(text: str, size: float = FONT_SIZE) -> float:
    """About how wide a text will be; exactly it is known only where it is shown."""
    return len(text) * size * _WIDTH_OF_A_LETTER


class Box(NamedTuple):
    """A filled rectangle."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    rounded: float = 0

    def svg(self) -> str:
        """As an element."""
        corners = f' rx="{_number(self.rounded)}"' if self.rounded else ""
        return (
            f'<rect x="{_number(self.x)}" y="{_number(self.y)}" width="{_number(self.width)}" '
            f'height="{_number(self.height)}"{corners} class="{self.kind}"/>'
        )


class Line(NamedTuple):
    """A line through points."""

    points: tuple[Point, ...]
    kind: str
    width: float = 1
    dashed: bool = False

    def svg(self) -> str:
        """As an element."""
        at = " ".join(f"{_number(x)},{_number(y)}" for x, y in self.points)
        dashes = f' stroke-dasharray="{DASH} {GAP}"' if self.dashed else ""
        return f'<polyline points="{at}" stroke-width="{_number(self.width)}"{dashes} class="line-{self.kind}"/>'


class Dot(NamedTuple):
    """A filled circle."""

    x: float
    y: float
    kind: str
    radius: float = 3

    def svg(self) -> str:
        """As an element."""
        return f'<circle cx="{_number(self.x)}" cy="{_number(self.y)}" r="{_number(self.radius)}" class="{self.kind}"/>'


class Text(NamedTuple):
    """A line of text; `y` is where its letters stand."""

    x: float
    y: float
    text: str
    kind: str = "ink"
    anchor: Anchor = "start"
    size: float = FONT_SIZE
    bold: bool = False

    def svg(self) -> str:
        """As an element."""
        looks = f' font-size="{_number(self.size)}"' if self.size != FONT_SIZE else ""
        looks += ' font-weight="600"' if self.bold else ""
        looks += f' text-anchor="{self.anchor}"' if self.anchor != "start" else ""
        words = escape(self.text, quote=False)
        return f'<text x="{_number(self.x)}" y="{_number(self.y)}"{looks} class="{self.kind}">{words}</text>'


Shape = Box | Line | Dot | Text


class Drawing:
    """What has been drawn so far; `str` makes SVG of it.

    A `kind` is what a thing is, and so how it looks: "ink", "faint", "rule", "pale", or a `colour(number)`.

    >>> picture = Drawing(120, 40, "A bar")
    >>> picture.box(10, 10, 100, 20, colour(0))
    >>> print(str(picture).splitlines()[-2])
    <rect x="10" y="10" width="100" height="20" class="c0"/>
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width = width
        self.height = height
        self.title = title
        self.shapes: list[Shape] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str, rounded: float = 0) -> None:
        """A filled rectangle."""
        self.shapes.append(Box(x, y, width, height, kind, rounded))

    def line(self, points: Sequence[Point], kind: str, width: float = 1, dashed: bool = False) -> None:
        """A line through points."""
        self.shapes.append(Line(tuple(points), kind, width, dashed))

    def dot(self, x: float, y: float, kind: str, radius: float = 3) -> None:
        """A filled circle."""
        self.shapes.append(Dot(x, y, kind, radius))

    def text(
        self,
        x: float,
        y: float,
        text: str,
        kind: str = "ink",
        anchor: Anchor = "start",
        size: float = FONT_SIZE,
        bold: bool = False,
    ) -> None:
        """A line of text; `y` is where its letters stand."""
        self.shapes.append(Text(x, y, text, kind, anchor, size, bold))

    def legend(self, x: float, y: float, names: Sequence[tuple[str, str]]) -> None:
        """Small boxes of several kinds with their names beside them, in one line."""
        for kind, name in names:
            self.box(x, y - 10, 11, 11, kind, rounded=2)
            self.text(x + 17, y, name, "faint")
            x += 17 + text_width(name) + 18

    def __str__(self) -> str:
        size = f'viewBox="0 0 {_number(self.width)} {_number(self.height)}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" {size} class="drawing" role="img" font-size="{FONT_SIZE}" '
                'font-family="system-ui, sans-serif">',
                f"<title>{escape(self.title, quote=False)}</title>",
                f"<style>{_style()}</style>",
                f'<rect width="{_number(self.width)}" height="{_number(self.height)}" rx="{CORNER}" class="ground"/>',
                *(shape.svg() for shape in self.shapes),
                "</svg>\n",
            ]
        )


def _number(value: float) -> str:
    """A tenth of a unit is finer than any screen; and keeps a picture the same where arithmetic differs a little."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _style() -> str:
    by_day = _rules({**GROUNDS, **_named(COLOURS)})
    in_the_dark = _rules({**_GROUNDS_IN_THE_DARK, **_named(_COLOURS_IN_THE_DARK)})
    return f"{by_day}\n@media (prefers-color-scheme: dark) {{\n{in_the_dark}\n}}"


def _named(colours: Sequence[str]) -> dict[str, str]:
    return {colour(number): each for number, each in enumerate(colours)}


def _rules(colours: dict[str, str]) -> str:
    # Written out instead of with variables, which some viewers of SVG files do not know.
    fills = (f".drawing .{kind} {{ fill: {value} }}" for kind, value in colours.items())
    strokes = (f".drawing .line-{kind} {{ stroke: {value}; fill: none }}" for kind, value in colours.items())
    return "\n".join((*fills, *strokes))
