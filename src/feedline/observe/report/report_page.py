"""The page: all parts in one self-contained file.

Takes: a recording and what the loader knows besides it. Gives: HTML.
Promises: nothing that comes from the data can become markup or script.
Not its job: the parts (sections), the frame around them (document), the file (recorder).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from functools import reduce
from typing import Any

import numpy as np

from feedline.errors.counting import counted
from feedline.machine.cpus import look
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.recording import Recording
from feedline.observe.report import measured, sections
from feedline.observe.report.document import document, part
from feedline.observe.report.markup import legend, section, sentence
from feedline.observe.report.report_verdict import notes, verdict
from feedline.observe.report.sections import Failed
from feedline.observe.report.timeline import timeline
from feedline.observe.stats import Stats

STRIP = 240
"""Stretches of the timeline on paper."""


def page_of(recording: Recording, stats: Stats, failed: Sequence[Failed]) -> str:
    """The whole page."""
    flows = [meter.flow() for meter in recording.meters]
    flow = reduce(EpochStats.plus, flows, EpochStats())
    span = measured.whole(recording)
    spread, found = measured.samples(recording.marks), measured.composition(recording.delivered)
    judged = verdict(flow, measured.waits(recording.delivered), 0 if stats.kind == "ray" else look().workers)
    parts = [
        _head(recording, flows, flow),
        sections.judgement(judged, notes(stats, flow.restarts, spread, found)),
        sections.cards(flow, stats),
    ]
    if recording.marks or recording.delivered:
        seen = measured.moments(recording, max(1, flow.num_workers))
        parts += [
            section("timeline", "Timeline", _timeline(recording, span)),
            section("steps", "Steps", sections.steps(flow)),
            section("time", "Waiting over time", sections.over_time(seen, span, flow.num_workers > 0)),
            section(
                "work",
                "Utilisation and memory" if stats.workers else "Utilisation",
                sections.workers(measured.workers(recording), stats),
                sections.stages(flow),
            ),
            section("epochs", "Epochs", sections.epochs(flows)),
            section("slowest", "Slowest samples", sections.slowest(spread, span.start)),
            section("labels", "Labels in batches", sections.labels(found)),
        ]
    parts += [
        section("padding", "Padding", sections.padding(stats.collate)),
        section("errors", "Errors", sections.errors(stats.errors, failed)),
        section("events", "Events", sections.events(recording.events, span.start)),
    ]
    body = "\n".join(part for part in parts if part)
    data = embedded(timeline(recording, span))
    return document("feedline report", body, data, part("page.js"))


def embedded(data: Any) -> str:
    """JSON that is safe in a script element, whatever texts it contains.

    >>> embedded({"label": "</script><b>"})
    '{"label":"\\\\u003c/script\\\\u003e\\\\u003cb\\\\u003e"}'
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _head(recording: Recording, flows: list[EpochStats], flow: EpochStats) -> str:
    now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z")
    workers = counted(flow.num_workers, "worker") if flow.num_workers else "no workers"
    epochs = counted(len(flows), "epoch")
    told = f"{epochs}, {counted(flow.batches, 'batch')}, {counted(flow.samples, 'sample')}, {workers}; written {now}"
    lines = [told]
    if recording.left_out:
        lines.append(
            f"The timeline has the first {counted(len(recording.delivered), 'batch')}; {recording.left_out:,} came "
            "later."
        )
    return f"<header><h1>feedline report</h1>{''.join(map(sentence, lines))}</header>"


def _timeline(recording: Recording, span: measured.Span) -> str:
    edges = np.linspace(span.start, span.end, STRIP + 1).astype(np.int64)
    waiting, computing = measured.loop_occupancy(recording.delivered, edges)
    loop = {"wait": waiting, "compute": computing}
    rows = measured.occupancy(recording.marks, edges)
    return legend(sections.LEGEND) + _CANVAS + sections.overview(loop, rows, span)


_CANVAS = """<div class="live">
<p class=controls><button data-do="in">Zoom in</button> <button data-do="out">Zoom out</button>
<button data-do="left" aria-label="Earlier">←</button> <button data-do="right" aria-label="Later">→</button>
<button data-do="all">Whole run</button> <output id=range></output></p>
<div class=box><canvas id=canvas tabindex=0 role=img aria-label="Timeline of the training loop and the workers. Keys:
plus and minus zoom, arrows move, 0 shows the whole run."></canvas><div id=tip role=status hidden></div></div>
<p class=small>Wheel or pinch to zoom, drag to move, hover or tap for details; with the keyboard + − ← → 0.</p>
</div>"""
