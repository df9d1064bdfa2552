"""The outcome as a page for a browser.

Takes: an outcome. Gives: HTML that needs no other file and no script.
Promises: everything from the data is escaped; readable on a phone, in dark mode and on paper, as all our pages;
matplotlib is needed only for the picture in it.
Not its job: style (observe/report), the picture in it (picture), files (tuning).
"""

from __future__ import annotations

from html import escape

from feedline.diagnose.plotting import encoded
from feedline.diagnose.tune.tune_outcome import TuneOutcome
from feedline.diagnose.tune.tune_picture import picture
from feedline.diagnose.tune.tune_screen import HEAD, heading, measured, rows
from feedline.errors import MissingPackage
from feedline.observe.report.document import document
from feedline.observe.report.markup import Html, number, section, sentence, table
from feedline.observe.report.report_verdict import percent


def html(outcome: TuneOutcome) -> str:
    """The whole page."""
    body = [
        f"<header><h1>{escape(heading(outcome))}</h1>{sentence(measured(outcome))}</header>",
        _verdict(outcome),
        _cards(outcome),
        section("code", "The line to paste", f"<pre>{escape(outcome.code)}</pre>"),
        section("curve", "Workers against speed", _curve(outcome)),
        section("trials", "What was tried", table(HEAD, _rows(outcome), numbers=len(HEAD) - 1)),
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
        f'<section id="verdict" class="{level}"><p class=head>Take {escape(str(outcome.best.setting))}.</p>'
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


def _rows(outcome: TuneOutcome) -> list[tuple[str, ...]]:
    found = []
    for trial, row in zip(outcome.trials, rows(outcome), strict=True):
        chosen = trial.setting == outcome.best.setting
        found.append((Html(f"<strong>{escape(row[0])}</strong>"), *row[1:]) if chosen else row)
    return found
