"""A recording as trace events, which chrome://tracing and Perfetto open.

Takes: a `Recording`. Gives: a JSON document.
Promises: one row per worker, one for the loop, one each for `loader.step()` and the device if they are known; counters
for ready batches and for the slots; times in microseconds from the beginning of the recording.
Not its job: the page for people without Perfetto (observe.report).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from feedline.messages.marks import Marks, worker_name
from feedline.observe.recording import Delivered, Recording, collating_since, sample_times

LOOP = 0
"""The row of the user's loop; worker n has row n + 1; without workers, row 1 is loading in the loop itself."""
STEPS, DEVICE = 1_000_000, 1_000_001
"""The rows of `loader.step()` and of the device; above all others."""
SHOWN = 64
"""Indices listed in a span's details."""

Event = dict[str, Any]


def trace_of(recording: Recording) -> str:
    """The whole trace, written event by event: as one tree it would take five times the memory."""
    events = ",\n".join(map(json.dumps, _events(recording)))
    return f'{{"displayTimeUnit": "ms", "traceEvents": [\n{events}\n]}}\n'


def _events(recording: Recording) -> Iterator[Event]:
    yield from _names(recording)
    for marks in recording.marks:
        yield from _made(marks, recording.began)
    before: Delivered | None = None
    for one in recording.delivered:
        yield from _waited(one, before, recording.began)
        before = one
    for row, stretches in ((STEPS, recording.steps), (DEVICE, recording.device)):
        for kind, start, end in stretches:
            yield _span(kind if row == STEPS else f"device {kind}", row, start, end, recording.began, {})
    for event in recording.events:
        yield {
            "name": event.text.splitlines()[0][:80],
            "ph": "i",
            "s": "g",
            "pid": 1,
            "tid": LOOP,
            "ts": (event.time - recording.began) / 1e3,
            "args": {"text": event.text},
        }


def _names(recording: Recording) -> Iterator[Event]:
    yield {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "feedline"}}
    rows = {LOOP: "training loop"}
    for marks in recording.marks:
        rows.setdefault(_row(marks), worker_name(marks.worker, marks.host))
    rows |= {STEPS: "loader.step()"} if recording.steps else {}
    rows |= {DEVICE: "device"} if recording.device else {}
    for row, name in sorted(rows.items()):
        place = row if row < STEPS else row - DEVICE - 1
        yield {"name": "thread_name", "ph": "M", "pid": 1, "tid": row, "args": {"name": name}}
        yield {"name": "thread_sort_index", "ph": "M", "pid": 1, "tid": row, "args": {"sort_index": place}}


def _row(marks: Marks) -> int:
    return 1 if marks.worker is None else marks.worker + 1


def _span(name: str, row: int, start: int, end: int, began: int, args: dict[str, Any]) -> Event:
    times = {"ts": (start - began) / 1e3, "dur": max(0, end - start) / 1e3}
    return {"name": name, "ph": "X", "pid": 1, "tid": row, **times, "args": args}


def _made(marks: Marks, began: int) -> Iterator[Event]:
    collating = collating_since(marks)
    args: dict[str, Any] = {"batch": marks.seq, "epoch": marks.epoch}
    if marks.indices is not None:
        args["indices"] = [str(index) for index in marks.indices[:SHOWN]]
    row = _row(marks)
    yield _span("fetch", row, marks.began, collating, began, args)
    for place, start, end in sample_times(marks):
        index = marks.indices[place] if marks.indices is not None and place < len(marks.indices) else place
        yield _span("sample", row, start, end, began, {"index": str(index)})
    if collating < marks.made:
        yield _span("collate", row, collating, marks.made, began, {"batch": marks.seq})


def _waited(one: Delivered, before: Delivered | None, began: int) -> Iterator[Event]:
    if before is not None and before.run == one.run:
        yield _span("compute", LOOP, before.gave, one.asked, began, {"batch": before.seq})
    args = {"batch": one.seq, "epoch": one.epoch, "samples": one.size}
    yield _span("wait", LOOP, one.asked, one.gave, began, args)
    at = {"ph": "C", "pid": 1, "ts": (one.gave - began) / 1e3}
    yield {"name": "ready batches", **at, "args": {"ready": one.queued}}
    yield {"name": "slots", **at, "args": one.slots._asdict()}
