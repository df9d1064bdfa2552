"""The outcome of tuning, as text for a screen, as a page for a browser, and as a picture.

Takes: an outcome. Gives: `TuneResult`, which `feedline.tune` returns: it prints itself, and writes the page and the
picture.
Promises: lines to paste are never broken; the page needs no other file and no script, everything from the data in it is
escaped, and matplotlib is needed only for its picture; all charts have the same colours, and the recommended setting is
marked.
Not its job: the words (verdict), colours of a terminal (rendering), the style of pages (observe/report) and of pictures
(plotting).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from feedline.diagnose.plotting import COLOURS, FAINT, INK, encoded, figure, looks
from feedline.diagnose.rendering import WIDEST, Answer, PageLine, plain, wrapped, write_file
from feedline.diagnose.tune.trial import Trial
from feedline.diagnose.tune.tune_verdict import TuneOutcome
from feedline.errors import MissingPackage
from feedline.errors.counting import counted
from feedline.observe.report.document import document
from feedline.observe.report.markup import Html, number, section, sentence, table
from feedline.observe.report.report_verdict import percent
from feedline.observe.window import USUAL_PREFETCH, Setting

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEAD = ("setting", "batches/s", "waits", "memory", "CPUs")
WIDE, TALL = 760, 640
LONGEST = 40
"""Characters of a dataset's name that fit into a picture."""


@dataclass(frozen=True)
class TuneResult(TuneOutcome):
    """What `feedline.tune` found: `print` it, paste its `code`, or write it with `plot` and `report`.

    >>> callable(TuneResult.plot) and callable(TuneResult.report)
    True
    """

    def __str__(self) -> str:
        return plain(lines(self, WIDEST)).rstrip("\n")

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw speed, waiting and memory by workers: SVG if the name ends in .svg, else PNG; needs feedline[plot]."""
        write_file(path, encoded(picture(self), os.fspath(path)))

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML page that needs no network."""
        write_file(path, html(self).encode())

    def answer(self) -> Answer:
        """The same for the command line."""
        return Answer({"command": "tune", **self.to_json()}, lambda width: lines(self, width))


def _heading(outcome: TuneOutcome) -> str:
    asked = f"for a step of {number(1e3 * outcome.step)} ms" if outcome.step else "for as many batches as possible"
    return f"feedline tune: {outcome.name}, {asked}"


def _measured(outcome: TuneOutcome) -> str:
    """What the result is based on."""
    batches = sum(trial.spending.batches for trial in outcome.trials)
    short = " There was not enough time to try every setting that should be tried: give it more (--seconds)."
    return (
        f"{counted(len(outcome.trials), 'setting')} tried with {counted(batches, 'batch')} in {outcome.seconds:.0f} s, "
        f"on {number(outcome.cpus)} CPUs.{'' if outcome.finished else short}"
    )


def _row(trial: Trial) -> tuple[str, ...]:
    """Setting, batches per second, waiting, memory, CPUs."""
    if trial.failed:
        return str(trial.setting), trial.failed, "", "", ""
    waits = percent(trial.waiting_share) if trial.step else "–"
    memory, cpus = f"{trial.memory / 1e6:,.0f} MB", f"{trial.cpus_used:.1f}"
    return str(trial.setting), number(trial.batches_per_second), waits, memory, cpus


# On a screen


def lines(outcome: TuneOutcome, width: int) -> list[PageLine]:
    """The whole outcome, for a terminal of that many columns."""
    bottleneck, good = outcome.bottleneck, outcome.keeps_up or not outcome.step
    return [
        PageLine(_heading(outcome), "bold"),
        PageLine(),
        PageLine(f"Use {outcome.best.setting}.", "bold green" if good else "bold yellow"),
        *wrapped(outcome.why, width),
        PageLine(),
        *(PageLine("    " + text if text else "", "cyan") for text in outcome.code.splitlines()),
        PageLine(),
        PageLine("Bottleneck", "bold"),
        *wrapped(bottleneck.words, width),
        *wrapped(bottleneck.remedy and f"Do: {bottleneck.remedy}", width),
        PageLine(),
        *_table(outcome),
        PageLine(),
        *(line for note in (*outcome.notes, _measured(outcome)) for line in wrapped(note, width)),
    ]


