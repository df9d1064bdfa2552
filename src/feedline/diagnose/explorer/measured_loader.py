"""A user's dataset, measured sample by sample, for the explorer's page.

Takes: a dataset, a loader, or a factory of one; the length of a step. Gives: the trace of some batches made without
workers, as `loader.trace` writes it, and what it says in a few numbers.
Promises: the user's loader is not iterated, and its generator not drawn from; it ends after about the given seconds.
Without workers, because then nothing else on the machine slows the samples down: the page simulates workers.
Not its job: choosing a setting by measuring several (tune).
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from statistics import mean
from typing import Any

from feedline.diagnose.deadline import TooLong, patience, within
from feedline.diagnose.quiet import quietly
from feedline.diagnose.target import constructed
from feedline.diagnose.tune.running import wait_for
from feedline.diagnose.tune.tune_subject import TuneSubject, subject_of
from feedline.diagnose.user_loader import options_of
from feedline.errors import FeedlineError, OptionError
from feedline.errors.checks import check_number, check_seconds
from feedline.observe.window import Setting

MOST = 400
"""Batches: enough to see how far they differ; a page with 32 samples in each has about 1.5 MB more."""


def measured(what: Any, step_ms: float = 0.0, seconds: float = 10.0, batch_size: int | None = None) -> dict[str, Any]:
    """What the page shows as "your run".

    >>> found = measured([1.0, 2.0, 3.0], seconds=5, batch_size=2)
    >>> found["measured"]["batches"], found["workers"]
    (2, 0)
    """
    step = check_number("step_ms", step_ms) / 1e3
    if not 0 <= step < 3600:
        raise OptionError(f"step_ms must be at least 0 and less than an hour; got {step_ms}")
    if not check_seconds("seconds", seconds, ""):
        raise OptionError("seconds must be more than 0: measuring takes time")
    try:
        with quietly(), within(patience(seconds, times=2)):
            made, _ = constructed(what)
            subject = subject_of(made, batch_size, None)
            events = _traced(subject, step, time.monotonic() + seconds)
            workers = options_of(made)["num_workers"] if made is not subject.dataset else 0
    except TooLong as late:
        raise FeedlineError(f"it could not be measured: {late}; give it more (--seconds)") from None
    except FeedlineError:
        raise
    except Exception as error:
        raise FeedlineError(f"reading failed: {type(error).__name__}: {error}. `feedline doctor` shows more") from error
    return {"name": subject.name, "workers": workers, "trace": events, "measured": _in_numbers(events)}


def _traced(subject: TuneSubject, step: float, until: float) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, subject.loader(Setting(0), 0, 0) as loader:
        path = os.path.join(folder, "run.json")
        with loader.trace(path):
            for number, _ in enumerate(loader, start=1):
                wait_for(step)
                if number >= MOST or time.monotonic() > until:
                    break
        with open(path, encoding="utf-8") as file:
            events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


def _in_numbers(events: list[dict[str, Any]]) -> dict[str, float]:
    took: dict[str, list[float]] = {"fetch": [], "sample": [], "collate": [], "compute": [], "wait": []}
    for event in events:
        took.get(event["name"], []).append(event.get("dur", 0.0))
    if not took["fetch"]:
        raise FeedlineError("it gave no batch, so there is nothing to show")
    return {
        "batches": len(took["fetch"]),
        "fetch_us": mean(took["fetch"]),
        "collate_us": mean(took["collate"] or [0.0]),
        "step_us": mean(took["compute"] or [0.0]),
    }
