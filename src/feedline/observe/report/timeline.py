"""The spans of the timeline, as the page's script reads them.

Takes: a `Recording`. Gives: a dict of flat lists of integers, in microseconds from the beginning of the run.
Promises: a few megabytes at most: beyond `SAMPLES` samples only batches are listed, beyond `INDICES` indices only the
first of each batch.
Not its job: drawing (page.js; charts for paper).
"""

from __future__ import annotations

from typing import Any

from feedline.messages.marks import Marks, worker_name
from feedline.messages.progress import COLLATING
from feedline.observe.recording import Delivered, Recording, collating_since
from feedline.observe.report.measured import Span

SAMPLES = 30_000
"""Up to this many samples are drawn one by one: 20,000 batches of 64 then make a page of 2 MB instead of 11 MB
(tests/observe/test_report.py)."""
INDICES = 60_000
PER_BATCH = 64
LONGEST = 60
"""Characters shown of an index that is no number."""


def timeline(recording: Recording, span: Span) -> dict[str, Any]:
    """The whole timeline."""
    marks = sorted(recording.marks, key=lambda one: one.began)
    names = {-1 if one.worker is None else one.worker: worker_name(one.worker, one.host) for one in marks}
    rows = {number: row for row, number in enumerate(sorted(names), start=1)}
    return {
        "length": (span.end - span.start) // 1000 + 1,
        "rows": ["training loop", *(names[number] for number in rows)],
        "made": _made(marks, rows, span.start),
        "given": _given(recording.delivered, span.start),
        "events": [[(one.time - span.start) // 1000, one.text.splitlines()[0][:200]] for one in recording.events],
    }


def _made(marks: list[Marks], rows: dict[int, int], zero: int) -> dict[str, Any]:
    turns = [collating_since(one) for one in marks]
    starts = [(one.began - zero) // 1000 for one in marks]
    found: dict[str, Any] = {
        "row": [rows[-1 if one.worker is None else one.worker] for one in marks],
        "epoch": [one.epoch for one in marks],
        "seq": [one.seq for one in marks],
        "start": _steps(starts),
        "fetch": [(turn - one.began) // 1000 for one, turn in zip(marks, turns, strict=True)],
        "collate": [(one.made - turn) // 1000 for one, turn in zip(marks, turns, strict=True)],
        "size": [-1 if one.indices is None else len(one.indices) + one.indices_left for one in marks],
        "indices": _indices(marks),
    }
    if sum(len(one.times) for one in marks) <= SAMPLES:
        found["samples"] = [_samples(one) for one in marks]
    return found


def _given(delivered: list[Delivered], zero: int) -> dict[str, Any]:
    return {
        "epoch": [one.epoch for one in delivered],
        "seq": [one.seq for one in delivered],
        "size": [one.size for one in delivered],
        "asked": _steps([(one.asked - zero) // 1000 for one in delivered]),
        "waited": [(one.gave - one.asked) // 1000 for one in delivered],
        "queued": [one.queued for one in delivered],
    }


def _steps(values: list[int]) -> list[int]:
    """Each value as the difference from the one before: fewer digits."""
    return [value - before for value, before in zip(values, [0, *values], strict=False)]


def _indices(marks: list[Marks]) -> list[list[Any]]:
    each = min(PER_BATCH, INDICES // max(1, len(marks)))
    return [[named(index) for index in (one.indices or ())[:each]] for one in marks]


def _samples(marks: Marks) -> list[int]:
    """Place and begin of each sample that was read by itself, relative to the batch's begin, in a row; then the end."""
    flat: list[int] = []
    for place, time in zip(marks.places, marks.times, strict=True):
        if place >= 0 or place == COLLATING:
            flat += (place, (time - marks.began) // 1000)
    return flat


def named(index: Any) -> Any:
    """An index as a JSON value.

    >>> named(5), named("a.jpg"), named((1, 2))
    (5, 'a.jpg', '(1, 2)')
    """
    if type(index) is int:
        return index
    try:
        return str(index)[:LONGEST]
    except Exception:  # the index's own code may raise anything
        return type(index).__name__