def _table(outcome: TuneOutcome) -> Iterator[PageLine]:
    rows = [_row(trial) for trial in outcome.trials]
    columns = zip(HEAD, *(row for row in rows if row[2]), strict=True)
    widths = [max(map(len, column)) for column in columns]
    yield PageLine("  " + _cells(HEAD, widths), "bold")
    for trial, row in zip(outcome.trials, rows, strict=True):
        chosen = trial.setting == outcome.best.setting
        text = _cells(row, widths) if row[2] else f"{row[0].ljust(widths[0])}  {row[1]}"
        yield PageLine(("> " if chosen else "  ") + text, "bold" if chosen else "")


def _cells(row: Sequence[str], widths: Sequence[int]) -> str:
    first = row[0].ljust(widths[0])
    return "  ".join([first, *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))])


# In a browser


def html(outcome: TuneOutcome) -> str:
    """The whole page."""
    rows = [_row(trial) for trial in outcome.trials]
    best = str(outcome.best.setting)
    marked = [(Html(f"<strong>{escape(best)}</strong>"), *row[1:]) if row[0] == best else row for row in rows]
    body = [
        f"<header><h1>{escape(_heading(outcome))}</h1>{sentence(_measured(outcome))}</header>",
        _verdict(outcome),
        _cards(outcome),
        section("code", "The line to paste", f"<pre>{escape(outcome.code)}</pre>"),
        section("curve", "Workers against speed", _curve(outcome)),
        section("trials", "What was tried", table(HEAD, marked, numbers=len(HEAD) - 1)),
        section("notes", "Notes", "".join(map(sentence, outcome.notes))),
    ]
    return document("feedline tune", "\n".join(part for part in body if part))


def _curve(outcome: TuneOutcome) -> str:
    try:
        drawn = encoded(picture(outcome)).decode()
    except MissingPackage as error:  # the numbers are in the table
        return sentence(f"Not drawn: {error}.")
    return f"<div class=scroll><div class=wide>{drawn[drawn.index('<svg') :]}</div></div>"


def _verdict(outcome: TuneOutcome) -> str:
    level = "good" if outcome.keeps_up or not outcome.step else "slow"
    remedy = f"<ul><li>{escape(outcome.bottleneck.remedy)}</li></ul>" if outcome.bottleneck.remedy else ""
    return (
        f'<section id="verdict" class="{level}"><p class=head>Use {escape(str(outcome.best.setting))}.</p>'
        f"<p>{escape(outcome.why)}</p><p>{escape(outcome.bottleneck.words)}</p>{remedy}</section>"
    )


def _cards(outcome: TuneOutcome) -> str:
    best = outcome.best
    facts = {"batches per second": number(best.batches_per_second)}
    if outcome.step:
        facts["of its time the step waits"] = percent(best.waiting_share)
    facts |= {
        "MB of workers and batches": f"{best.memory / 1e6:,.0f}",
        "CPUs busy with loading": f"{best.cpus_used:.1f}",
        "seconds to the first batch": number(best.first_batch),
    }
    inside = "".join(f"<div><dd>{escape(value)}</dd><dt>{escape(name)}</dt></div>" for name, value in facts.items())
    return f"<dl class=cards>{inside}</dl>"


# As a picture


def _group(setting: Setting) -> str:
    """The name of the line or the dots that show the setting."""
    if not setting.workers:
        return "no workers"
    if setting.pinned:
        return "pinned memory"
    if setting.threads > 1:
        return "more threads each"
    if setting.prefetch != USUAL_PREFETCH:
        return "other prefetch_factor"
    return {"process": "processes", "thread": "threads"}[setting.kind]


LOOKS = {"processes": "o-", "threads": "o-"} | dict.fromkeys(
    ("no workers", "other prefetch_factor", "more threads each", "pinned memory"), "o"
)


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
        for colour, (name, look) in zip(COLOURS, LOOKS.items(), strict=False):
            of_group = [each for each in outcome.trials if each.windows and _group(each.setting) == name]
            points = sorted((each.setting.workers, value(each)) for each in of_group)
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
