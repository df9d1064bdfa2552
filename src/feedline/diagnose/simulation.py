"""An epoch in numbers only: when each batch is made and delivered, by the rules of our engine or by torch's.

Takes: what each sample, each batch and each step costs, in whole microseconds; the workers and their rules.
Gives: `Epoch`: the span of every part on its worker, and when the loop asked for each batch and got it.
Promises: the same input gives the same output, to the microsecond: the explorer has the same simulator in JavaScript
(explorer/page/engine.js), and tests compare the two. Into how many pieces a batch is divided is decided by the engine's
own functions. A worker has a CPU of its own: samples that compute on fewer CPUs than workers take longer than here.
Not its job: starting workers, errors, streams, batches sent early for the next epoch, what joining pieces costs.

It is compared with real loaders in benchmarks/simulation.py (docs/explorer.md has the result).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from feedline.engine.batch_splitting import TIMED
from feedline.engine.division import DivisionFacts, Race, bounds, is_small, pieces_for
from feedline.errors.checks import check_choice, check_whole

RULES = ("feedline", "torch")


@dataclass(frozen=True)
class Work:
    """What there is to do: microseconds for each sample of each batch, to collate a batch, and for a training step."""

    batches: Sequence[Sequence[int]]
    collate: int = 0
    step: int = 0


@dataclass(frozen=True)
class Workers:
    """Who does it. `known` is the seconds per sample that an earlier epoch has measured; None in the first epoch."""

    count: int
    prefetch: int = 2
    in_order: bool = True
    splits: bool = True
    rules: str = "feedline"
    known: float | None = None
    handing: int = 0
    """Microseconds in which the loop takes in one part."""

    def __post_init__(self) -> None:
        check_whole("count", self.count, least=0)
        check_whole("prefetch", self.prefetch, least=1)
        check_choice("rules", self.rules, RULES)


class Span(NamedTuple):
    """One part on its worker."""

    worker: int
    batch: int
    start: int
    collating: int
    end: int
    samples: int


class Given(NamedTuple):
    """One batch, as the loop saw it."""

    batch: int
    asked: int
    gave: int


@dataclass(frozen=True)
class Epoch:
    """What happened, in microseconds from the beginning."""

    spans: tuple[Span, ...]
    given: tuple[Given, ...]
    end: int

    @property
    def waited(self) -> int:
        """How long the loop waited for batches."""
        return sum(one.gave - one.asked for one in self.given)

    @property
    def waiting_share(self) -> float:
        """The share of its time that the loop waited: the device was idle."""
        return self.waited / self.end if self.end else 0.0

    @property
    def busy_share(self) -> float:
        """The share of their time that workers worked; 0 without workers."""
        workers = 1 + max((span.worker for span in self.spans), default=-1)
        return sum(span.end - span.start for span in self.spans) / (workers * self.end) if workers and self.end else 0.0


def simulate(work: Work, workers: Workers) -> Epoch:
    """One epoch, from the moment at which the workers are ready and the loop asks for the first batch.

    Two workers need 4 ms each for a batch of two samples, and a step takes 3 ms:

    >>> work = Work([[2000, 2000]] * 4, step=3000)
    >>> epoch = simulate(work, Workers(2, splits=False))
    >>> [(one.asked, one.gave) for one in epoch.given], epoch.end
    ([(0, 4000), (7000, 7000), (10000, 10000), (13000, 13000)], 16000)
    >>> simulate(work, Workers(0)).end, simulate(work, Workers(2, known=0.002)).end
    (28000, 14000)
    """
    return _inline(work) if not workers.count else _Run(work, workers).epoch()


def _inline(work: Work) -> Epoch:
    """Without workers the loop makes each batch when it asks for it."""
    spans, given, now = [], [], 0
    for number, samples in enumerate(work.batches):
        turn = now + sum(samples)
        spans.append(Span(-1, number, now, turn, turn + work.collate, len(samples)))
        given.append(Given(number, now, turn + work.collate))
        now = turn + work.collate + work.step
    return Epoch(tuple(spans), tuple(given), now)


@dataclass
class _Entry:
    """A batch that is out: how many of its parts are not back."""

    batch: int
    missing: int = 0
    sent: bool = False
    whole: bool = False


@dataclass
class _Part:
    """What one worker makes: it ends at a known time, because workers take parts in the order they are sent."""

    serial: int
    entry: _Entry
    span: Span
    is_piece: bool


@dataclass
class _Splitting:
    """What the engine knows about dividing batches (engine/batch_splitting), with the engine's own decisions."""

    workers: int
    in_order: bool
    seconds: float | None
    on: bool
    race: Race = field(default_factory=Race)
    begun: int = 0
    quickest: float = float("inf")
    largest: int = 0
    seen: int = 0
    samples: int = 0
    look_at: int = 0
    spent: int = 0
    idle: bool = False
    holds: bool = False
    pieces_out: int = 0

    def parts_for(self, size: int) -> int:
        """The number of parts; 0 means that the batch waits."""
        if not self.on or self.idle:
            return 1
        self.largest = max(self.largest, size)
        uneven = self.in_order and self.race.is_uneven
        count = 1
        if self.begun >= 0 or uneven:
            count = pieces_for(DivisionFacts(size, self.workers, self.seconds, self.begun, uneven))
        if not count:
            self.holds = True
            return 0
        if self.begun >= 0:
            self.begun += count
        for _ in range(count):
            self.race.sent()
        return count

    def back(self, part: _Part, was_first: bool) -> None:
        """A part is back."""
        if not self.on:
            return
        took = part.span.end - part.span.start
        self.spent += took
        if part.is_piece:
            self.pieces_out -= 1
        if not self.idle:
            self.race.back(was_first, self.workers)
            self.begun = -1
            if part.is_piece:
                self.quickest = min(self.quickest, took / 1e6 / part.span.samples)
        self.seen += 1
        self.samples += self.largest if self.idle else part.span.samples
        if self.samples and (self.seen < TIMED or self.seen >= self.look_at):
            self.look_at = self.seen + TIMED
            self.seconds = min(self.quickest, self.spent / 1e6 / self.samples)
            self.idle = is_small(self.largest, self.seconds) and not self.pieces_out and not self.holds


