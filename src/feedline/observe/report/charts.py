"""Charts as SVG without text: they stretch to any width, and use the page's colours.

Takes: shares between 0 and 1. Gives: SVG. Promises: readable without scripts and on paper.
Not its job: numbers and words next to them (markup, sections), pictures of fixed size with axes (diagnose.plotting),
whose text would shrink with the screen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

TALL = 100


def lines(series: Mapping[str, Sequence[float | None]], title: str) -> str:
    """A line for each series, coloured by its class; gaps where there is no value.

    >>> lines({"wait": [0.0, 1.0, None]}, "Waiting").count("M0.5 100L1.5 0")
    1
    """
    count = max(len(values) for values in series.values())
    drawn = "".join(f'<path class="line {name}" d="{_line(values)}"/>' for name, values in series.items())
    rules = "".join(f'<path class="rule" d="M0 {y}H{count}"/>' for y in (0, TALL // 2, TALL))
    return _svg(count, rules + drawn, "chart", title)


def stacked(parts: Mapping[str, Sequence[float]], kind: str, title: str) -> str:
    """Columns of shares on top of each other; each part is coloured by its class."""
    count = max((len(values) for values in parts.values()), default=0)
    below = [0.0] * count
    drawn = ""
    for name, values in parts.items():
        path = "".join(_column(i, below[i], value) for i, value in enumerate(values) if value > 0)
        below = [low + value for low, value in zip(below, values, strict=True)]
        drawn += f'<path class="{name}" d="{path}"/>' if path else ""
    return _svg(max(1, count), drawn, kind, title)


def bar(parts: Mapping[str, float], title: str) -> str:
    """One bar from left to right."""
    drawn, x = "", 0.0
    for name, share in parts.items():
        drawn += f'<path class="{name}" d="M{x:.4g} 0h{share:.4g}v{TALL}h-{share:.4g}z"/>' if share > 0 else ""
        x += share
    return _svg(1, drawn, "bar", title)


def _svg(width: int, inside: str, kind: str, title: str) -> str:
    named = f'role="img" aria-label="{escape(title)}"'
    return f'<svg class="{kind}" viewBox="0 0 {width} {TALL}" preserveAspectRatio="none" {named}>{inside}</svg>'


def _line(values: Sequence[float | None]) -> str:
    path, down = "", False
    for place, value in enumerate(values):
        if value is not None:
            path += f"{'L' if down else 'M'}{place + 0.5:g} {_y(value):g}"
        down = value is not None
    return path


def _column(place: int, low: float, value: float) -> str:
    top, height = _y(low + value), round(min(value, 1.0) * TALL, 2)
    return f"M{place} {top:g}h1v{height:g}h-1z"


def _y(share: float) -> float:
    return round(TALL * (1 - min(1.0, share)), 2)
