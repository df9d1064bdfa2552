"""The outcome as a picture: workers against batches a second, the share of waiting, and memory.

Takes: an outcome. Gives: a `Drawing`.
Promises: the same colours in all three charts; the recommended setting is marked.
Not its job: files (tuning), the page around it (page).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from feedline.diagnose.tune.outcome import Outcome
from feedline.diagnose.tune.trial import Setting, Trial
from feedline.drawing.charts import RIGHT, Axis, Scale, Series, draw_lines
from feedline.drawing.svg import Drawing, text_width
from feedline.observe.report.markup import number

WIDE, TALL = 760, 250
MB = 1e6
LONGEST = 24
"""Letters of a dataset's name beside which there is room for the recommendation."""

Value = Callable[[Trial], float]


def picture(outcome: Outcome) -> Drawing:
    """Three charts, one below the other."""
    title = f"Loading {outcome.name[:LONGEST]}" + (f", step of {number(1e3 * outcome.step)} ms" if outcome.step else "")
    drawing = Drawing(WIDE, 3 * TALL, title)
    charts: list[tuple[str, Axis, Value]] = [
        (title, Axis("batches per second"), lambda trial: trial.batches_per_second),
        ("Waiting", Axis("share of its time that the step waits", label=_percent), lambda trial: trial.waiting_share),
        ("Memory", Axis("MB of workers and batches ahead"), lambda trial: trial.memory / MB),
    ]
    if not outcome.step:  # whoever takes no time waits always
        charts[1] = ("CPUs", Axis("CPUs busy with loading"), lambda trial: trial.cpus_used)
    for place, (name, axis, value) in enumerate(charts):
        series = _series(outcome.trials, value)
        if not place and outcome.step:
            series.append(_line("all the step can take", 1 / outcome.step, outcome.trials))
        scales = draw_lines(drawing, name, series, Axis("workers", whole=True), axis, (0, place * TALL, WIDE, TALL))
        _mark(drawing, outcome.best, value, *scales)
    name = f"recommended: {outcome.best.setting}"
    drawing.legend(WIDE - RIGHT - text_width(name) - 17, 22, [("ink", name)])
    return drawing


def _series(trials: Sequence[Trial], value: Value) -> list[Series]:
    def points(wanted: Callable[[Setting], bool]) -> list[tuple[float, float]]:
        found = [(float(each.setting.workers), value(each)) for each in trials if each.windows and wanted(each.setting)]
        return sorted(found)

    curves = {
        "processes": points(lambda each: each.workers > 0 and each == Setting(each.workers)),
        "threads": points(lambda each: each.workers > 0 and each == Setting(each.workers, "thread")),
        "no workers": points(lambda each: not each.workers),
        "other prefetch_factor": points(lambda each: each.workers > 0 and replace(each, prefetch=2) != each),
        "more threads each": points(lambda each: each.workers > 0 and each.threads > 1),
    }
    curved = ("processes", "threads")
    return [Series(name, at, joined=name in curved, dotted=True) for name, at in curves.items() if at]


def _line(name: str, height: float, trials: Sequence[Trial]) -> Series:
    widest = max(trial.setting.workers for trial in trials)
    return Series(name, [(0, height), (widest, height)], dashed=True)


def _mark(drawing: Drawing, best: Trial, value: Value, across: Scale, up: Scale) -> None:
    x, y = across.at(best.setting.workers), up.at(value(best))
    drawing.dot(x, y, "ink", radius=5)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