class _Run:
    """An epoch with workers."""

    def __init__(self, work: Work, workers: Workers) -> None:
        self._work, self._workers = work, workers
        self._now = 0
        self._next = 0
        self._free = [0] * workers.count
        """When each worker has made all that was sent to it."""
        self._load = [0] * workers.count
        self._turn = 0
        self._queue: deque[_Entry] = deque()
        self._arrived: deque[_Entry] = deque()
        self._out: list[_Part] = []
        self._spans: list[Span] = []
        self._ours = workers.rules == "feedline"
        on = self._ours and workers.splits and workers.count > 1
        self._splitting = _Splitting(workers.count, workers.in_order, workers.known, on)

    def epoch(self) -> Epoch:
        """All batches, one after the other, with a step after each."""
        given = []
        for _ in self._work.batches:
            asked = self._now
            self._fill()
            while (entry := self._following()) is None:
                self._receive()
            self._queue.remove(entry)
            if not self._workers.in_order:
                self._arrived.popleft()
            self._fill()
            given.append(Given(entry.batch, asked, self._now))
            self._now += self._work.step
        return Epoch(tuple(sorted(self._spans, key=lambda span: (span.start, span.worker))), tuple(given), self._now)

    def _fill(self) -> None:
        room = self._workers.count * self._workers.prefetch
        while len(self._queue) < room and self._next < len(self._work.batches):
            entry = _Entry(self._next)
            self._next += 1
            self._queue.append(entry)
            self._send(entry)

    def _send(self, entry: _Entry) -> None:
        size = len(self._work.batches[entry.batch])
        count = self._splitting.parts_for(size)
        for start, stop in bounds(size, count) if count else ():
            self._send_part(entry, start, stop, is_piece=count > 1)
        entry.sent, entry.missing = count > 0, count

    def _send_part(self, entry: _Entry, start: int, stop: int, is_piece: bool) -> None:
        samples = self._work.batches[entry.batch]
        worker = self._any_free() if self._ours else self._torchs_turn()
        began = max(self._now, self._free[worker])
        turn = began + sum(samples[start:stop])
        end = turn + self._work.collate * (stop - start) // len(samples)
        span = Span(worker, entry.batch, began, turn, end, stop - start)
        self._free[worker] = end
        self._load[worker] += 1
        self._spans.append(span)
        self._out.append(_Part(len(self._spans), entry, span, is_piece))
        self._splitting.pieces_out += is_piece

    def _any_free(self) -> int:
        """All workers read from one pipe: a part goes to the worker that is free first."""
        return min(range(len(self._free)), key=lambda worker: (max(self._free[worker], self._now), worker))

    def _torchs_turn(self) -> int:
        """Each worker has a queue of its own, and batches go to them in turn; unless in order, full ones are passed."""
        count = self._workers.count
        for step in range(count):
            worker = (self._turn + step) % count
            if self._workers.in_order or self._load[worker] < self._workers.prefetch:
                break
        self._turn = (worker + 1) % count
        return worker

    def _following(self) -> _Entry | None:
        if not self._workers.in_order:
            return self._arrived[0] if self._arrived else None
        return self._queue[0] if self._queue[0].whole else None

    def _receive(self) -> None:
        """Wait for the next answer, and take in all that have come; torch takes one."""
        self._now = max(self._now, min(part.span.end for part in self._out))
        came = sorted((part.span.end, part.serial, part) for part in self._out if part.span.end <= self._now)
        for _, _, part in came if self._ours else came[:1]:
            self._take(part)
        if came and self._splitting.holds:
            self._splitting.holds = False
            for entry in self._queue:
                if not entry.sent:
                    self._send(entry)

    def _take(self, part: _Part) -> None:
        self._now += self._workers.handing
        was_first = self._out[0] is part
        self._splitting.back(part, was_first)
        self._out.remove(part)
        self._load[part.span.worker] -= 1
        part.entry.missing -= 1
        if not part.entry.missing:
            part.entry.whole = True
            self._arrived.append(part.entry)
