"""A comparison as a picture: two bars for each contest, with its ratio.

Takes: a `Comparison`. Gives: a matplotlib figure. Promises: it says the same about noise and failures as the page; bars
begin at zero, and those of one workload have one scale for all numbers of workers.
Not its job: style and files (plotting).
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from feedline.diagnose.bench.bench_page import plain, title, verdict
from feedline.diagnose.bench.bench_subject import FEEDLINE, TORCH
from feedline.diagnose.bench.comparison import Comparison, Contest, Measured
from feedline.diagnose.plotting import COLOURS, FAINT, INK, figure, looks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE, TALL, HEAD = 760, 100, 40
LETTERS = 100
"""Characters of a contest's name in a line."""
ROOM = 1.3
"""The width of the axis, relative to the longest bar: its text needs room at its end."""


@looks()
def picture(found: Comparison) -> Figure:
    """All contests, one below the other."""
    drawn = figure("Two loaders, in turns: how much they deliver", WIDE, HEAD + TALL * len(found.contests))
    rows = drawn.subplots(len(found.contests), squeeze=False)[:, 0]
    for axes, contest in zip(rows, found.contests, strict=True):
        same = [each for each in found.contests if each.name == contest.name]
        reached = (value for each in same for side in (each.feedline, each.torch) for value in side.values)
        axes.set_xlim(0, ROOM * max(reached, default=1.0))
        _draw(axes, contest)
    names = [f"{name} {found.versions.get(name, '')}".rstrip() for name in (FEEDLINE, TORCH)]
    drawn.legend(rows[0].patches, names, loc="outside upper right", ncols=2)
    return drawn


def _draw(axes: Axes, contest: Contest) -> None:
    sides = (contest.feedline, contest.torch)
    values = [contest.compared.ours or 0.0, contest.compared.theirs or 0.0]
    spread = [
        [value - min(side.values, default=0.0) for side, value in zip(sides, values, strict=True)],
        [max(side.values, default=0.0) - value for side, value in zip(sides, values, strict=True)],
    ]
    bars = axes.barh([0, 1], values, 0.75, xerr=spread, color=COLOURS[:2], ecolor=INK)
    labels = [_label(side, value, contest.metric) for side, value in zip(sides, values, strict=True)]
    axes.bar_label(bars, labels, padding=4, color=FAINT)
    axes.set_title(textwrap.fill(title(contest), LETTERS), fontweight="bold", parse_math=False)
    axes.set_xlabel(verdict(contest), loc="left", color=INK)
    axes.invert_yaxis()
    axes.spines.bottom.set_visible(False)
    axes.set(xticks=[], yticks=[])


def _label(side: Measured, value: float, metric: str) -> str:
    if side.values:
        return f"{plain(value)} {metric}"
    return "could not be measured" if side.failure else "not measured"
