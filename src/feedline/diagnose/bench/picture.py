"""A comparison as a picture: two bars for each contest, with its ratio.

Takes: a `Comparison`. Gives: a `Drawing`. Promises: says of noise and failures what the page says.
Not its job: how bars are drawn (drawing.bars), the file (drawing.png).
"""

from __future__ import annotations

from collections.abc import Iterator

from feedline.diagnose.bench.comparison import Comparison, Contest, Measured
from feedline.diagnose.bench.page import title, verdict
from feedline.diagnose.bench.subject import FEEDLINE, TORCH
from feedline.drawing.bars import Bar, Group, bar_chart
from feedline.drawing.charts import plain
from feedline.drawing.svg import Drawing


def picture(found: Comparison) -> Drawing:
    """Bars of one workload have one scale, whatever the number of workers."""
    largest: dict[str, float] = {}
    for contest in found.contests:
        reached = (*contest.feedline.values, *contest.torch.values)
        largest[contest.name] = max([largest.get(contest.name, 0.0), *reached])
    groups = [
        Group(title(contest), tuple(_bars(contest)), verdict(contest), largest[contest.name])
        for contest in found.contests
    ]
    versions = found.versions
    sides = [f"{name} {versions[name]}" if name in versions else name for name in (FEEDLINE, TORCH)]
    return bar_chart("Two loaders, in turns: how much they deliver", sides, groups)


def _bars(contest: Contest) -> Iterator[Bar]:
    for side, value in ((contest.feedline, contest.compared.ours), (contest.torch, contest.compared.theirs)):
        if value is None:
            yield Bar(0, _missing(side), 0, 0)
        else:
            yield Bar(value, f"{plain(value)} {contest.metric}", min(side.values), max(side.values))


def _missing(side: Measured) -> str:
    return "could not be measured" if side.failure else "not measured"
