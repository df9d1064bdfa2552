"""A comparison in words and as a picture: for each contest two bars, and a sentence that says which is faster.

Takes: a `Comparison`, and a width. Gives: lines, or a matplotlib figure.
Promises: if torch is faster, the page says so in the same words; a side that failed is named with its reason. The
picture says the same about noise and failures as the page; bars begin at zero, and those of one workload have one scale
for all numbers of workers.
Not its job: the numbers (comparison), colours (rendering), style and files of pictures (plotting).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

from feedline.diagnose.bench.bench_subject import FEEDLINE, TORCH
from feedline.diagnose.bench.comparison import Comparison, Contest, Measured
from feedline.diagnose.bench.machine import BUSY
from feedline.diagnose.bench.workloads import WORKLOADS
from feedline.diagnose.plotting import COLOURS, FAINT, INK, figure, looks
from feedline.diagnose.rendering import PageLine, wrapped
from feedline.errors.counting import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NAME = len(FEEDLINE) + 2
_STYLES = {FEEDLINE: "green", TORCH: "yellow", None: ""}
WIDE, TALL, HEAD = 760, 100, 40
LETTERS = 100
"""Characters of a contest's name in a line."""
ROOM = 1.3
"""The width of the axis, relative to the longest bar: its text needs room at its end."""


def page(found: Comparison, width: int) -> list[PageLine]:
    """All contests, with a heading that says where and with what they were held."""
    versions = ", ".join(f"{name} {version}" for name, version in found.versions.items() if name != "numpy")
    heading = f"feedline bench: {versions}; {found.machine.get('cores', '?')} cores; {found.date[:10]}"
    lines = [*wrapped(heading, width, "bold"), PageLine()]
    for contest in found.contests:
        lines += [*_contest(contest, width), PageLine()]
    lines += wrapped(
        f"Medians of {counted(found.repeats, 'turn')}; in brackets the lowest and highest ratio "
        "of two turns in a row. Nothing is done with a batch: a training step hides part of the difference.",
        width,
    )
    if any(contest.noisy for contest in found.contests):
        lines += wrapped(
            f"?: something else used over {BUSY:.0%} of the machine meanwhile; do not trust that ratio.",
            width,
            "yellow",
        )
    return lines


def listed(width: int) -> list[PageLine]:
    """Our workloads, each with a description."""
    room = max(len(each.name) for each in WORKLOADS) + 2
    lines = [PageLine("workloads: feedline bench NAME …, or pkg.module:dataset for your own", "bold")]
    for each in WORKLOADS:
        label = "  " + each.name.ljust(room)
        for line in wrapped(each.summary, width, label=label):
            lines.append(line._replace(label=label, label_style="cyan"))
            label = " " * len(label)
    return lines


def _contest(contest: Contest, width: int) -> Iterator[PageLine]:
    yield from wrapped(f"{title(contest)}: {contest.about}" if contest.about else title(contest), width, "bold")
    longest = max([contest.compared.ours or 0, contest.compared.theirs or 0])
    for name, side, value in (
        (FEEDLINE, contest.feedline, contest.compared.ours),
        (TORCH, contest.torch, contest.compared.theirs),
    ):
        label = "  " + name.ljust(_NAME)
        if value is not None:
            number = f"{plain(value)} {contest.metric}"
            room = max(1, width - len(label) - 20)
            bar = "█" * max(1, round(room * value / longest)) if longest else ""
            yield PageLine(f"{bar} {number}", "", label)
        if side.failure:
            yield from _failure(side, label if value is None else " " * len(label), width)
    yield from wrapped(verdict(contest), width, _STYLES[contest.faster], "  ")
    for note in contest.notes:
        yield from wrapped(f"note: {note}", width, "cyan", "  ")


def _failure(side: Measured, label: str, width: int) -> Iterator[PageLine]:
    after = " after some turns" if side.values else ""
    for line in wrapped(f"could not be measured{after}: {side.failure}", width, "red", label):
        yield line._replace(label=label)
        label = " " * len(label)


def title(contest: Contest) -> str:
    """The workload, and the number of workers.

    >>> title(Contest("jpeg", 1, "samples/s", Measured(), Measured()))
    'jpeg, 1 worker'
    """
    if contest.num_workers is None:
        return contest.name
    return f"{contest.name}, {counted(contest.num_workers, 'worker')}"


def verdict(contest: Contest) -> str:
    """Which is faster, and how certain that is.

    >>> verdict(Contest("a", 0, "samples/s", Measured((300.0, 310.0)), Measured((100.0, 100.0))))
    'feedline is 3.05 times as fast (3–3.1)'
    >>> verdict(Contest("a", 0, "samples/s", Measured((50.0, 80.0)), Measured((100.0, 100.0))))
    'torch is 1.54 times as fast (1.25–2)'
    >>> verdict(Contest("a", 0, "samples/s", Measured((50.0, 110.0)), Measured((100.0, 100.0))))
    'no clear difference (feedline 0.8 times as fast, 0.5–1.1)'
    """
    found = contest.compared
    if found.ratio is None or found.lowest is None or found.highest is None:
        return "nothing to compare"
    doubt = "?" if contest.noisy else ""
    if contest.faster == FEEDLINE:
        return f"feedline is {plain(found.ratio)}{doubt} times as fast ({plain(found.lowest)}–{plain(found.highest)})"
    if contest.faster == TORCH:
        low, high = plain(1 / found.highest), plain(1 / found.lowest)
        return f"torch is {plain(1 / found.ratio)}{doubt} times as fast ({low}–{high})"
    spread = f"{plain(found.lowest)}–{plain(found.highest)}"
    return f"no clear difference (feedline {plain(found.ratio)}{doubt} times as fast, {spread})"


def plain(value: float) -> str:
    """A number with as many digits as a reader needs.

    >>> plain(0.25), plain(1500), plain(0), plain(1e-6)
    ('0.25', '1,500', '0', '1e-06')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


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
