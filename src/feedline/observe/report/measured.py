"""Sums over the times in a recording.

Takes: a `Recording`. Gives: plain values for tables and charts. Promises: pure; their size doesn't grow with the run.
Not its job: judging them (verdict), single spans (timeline), drawing (charts).
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from feedline.messages.marks import Marks
from feedline.observe.recording import Delivered, Recording, collating_since

MOMENTS = 120
"""Points of a chart over time: one for every third pixel of a phone…"""
PER_MOMENT = 5
"""…but each for at least this many batches: with fewer, the curve shows only counting noise."""
SLOWEST = 20
LABELS = 8
"""As many colours as people can tell apart; rarer labels are shown together."""
COLUMNS = 120
LEAST = 0.3
"""The share of a stretch that must be inside an epoch: with less, its numbers are chance."""

Numbers = NDArray[np.int64]


class Span(NamedTuple):
    """Begin and end, in the clock's nanoseconds."""

    start: int
    end: int


def whole(recording: Recording) -> Span:
    """From the first event of a recording to the last."""
    starts = [marks.began for marks in recording.marks] + [one.asked for one in recording.delivered]
    ends = [marks.made for marks in recording.marks] + [one.gave for one in recording.delivered]
    if not starts:
        return Span(recording.began, recording.began + 1)
    return Span(min(starts), max(max(ends), min(starts) + 1))


def epochs_in(delivered: list[Delivered]) -> list[list[Delivered]]:
    """The batches of each epoch."""
    return [list(batches) for _, batches in groupby(delivered, key=lambda one: one.run)]


class Moments(NamedTuple):
    """What happened in each of several equal stretches of the run; None outside epochs."""

    edges: list[int]
    waiting: list[float | None]
    """The share of the loop's time spent waiting."""
    busy: list[float | None]
    """The share of the workers' time spent working."""
    samples: list[float | None]
    """Samples per second."""


