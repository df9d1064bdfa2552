"""The outcome on a screen: lines with a style.

Takes: an outcome and a width. Gives: lines. Promises: lines to paste are never broken.
Not its job: colours (rendering), the page for a browser (page).
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from feedline.diagnose.rendering import PageLine
from feedline.diagnose.tune.trial import Trial
from feedline.diagnose.tune.tune_outcome import TuneOutcome
from feedline.errors.counting import counted
from feedline.observe.report.markup import number
from feedline.observe.report.report_verdict import percent

HEAD = ("setting", "batches/s", "waits", "memory", "CPUs")


def lines(outcome: TuneOutcome, width: int) -> list[PageLine]:
    """The whole outcome."""
    return list(_lines(outcome, width))


def _lines(outcome: TuneOutcome, width: int) -> Iterator[PageLine]:
    yield PageLine(heading(outcome), "bold")
    yield PageLine()
    yield PageLine(
        f"Take {outcome.best.setting}.", "bold green" if outcome.keeps_up or not outcome.step else "bold yellow"
    )
    yield from _wrapped(outcome.why, width)
    yield PageLine()
    for text in outcome.code.splitlines():
        yield PageLine("    " + text if text else "", "cyan")
    yield PageLine()
    yield PageLine("Bottleneck", "bold")
    yield from _wrapped(outcome.bottleneck.words, width)
    yield from _wrapped(outcome.bottleneck.remedy and f"Do: {outcome.bottleneck.remedy}", width)
    yield PageLine()
    yield from _table(outcome)
    yield PageLine()
    for note in (*outcome.notes, measured(outcome)):
        yield from _wrapped(note, width)


def heading(outcome: TuneOutcome) -> str:
    """What was requested."""
    asked = f"for a step of {number(1e3 * outcome.step)} ms" if outcome.step else "for as many batches as possible"
    return f"feedline tune: {outcome.name}, {asked}"


def measured(outcome: TuneOutcome) -> str:
    """What the result is based on."""
    batches = sum(trial.spending.batches for trial in outcome.trials)
    short = (
        "" if outcome.finished else " There was not enough time to try all that should be: give it more (--seconds)."
    )
    return (
        f"{counted(len(outcome.trials), 'setting')} tried with {counted(batches, 'batch')} in {outcome.seconds:.0f} s, "
        f"on {number(outcome.cpus)} CPUs.{short}"
    )


def rows(outcome: TuneOutcome) -> list[tuple[str, ...]]:
    """The trials, as texts: setting, batches per second, waiting, memory, CPUs."""
    return [_row(trial, outcome) for trial in outcome.trials]


def _row(trial: Trial, outcome: TuneOutcome) -> tuple[str, ...]:
    name = str(trial.setting)
    if trial.failed:
        return name, trial.failed, "", "", ""
    waits = percent(trial.waiting_share) if outcome.step else "–"
    return name, number(trial.batches_per_second), waits, f"{trial.memory / 1e6:,.0f} MB", f"{trial.cpus_used:.1f}"


def _table(outcome: TuneOutcome) -> Iterator[PageLine]:
    shown = rows(outcome)
    widths = [
        max(len(row[place]) for row in (HEAD, *(each for each in shown if each[2]))) for place in range(len(HEAD))
    ]
    yield PageLine("  " + _cells(HEAD, widths), "bold")
    for trial, row in zip(outcome.trials, shown, strict=True):
        chosen = trial.setting == outcome.best.setting
        text = _cells(row, widths) if row[2] else f"{row[0].ljust(widths[0])}  {row[1]}"
        yield PageLine(("> " if chosen else "  ") + text, "bold" if chosen else "")


def _cells(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])


def _wrapped(text: str, width: int) -> Iterator[PageLine]:
    for part in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False):
        yield PageLine(part)
