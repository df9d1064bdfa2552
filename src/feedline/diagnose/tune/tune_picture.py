"""The outcome as a picture: workers against batches per second, the share of waiting, and memory.

Takes: an outcome. Gives: a matplotlib figure.
Promises: the same colours in all three charts; the recommended setting is marked.
Not its job: style and files (plotting), the page around it (page).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from feedline.diagnose.plotting import COLOURS, FAINT, INK, figure, looks
from feedline.diagnose.tune.trial import Trial, TrialSetting
from feedline.diagnose.tune.tune_outcome import TuneOutcome
from feedline.observe.report.markup import number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDE, TALL = 760, 640
LONGEST = 40
"""Characters of a dataset's name that fit."""

KINDS: dict[str, tuple[str, Callable[[TrialSetting], bool]]] = {
    "processes": ("o-", lambda each: each.workers > 0 and each == TrialSetting(each.workers)),
    "threads": ("o-", lambda each: each.workers > 0 and each == TrialSetting(each.workers, "thread")),
    "no workers": ("o", lambda each: not each.workers),
    "other prefetch_factor": ("o", lambda each: each.workers > 0 and replace(each, prefetch=2) != each),
    "more threads each": ("o", lambda each: each.workers > 0 and each.threads > 1),
}


@looks()
def picture(outcome: TuneOutcome) -> Figure:
    """Three charts, one below the other."""
    step = f", step of {number(1e3 * outcome.step)} ms" if outcome.step else ""
    drawn = figure(f"Loading {outcome.name[:LONGEST]}{step}", WIDE, TALL)
    charts: dict[str, Callable[[Trial], float]] = {
        "batches per second": lambda trial: trial.batches_per_second,
        "share of its time that the step waits": lambda trial: trial.waiting_share,
        "MB of workers and batches ahead": lambda trial: trial.memory / 1e6,
    }
    if not outcome.step:  # a consumer that takes no time always waits
        del charts["share of its time that the step waits"]
        charts["CPUs busy with loading"] = lambda trial: trial.cpus_used
    best = f"recommended: {outcome.best.setting}"
    dots = {"clip_on": False, "zorder": 3}  # above the axis, also where they are zero
    for axes, (title, value) in zip(rows := drawn.subplots(3, sharex=True), charts.items(), strict=True):
        for colour, (name, (look, wanted)) in zip(COLOURS, KINDS.items(), strict=False):
            of_kind = [each for each in outcome.trials if each.windows and wanted(each.setting)]
            points = sorted((each.setting.workers, value(each)) for each in of_kind)
            if points:
                axes.plot(*zip(*points, strict=True), look, color=colour, label=name, markersize=4, **dots)
        axes.plot(outcome.best.setting.workers, value(outcome.best), "o", color=INK, label=best, **dots)
        axes.set_title(title)
        axes.grid(axis="y")
    if outcome.step:
        rows[0].axhline(1 / outcome.step, color=FAINT, linestyle="--", label="all the step can take")
        rows[1].yaxis.set_major_formatter("{x:.0%}")
    for axes in rows:
        axes.set_ylim(bottom=0)
    rows[2].set_xlabel("workers", loc="right")
    rows[2].xaxis.get_major_locator().set_params(integer=True)
    drawn.legend(*rows[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return drawn
