"""The parts of the page, from top to bottom, as HTML.

Takes: plain values. Gives: HTML in which every text from outside is escaped.
Promises: everything important is here as text and tables, for readers without scripts, eyes or screens.
Not its job: the numbers (measured), the words of the verdict (verdict), the style (page.css).
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any, Protocol

from feedline.errors.counting import counted
from feedline.messages.marks import worker_name
from feedline.observe.epoch_stats import BETWEEN, DEVICE, EpochStats
from feedline.observe.recording import Event
from feedline.observe.report import charts
from feedline.observe.report.markup import Html, axis, figure, number, sentence, table
from feedline.observe.report.measured import Composition, Moments, SampleTimes, Span, Worker
from feedline.observe.report.report_verdict import ReportVerdict, percent
from feedline.observe.report.timeline import named
from feedline.observe.stats import CollateStats, Stats

SHOWN = 50
"""How many errors, events and epochs are listed."""
LONGEST = 4_000
"""Characters shown of an event, which may have the stacks of many workers."""


class Failed(Protocol):
    """A sample that could not be read (messages.BadSample)."""

    @property
    def index(self) -> Any: ...
    @property
    def what(self) -> str: ...
    @property
    def error(self) -> str: ...
    @property
    def replacement(self) -> Any: ...
    @property
    def epoch(self) -> int: ...
    @property
    def seq(self) -> int: ...


def judgement(judged: ReportVerdict, notes: Sequence[str]) -> str:
    """What the page says first."""
    why = f"<p>{escape(judged.why)}</p>" if judged.why else ""
    items = "".join(f"<li>{escape(text)}</li>" for text in judged.advice)
    advice = f"<p>What to try:</p><ul>{items}</ul>" if items else ""
    others = "".join(f"<li>{escape(text)}</li>" for text in notes)
    also = f"<p>Also:</p><ul>{others}</ul>" if others else ""
    head = f"<p class=head>{escape(judged.headline)}</p>"
    basis = f"<p class=small>{escape(judged.basis)}</p>" if judged.basis else ""
    return f'<section id="verdict" class="{judged.level}">{head}{why}{advice}{also}{basis}</section>'


def cards(flow: EpochStats, stats: Stats) -> str:
    """The main numbers in large print."""
    facts = {
        "samples per second": f"{flow.samples_per_second:,.0f}",
        "batches per second": number(flow.batches_per_second),
        "MB per second": number(flow.bytes_per_second / 1e6),
        "of the time the loop waited": percent(flow.waiting_share),
    }
    if flow.basis == DEVICE:
        facts["of its time the device waited"] = percent(flow.starved_share)
    if flow.basis != BETWEEN:
        facts["of the time is in steps"] = percent(flow.step_share)
    if flow.num_workers:
        facts["of the time workers were busy"] = percent(flow.utilisation)
        facts["batches ready, on average"] = number(flow.queued)
        facts["workers replaced"] = f"{flow.restarts}"
    if stats.collate.padding is not None:
        facts["of padded arrays is padding"] = percent(stats.collate.padding)
    facts["samples failed"] = f"{stats.errors:,}"
    inside = "".join(f"<div><dd>{value}</dd><dt>{name}</dt></div>" for name, value in facts.items())
    return f"<dl class=cards>{inside}</dl>"


LEGEND = {
    "wait": "loop waits",
    "compute": "loop computes",
    "fetch": "worker reads samples",
    "collate": "worker makes the batch",
}


def overview(loop: dict[str, list[float]], rows: dict[int | None, tuple[list[float], list[float]]], span: Span) -> str:
    """The timeline for paper: for each row, the share of each activity in each stretch."""
    drawn = [("training loop", charts.stacked(loop, "strip", "training loop: waiting and computing"))]
    for worker, (fetching, collating) in rows.items():
        name = worker_name(worker)
        parts = {"fetch": fetching, "collate": collating}
        drawn.append((name, charts.stacked(parts, "strip", f"{name}: reading samples and making batches")))
    strips = "".join(f"<span>{escape(name)}</span>{svg}" for name, svg in drawn)
    return f"<div class=overview>{strips}<span></span>{axis(span)}</div>"


def over_time(seen: Moments, span: Span, has_workers: bool) -> str:
    """Waiting and utilisation, and throughput, from the beginning of the run to its end."""
    shares: dict[str, Sequence[float | None]] = {"wait": seen.waiting}
    names = {"wait": "share of the loop's time spent waiting"}
    if has_workers:
        shares["fetch"], names["fetch"] = seen.busy, "share of the workers' time spent working"
    top = max((value for value in seen.samples if value is not None), default=0.0) or 1.0
    rates = [None if value is None else value / top for value in seen.samples]
    above = charts.lines(shares, "Waiting and utilisation over time")
    below = charts.lines({"compute": rates}, "Samples per second over time")
    rate = {"compute": "samples per second"}
    return figure(names, above, ("100 %", "50 %", "0"), span) + figure(rate, below, (number(top), "", "0"), span)


def steps(flow: EpochStats) -> str:
    """What the loop did, and what its device did."""
    if flow.basis == BETWEEN:
        return ""
    host = flow.step, flow.waiting, flow.other
    device = flow.device_stepping, flow.device_waiting, flow.device_other
    rows = []
    for name, here, there in zip(("in steps", "waiting for batches", "other"), host, device, strict=True):
        rows.append((name, *_of(here, sum(host)), *(_of(there, sum(device)) if flow.basis == DEVICE else ())))
    head = ("", "loop, seconds", "share", "device, seconds", "share")
    return table(head[: len(rows[0])], rows, numbers=len(rows[0]) - 1)


def _of(seconds: float, whole: float) -> tuple[str, str]:
    return number(seconds), percent(seconds / whole if whole else 0.0)


def stages(flow: EpochStats) -> str:
    """Where the time of an average sample goes."""
    all_of = {
        "reading samples (fetch)": flow.fetching,
        "making batches (collate)": flow.collating,
        "packing them (send)": flow.sending,
        "to pinned memory or a device (transfer)": flow.transferring,
        "unpacking in the main process (deliver)": flow.delivering,
    }
    per = 1e6 / max(1, flow.samples)
    rows = [(name, number(seconds), number(seconds * per)) for name, seconds in all_of.items() if seconds]
    return table(("stage, all workers", "seconds", "µs/sample"), rows, numbers=2)


def workers(found: Sequence[Worker], stats: Stats) -> str:
    """Work and memory of each worker."""
    memory = {one.worker: one for one in stats.workers}
    rows = []
    for one in found:
        both = one.fetching + one.collating or 1.0
        parts = {"fetch": one.busy * one.fetching / both, "collate": one.busy * one.collating / both}
        drawn = Html(charts.bar(parts, f"{percent(one.busy)} busy"))
        held = memory.get(one.number) if one.number is not None else None
        sizes = () if held is None else (held.total, held.own, held.private)
        rows.append(
            (worker_name(one.number, one.host), drawn, percent(one.busy), f"{one.batches:,}", *_megabytes(sizes))
        )
    head = ("worker", "", "busy", "batches", "MB in all", "its own", "private")
    plain = [row[:4] for row in rows]
    return table(head, rows, 5) if memory else table(head[:4], plain, 2)


def _megabytes(sizes: tuple[int, ...]) -> list[str]:
    return [f"{size / 1e6:,.0f}" for size in sizes] or [""] * 3


def epochs(flows: Sequence[EpochStats]) -> str:
    """A line for each epoch."""
    rows = [
        (
            flow.number,
            f"{flow.batches:,}",
            f"{flow.samples:,}",
            number(flow.seconds),
            f"{flow.samples_per_second:,.0f}",
            percent(flow.waiting_share),
            percent(flow.utilisation) if flow.num_workers else "–",
        )
        for flow in flows[-SHOWN:]
    ]
    left = f"The last {SHOWN} of {len(flows)} epochs." if len(flows) > SHOWN else ""
    head = ("epoch", "batches", "samples", "seconds", "samples/s", "waited", "workers busy")
    return table(head, rows, 7) + (sentence(left) if left else "")


def slowest(found: SampleTimes, zero: int) -> str:
    """The samples that took longest, with their indices."""
    if not found.number:
        return sentence("Many samples were read at once, so the times of single samples are not known.")
    rows = [
        (
            "–" if one.index is None else named(one.index),
            _ms(one.nanoseconds),
            _show(one.start - zero, one.nanoseconds),
            number(one.nanoseconds / found.median) if found.median else "–",
            worker_name(one.worker),
            one.epoch,
            one.seq,
            f"{(one.start - zero) / 1e9:.3f} s",
        )
        for one in found.slowest
    ]
    told = (
        f"Of {counted(found.number, 'sample')}, the median took {_ms(found.median)} to read, and one in a hundred more "
        f"than {_ms(found.slow)}."
    )
    head = ("index", "took", "", "× median", "by", "epoch", "batch", "at")
    return sentence(told) + table(head, rows)


def _show(start: int, length: int) -> Html:
    return Html(f'<button class="live" data-start="{start // 1000}" data-length="{length // 1000}">show</button>')


def _ms(nanoseconds: float) -> str:
    return f"{number(nanoseconds / 1e6)} ms"


def labels(found: Composition | None) -> str:
    """Which label came in which batch."""
    if found is None:
        return ""
    parts = {f"l{place}": [column[place] for column in found.columns] for place in range(len(found.labels))}
    each = "one batch" if found.per_column == 1 else f"{found.per_column} batches after one another"
    told = f"A column is {each}, from the first on the left to the last; its colours are the shares of the labels."
    total = sum(found.counts) or 1
    rows = [
        (Html(f'<i class="l{place}"></i> {escape(name)}'), f"{count:,}", percent(count / total), f"{batches:,}")
        for place, (name, count, batches) in enumerate(zip(found.labels, found.counts, found.batches_with, strict=True))
    ]
    single = f"{found.single:,} of {found.batches:,} batches have a single label; labels: {found.different:,}."
    chart = charts.stacked(parts, "chart", "Shares of the labels, batch by batch")
    return sentence(told) + chart + table(("label", "samples", "share", "batches with it"), rows, 3) + sentence(single)


def padding(found: CollateStats) -> str:
    """The share of padding in the batches."""
    told = []
    chart = ""
    if found.padding is not None:
        told.append(f"{percent(found.padding)} of the padded arrays is padding.")
        shares = found.padding_of_batches
        chart = charts.lines({"wait": shares}, "Share of padding, batch by batch")
        chart = sentence(f"The last {len(shares):,} padded batches, from 0 % to 100 % padding:") + chart
    if found.fill is not None:
        told.append(f"Packed rows are filled to {percent(found.fill)}.")
    if found.cut or found.dropped:
        told.append(f"Cut short: {counted(found.cut, 'sample')}; dropped as invalid: {found.dropped:,}.")
    return "".join(f"<p>{escape(text)}</p>" for text in told) + chart


def errors(count: int, failed: Sequence[Failed]) -> str:
    """The samples that failed."""
    rows = [
        (
            "–" if one.index is None else named(one.index),
            one.what or "–",
            one.error,
            "left out" if one.replacement is None else f"sample {named(one.replacement)} instead",
            one.epoch,
            one.seq,
        )
        for one in failed[-SHOWN:]
    ]
    if not rows:
        return "<p>No sample failed.</p>" if not count else sentence(f"{counted(count, 'sample')} failed.")
    head = ("index", "what", "error", "done about it", "epoch", "batch")
    told = f"The last {len(rows)} of {count:,}." if count > len(rows) else ""
    return table(head, rows) + (sentence(told) if told else "")


def events(found: Sequence[Event], zero: int) -> str:
    """What the user was warned of."""
    rows = [
        (f"{(one.time - zero) / 1e9:.3f} s", Html(f"<pre>{escape(one.text[:LONGEST])}</pre>")) for one in found[-SHOWN:]
    ]
    return table(("at", "what happened"), rows)
