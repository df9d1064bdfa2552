"""A picture, written down as SVG.

Takes: rectangles, lines, dots and texts, in the order in which they cover each other. Gives: `Drawing`, whose `str` is
an SVG file, or a part of an HTML page.
Promises: no dependencies; the same calls, the same bytes; readable on light and dark ground (it brings its own, and
follows the reader's setting), and by those who do not see colours (the palette is Okabe and Ito's, lightened for dark).
Not its job: scales and axes (charts).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Literal

Anchor = Literal["start", "middle", "end"]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9")
_COLOURS_IN_THE_DARK = ("#3d9bdc", "#f0b43c", "#2fc19a", "#dd94bd", "#ef7d35", "#8accf2")
_GROUNDS = {"ground": "#fbfaf7", "ink": "#20242a", "faint": "#62686f", "rule": "#dddad2", "pale": "#e6e3db"}
_GROUNDS_IN_THE_DARK = {"ground": "#15181c", "ink": "#e8e6e1", "faint": "#a0a7af", "rule": "#363b42", "pale": "#2c3137"}

FONT_SIZE = 13
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
        self._parts: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str, rounded: float = 0) -> None:
        """A filled rectangle."""
        round_corners = f' rx="{_number(rounded)}"' if rounded else ""
        self._add(
            f'<rect x="{_number(x)}" y="{_number(y)}" width="{_number(width)}" height="{_number(height)}"'
            f'{round_corners} class="{kind}"/>'
        )

    def line(self, points: Sequence[tuple[float, float]], kind: str, width: float = 1, dashed: bool = False) -> None:
        """A line through points."""
        at = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        dashes = ' stroke-dasharray="5 4"' if dashed else ""
        self._add(f'<polyline points="{at}" stroke-width="{_number(width)}"{dashes} class="line-{kind}"/>')

    def dot(self, x: float, y: float, kind: str, radius: float = 3) -> None:
        """A filled circle."""
        self._add(f'<circle cx="{_number(x)}" cy="{_number(y)}" r="{_number(radius)}" class="{kind}"/>')

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
        looks = f' font-size="{_number(size)}"' if size != FONT_SIZE else ""
        looks += ' font-weight="600"' if bold else ""
        looks += f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._add(f'<text x="{_number(x)}" y="{_number(y)}"{looks} class="{kind}">{escape(text, quote=False)}</text>')

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
                f'<rect width="{_number(self.width)}" height="{_number(self.height)}" rx="8" class="ground"/>',
                *self._parts,
                "</svg>\n",
            ]
        )

    def _add(self, part: str) -> None:
        self._parts.append(part)


def _number(value: float) -> str:
    """A tenth of a unit is finer than any screen; and keeps a picture the same where arithmetic differs a little."""
    text = f"{value:.1f}"
    return text[:-2] if text.endswith(".0") else text


def _style() -> str:
    by_day = _rules({**_GROUNDS, **_named(COLOURS)})
    in_the_dark = _rules({**_GROUNDS_IN_THE_DARK, **_named(_COLOURS_IN_THE_DARK)})
    return f"{by_day}\n@media (prefers-color-scheme: dark) {{\n{in_the_dark}\n}}"


def _named(colours: Sequence[str]) -> dict[str, str]:
    return {colour(number): each for number, each in enumerate(colours)}


def _rules(colours: dict[str, str]) -> str:
    # Written out instead of with variables, which some viewers of SVG files do not know.
    fills = (f".drawing .{kind} {{ fill: {value} }}" for kind, value in colours.items())
    strokes = (f".drawing .line-{kind} {{ stroke: {value}; fill: none }}" for kind, value in colours.items())
    return "\n".join((*fills, *strokes))
