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
from feedline.diagnose.tune.verdict import number
from feedline.drawing.charts import Axis, Scale, Series, draw_lines
from feedline.drawing.svg import Drawing

WIDE, TALL = 760, 250
MB = 1e6

Value = Callable[[Trial], float]


def picture(outcome: Outcome) -> Drawing:
    """Three charts, one below the other."""
    title = f"Loading {outcome.name}" + (f", step of {number(1e3 * outcome.step)} ms" if outcome.step else "")
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
    on_the_left = x < (across.begin + across.end) / 2
    above = y > up.end + 24
    drawing.text(
        x + (9 if on_the_left else -9),
        y - 8 if above else y + 18,
        "recommended",
        anchor="start" if on_the_left else "end",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