def moments(recording: Recording, workers: int) -> Moments:
    """The run, stretch by stretch."""
    span = whole(recording)
    count = max(1, min(MOMENTS, len(recording.delivered) // PER_MOMENT))
    edges = np.linspace(span.start, span.end, count + 1).astype(np.int64)
    active = _covered([(batches[0].asked, batches[-1].gave) for batches in epochs_in(recording.delivered)], edges)
    active[active < LEAST * np.diff(edges)] = 0
    waiting = _covered([(one.asked, one.gave) for one in recording.delivered], edges)
    busy = _covered([(marks.began, marks.made) for marks in recording.marks], edges)
    came = [one.gave for one in recording.delivered]
    sizes, _ = np.histogram(came, edges, weights=[one.size for one in recording.delivered])
    return Moments(
        edges.tolist(),
        _shares(waiting, active),
        _shares(busy, active * workers),
        _shares(sizes * 1e9, active, most=np.inf),
    )


def occupancy(marks: list[Marks], edges: Numbers) -> dict[int | None, tuple[list[float], list[float]]]:
    """For each worker, and each stretch between edges: the share of it spent fetching, and collating."""
    step = np.maximum(1, np.diff(edges))
    found = {}
    for worker, made in _by_worker(marks).items():
        turns = [collating_since(one) for one in made]
        fetching = _covered([(one.began, turn) for one, turn in zip(made, turns, strict=True)], edges) / step
        collating = _covered([(turn, one.made) for one, turn in zip(made, turns, strict=True)], edges) / step
        found[worker] = fetching.tolist(), collating.tolist()
    return found


def loop_occupancy(delivered: list[Delivered], edges: Numbers) -> tuple[list[float], list[float]]:
    """The share of each stretch that the loop spent waiting, and computing."""
    step = np.maximum(1, np.diff(edges))
    waiting = _covered([(one.asked, one.gave) for one in delivered], edges)
    active = _covered([(batches[0].asked, batches[-1].gave) for batches in epochs_in(delivered)], edges)
    return (waiting / step).tolist(), (np.maximum(0, active - waiting) / step).tolist()


def _covered(spans: list[tuple[int, int]], edges: Numbers) -> NDArray[np.float64]:
    """The sum of what the spans cover in each stretch."""
    if not spans:
        return np.zeros(len(edges) - 1)
    starts, ends = np.array(spans, dtype=np.int64).T
    until = [np.clip(edge - starts, 0, ends - starts).sum() for edge in edges]
    return np.diff(until).astype(np.float64)


def _shares(part: Any, of: Any, most: float = 1.0) -> list[float | None]:
    pairs = zip(part.tolist(), of.tolist(), strict=True)
    return [min(most, float(one / all_of_it)) if all_of_it > 0 else None for one, all_of_it in pairs]


def _by_worker(marks: list[Marks]) -> dict[int | None, list[Marks]]:
    found: dict[int | None, list[Marks]] = {}
    for one in marks:
        found.setdefault(one.worker, []).append(one)
    return dict(sorted(found.items(), key=lambda item: -1 if item[0] is None else item[0]))


class Worker(NamedTuple):
    """One worker's work, in seconds."""

    number: int | None
    batches: int
    fetching: float
    collating: float
    busy: float
    """The share of the epochs' time that the worker worked."""
    host: str = ""
    """Its machine, if that may be another one."""


def workers(recording: Recording) -> list[Worker]:
    """What each worker did."""
    active = sum(batches[-1].gave - batches[0].asked for batches in epochs_in(recording.delivered)) or 1
    found = []
    for number, made in _by_worker(recording.marks).items():
        turns = [collating_since(marks) for marks in made]
        fetching = sum(turn - marks.began for marks, turn in zip(made, turns, strict=True))
        collating = sum(marks.made - turn for marks, turn in zip(made, turns, strict=True))
        busy = min(1.0, (fetching + collating) / active)
        found.append(Worker(number, len(made), fetching / 1e9, collating / 1e9, busy, made[-1].host))
    return found


class Slow(NamedTuple):
    """A sample that took long."""

    index: Any
    """None for a stream."""
    nanoseconds: int
    start: int
    worker: int | None
    epoch: int
    seq: int
    place: int


class SampleTimes(NamedTuple):
    """How long samples took to read, in nanoseconds, if each was read by itself."""

    number: int = 0
    median: float = 0.0
    slow: float = 0.0
    """One sample in a hundred takes longer."""
    total: float = 0.0
    in_slow: float = 0.0
    """The part of `total` that the slowest one percent take."""
    slowest: tuple[Slow, ...] = ()


def samples(marks: list[Marks]) -> SampleTimes:
    """The times of the samples of all batches."""
    if not any(one.times for one in marks):
        return SampleTimes()
    took = [np.diff(np.array((*one.times, one.made), dtype=np.int64)) for one in marks]
    places = np.concatenate([np.array(one.places, dtype=np.int64) for one in marks])
    batch = np.repeat(np.arange(len(marks)), [len(one) for one in took])
    order = np.concatenate([np.arange(len(one)) for one in took])
    times = np.concatenate(took)
    alone = np.flatnonzero(places >= 0)
    if not len(alone):
        return SampleTimes()
    single = times[alone]
    longest = alone[np.argsort(-single, kind="stable")[:SLOWEST]]
    limit = int(np.percentile(single, 99))
    return SampleTimes(
        number=len(alone),
        median=float(np.median(single)),
        slow=limit,
        total=float(single.sum()),
        in_slow=float(single[single >= limit].sum()),
        slowest=tuple(_slow(marks[batch[i]], int(order[i]), int(times[i])) for i in longest),
    )


def _slow(marks: Marks, number: int, took: int) -> Slow:
    place = marks.places[number]
    index = marks.indices[place] if marks.indices is not None and place < len(marks.indices) else None
    return Slow(index, took, marks.times[number], marks.worker, marks.epoch, marks.seq, place)


class Waits(NamedTuple):
    """How the waiting was distributed, as shares of all waiting."""

    first: float = 0.0
    """The share for the first batch of each epoch."""
    longest: float = 0.0
    """The share of the longest 5 % of the waits, without first batches."""


def waits(delivered: list[Delivered]) -> Waits:
    """Were the waits many and short, or few and long?"""
    epochs = epochs_in(delivered)
    first = sum(batches[0].gave - batches[0].asked for batches in epochs)
    later = sorted((one.gave - one.asked for batches in epochs for one in batches[1:]), reverse=True)
    total = first + sum(later)
    return Waits(first / total, sum(later[: max(1, len(later) // 20)]) / total) if total else Waits()


class Composition(NamedTuple):
    """Which labels came in which batches."""

    labels: tuple[str, ...]
    """The most common labels, by name; "other" last if there are more."""
    counts: tuple[int, ...]
    batches_with: tuple[int, ...]
    columns: tuple[tuple[float, ...], ...]
    """The shares of the labels, in each batch or in groups of consecutive batches."""
    per_column: int
    batches: int
    different: int
    """The number of different labels."""
    single: int
    """The number of batches of several samples that all have the same label."""


def composition(delivered: list[Delivered]) -> Composition | None:
    """None if no batch has labels that could be recognised."""
    counted = [dict(one.labels) for one in delivered if one.labels]
    if not counted:
        return None
    totals: Counter[Any] = Counter()
    for one in counted:
        totals.update(one)
    most = totals.most_common(LABELS if len(totals) <= LABELS else LABELS - 1)
    common = sorted((label for label, _ in most), key=lambda label: (isinstance(label, str), label))
    tables = [[*(one.get(label, 0) for label in common), _others(one, common)] for one in counted]
    with_others = len(totals) > len(common)
    table = np.array(tables, dtype=np.int64)[:, : len(common) + with_others]
    step = -(-len(counted) // COLUMNS)
    groups = [table[start : start + step].sum(axis=0) for start in range(0, len(counted), step)]
    return Composition(
        labels=(*map(str, common), *(("other",) if with_others else ())),
        counts=tuple(table.sum(axis=0).tolist()),
        batches_with=tuple((table > 0).sum(axis=0).tolist()),
        columns=tuple(tuple((group / group.sum()).tolist()) for group in groups),
        per_column=step,
        batches=len(counted),
        different=len(totals),
        single=sum(len(one) == 1 and sum(one.values()) > 1 for one in counted),
    )


def _others(one: dict[Any, int], common: list[Any]) -> int:
    return sum(count for label, count in one.items() if label not in common)
