"""What `make bench-growth` measured, as it is shown on docs/cost-growth.md: exponents, the table, the picture.

Takes: the facts of docs/measured/growth.json. Gives: `exponent` (arithmetic), `growth_table` (Markdown),
`growth_picture`.
Promises: an exponent is that of the power law nearest to the points: 0 is flat, 1 linear, -1 halved by twice as many.
Not its job: measuring (benchmarks/growth.py), what should be expected (the page).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from feedline.diagnose.plotting import figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Facts = Mapping[str, Any]
Points = Sequence[tuple[float, float]]

LARGE_END = 3
"""Points at the end of an axis, where what is constant no longer hides what grows."""
LEAST = 1 << 20
"""Bytes. What a process takes is only known to some pages: less is drawn and written as this."""


def exponent(points: Points) -> float:
    """The slope of the straight line nearest to the points' logarithms (least squares).

    >>> [round(exponent([(x, y(x)) for x in (1, 10, 100)]), 9) for y in (lambda x: 5, lambda x: 3 * x, lambda x: x**-1)]
    [0.0, 1.0, -1.0]
    """
    logs = [(math.log(x), math.log(y)) for x, y in points]
    middle, height = (sum(column) / len(logs) for column in zip(*logs, strict=True))
    return sum((x - middle) * (y - height) for x, y in logs) / sum((x - middle) ** 2 for x, _ in logs)


MEASURES: dict[str, Callable[[Mapping[str, float]], float]] = {
    "first batch": lambda point: point["first"],
    "each batch": lambda point: point["batch"],
    "memory": lambda point: max(point["peak"], point["together"], LEAST),
}


def curve(axis: Facts, measure: str) -> list[tuple[float, float]]:
    """The median of the repeats, for each value of an axis."""
    return [(value, median(map(MEASURES[measure], repeats))) for value, repeats in axis["points"]]


# --- in words ---


def growth_table(facts: Facts) -> str:
    """For each axis what the smallest and the largest value cost, and how it grows between them."""
    machine = facts["machine"]
    quick = " **A quick run: a look, not a result.**" if facts["quick"] else ""
    lines = [
        f"Measured on {facts['date']} in {facts['seconds']} s; {machine['cpu']}, {machine['cores']} cores, "
        f"Python {facts['python']}, NumPy {facts['numpy']}.{quick}",
        "",
        "| what grows | from–to | first batch | each batch | exponent (large end) | memory | exponent (large end) |",
        "|---|---|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *(_line(axis) for axis in facts["axes"])])


def _line(axis: Facts) -> str:
    first, each, memory = (curve(axis, measure) for measure in MEASURES)
    cells = [
        axis["title"],
        f"{each[0][0]:,}–{each[-1][0]:,}",
        _ends(first, _time),
        _ends(each, _time),
        _exponents(each),
        _ends(memory, _bytes),
        _exponents(memory),
    ]
    return f"| {' | '.join(cells)} |"


def _ends(points: Points, said: Callable[[float], str]) -> str:
    """The first and the last; and the highest, where that lies between them.

    >>> _ends([(1, 2.0), (10, 9.0), (100, 2.5)], _time), _ends([(1, 1.0), (10, 2.0)], _time)
    ('2 s–2.5 s, at most 9 s', '1 s–2 s')
    """
    first, last, most = points[0][1], points[-1][1], max(y for _, y in points)
    ends = f"{said(first)}–{said(last)}"
    return f"{ends}, at most {said(most)}" if most > 2 * max(first, last) else ends


def _exponents(points: Points) -> str:
    return f"{exponent(points):.2f} ({exponent(points[-LARGE_END:]):.2f})".replace("-0.00", "0.00")


def _time(seconds: float) -> str:
    """As people say it.

    >>> _time(2), _time(0.0123), _time(3.2e-5)
    ('2 s', '12 ms', '32 µs')
    """
    unit, size = next((each for each in (("s", 1.0), ("ms", 1e-3)) if seconds >= each[1]), ("µs", 1e-6))
    value = seconds / size
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.2g} {unit}"


def _bytes(count: float) -> str:
    return (
        "≤ 1 MB" if count <= LEAST else f"{count / LEAST:.0f} MB" if count >= 10 * LEAST else f"{count / LEAST:.2g} MB"
    )


# --- drawn ---

PANEL, HIGH, IN_A_ROW = 380, 220, 2
SHOWN = {"first batch": 1e3, "each batch": 1e3, "memory": 1 / LEAST}


def growth_picture(facts: Facts) -> Figure:
    """A chart for each axis: milliseconds and megabytes by what grows, all on logarithmic scales."""
    rows = -(-len(facts["axes"]) // IN_A_ROW)
    drawing = figure("How the cost of a batch grows", IN_A_ROW * PANEL, HIGH * rows)
    panels = drawing.subplots(rows, IN_A_ROW, squeeze=False).flat
    for axes, axis in zip(panels, facts["axes"], strict=False):
        for measure, scale in SHOWN.items():
            x, y = zip(*curve(axis, measure), strict=True)
            axes.loglog(x, [each * scale for each in y], "o-", markersize=3, label=measure)
        what, _, how = axis["title"].partition(" (")
        axes.set(title=what, xlabel=how.rstrip(")"), ylabel="ms, MB")
        axes.grid(axis="y")
        axes.minorticks_off()
    for axes in panels:
        axes.set_axis_off()
    drawing.legend(*drawing.axes[0].get_legend_handles_labels(), loc="outside upper right", ncols=3)
    return drawing
