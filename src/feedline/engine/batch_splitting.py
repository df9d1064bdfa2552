"""Batches that several workers make together: decides when, divides them into parts, and joins the parts.

Takes: entries of the ledger before they are sent, and when all their parts are back. Gives: the number of parts and
their tasks; the whole outcome, or the answer that one worker has to make the batch again.
Promises: the same batches and errors as without it. A batch whose parts do not fit together, or that draws from a
global generator, is made by one worker.
Not its job: sending (loop), deaths (recovery), how many parts are worth it (division), making a part
(workers.piecework), joining arrays (collate.pieces).
"""

from __future__ import annotations

import time
from typing import Any

from feedline.arena.joint import Joint, Rows
from feedline.arena.slots import LocalMemory
from feedline.collate.pieces import Pieces, never_whole
from feedline.datasets import awaits
from feedline.engine.contract import Workers
from feedline.engine.division import Division, DivisionFacts, Race, bounds, is_small, pieces_for
from feedline.engine.ledger import Entry, Ledger, Part
from feedline.errors import MemoryShortage
from feedline.messages.outcome import Apart, Notice, Outcome
from feedline.messages.task import Task
from feedline.workers.job import Job

TIMED = 64
"""After each of the first 64 parts the time per sample is updated, then only after every 64th: an update takes 5 µs."""


def may_split(job: Job) -> bool:
    """Could several workers make one batch of this job together? This is decided without reading a sample."""
    plain = job.batched and not job.stream and job.collate_fn is None and job.on_error == "raise" and not job.in_turn
    if not plain or job.num_workers < 2 or job.registrations or not job.dialect.pieces.are_plain():
        return False
    if job.fetch_threads or awaits(job.dataset):  # one worker reads all samples of a batch at the same time
        return False
    return not job.dialect.reads_many(job.dataset) and job.dialect.batch_reader(job.dataset) is None


class Splitting:
    """Splits the batches of one set of workers."""

    def __init__(self, pieces: Pieces, division: Division, ledger: Ledger, workers: Workers) -> None:
        self._joins = pieces.join
        self._division = division
        self._ledger = ledger
        self._pool = workers.traits.pool
        self._spent = workers.traits.spent
        self._race = Race()
        self._in_order = True
        self._begun = 0  # parts sent in this run before the first came back; then -1
        self._used_small = False
        self._largest = self._seen = self._samples = self._look_at = 0
        self.idle = False
        """No batch is worth splitting, so nothing is decided or measured. (That would cost 5 µs per batch.)"""
        self.holds = False
        """Has an entry been held back until more is known about samples?"""

    def begin(self, in_order: bool, goes_on: bool) -> None:
        """A run begins; `goes_on` if some of its batches were sent early, so that workers are busy already."""
        self._in_order = in_order
        self._begun = -1 if goes_on else 0
        self.idle = self.holds = False
        self._race.begin()

    def parts_for(self, task: Task, workers: int) -> int:
        """The number of parts for this task; 0 means that it should wait."""
        if self.idle:
            return 1
        size = _size(task)
        self._largest = max(self._largest, size)
        count = 1 if self._division.never or task.alone or task.avoid else self._pieces(size, workers)
        if count == 0:
            self.holds = True
            return 0
        if self._begun >= 0:
            self._begun += count
        for _ in range(count):
            self._race.sent()
        return count

    def _pieces(self, size: int, workers: int) -> int:
        uneven = self._in_order and self._race.is_uneven
        if not workers or (self._begun < 0 and not uneven):
            return 1
        known = self._division
        return pieces_for(DivisionFacts(size, workers, known.seconds, self._begun, uneven, known.joining or 0.0))

    def divide(self, entry: Entry, count: int) -> list[Part]:
        """The entry's parts."""
        self._used_small = True
        size = _size(entry.task)
        edges = bounds(size, count)
        joint = Joint(self._pool) if self._pool is not None and not self._pool.crowded else None
        tasks = ((start, _some(entry.task, Rows(start, stop, size, size // count))) for start, stop in edges)
        return list(self._ledger.divide(entry, tasks, joint))

    def refuses(self, part: Part, workers: int) -> bool:
        """A part is back, and the ledger has not taken it yet. Does it say that no batch of this loader can be made in
        parts? Also updates the time per sample."""
        if self.idle:
            self._count(self._largest)
            return False
        outcome = part.outcome
        if outcome is None or not self._ledger.is_wanted(part):
            return False
        self._race.back(self._ledger.is_first(part), workers)
        self._begun = -1
        self._count(outcome.size)
        if part.task.rows is None or outcome.notice is None:
            return False
        if outcome.notice.took is not None:
            self._division.quickest = min(self._division.quickest, outcome.notice.took)
        if outcome.notice.apart is not Apart.ALWAYS:
            return False
        self._division.never = True
        return True

    def _count(self, size: int) -> None:
        self._seen += 1
        self._samples += size
        if self._samples and (self._seen < TIMED or self._seen >= self._look_at):
            self._look()

    def _look(self) -> None:
        self._look_at = self._seen + TIMED
        spent, known = self._spent(), self._division
        known.seconds = min(known.quickest, (spent.fetching + spent.collating) / 1e9 / self._samples)
        whole = known.never or is_small(self._largest, known.seconds)
        self.idle = whole and not self._ledger.has_divided and not self.holds

    def rest(self) -> None:
        """The loop is about to wait: release memory that only divided batches need."""
        if self._used_small and not self._ledger.has_divided:
            self._used_small = False
            if self._pool is not None:
                self._pool.give_back_small()

    def joined(self, entry: Entry) -> Outcome | None:
        """The outcome of an entry whose parts are all back; None if one worker has to make it again."""
        outcomes = [part.outcome for part in entry.parts if part.outcome is not None]
        marks = tuple(each for one in outcomes if one.notice is not None for each in one.notice.marks)
        drawing = tuple(each for one in outcomes if one.notice is not None for each in one.notice.drawing)
        notice = Notice(marks=marks, drawing=drawing) if marks or drawing else None
        failed = next((one for one in outcomes if one.failure is not None), None)
        if failed is not None and failed.failure is not None:
            if failed.failure.name == MemoryShortage.__name__:  # memory may suffice for one worker at a time
                self._division.never = True
                return None
            # The error of the first part, because one worker alone would have met that error first.
            return failed._replace(notice=notice)
        if any(one.notice is not None and one.notice.apart is not None for one in outcomes):
            return None
        try:
            batch = self._join([one.batch for one in outcomes], entry)
        except Exception:  # a Misfit, or no memory: the worker that makes it whole will report it
            self._division.never = True
            return None
        return Outcome(entry.task.seq, batch, _size(entry.task), notice=notice)

    def _join(self, batches: list[Any], entry: Entry) -> Any:
        began, memory, joint = time.thread_time(), LocalMemory(self._pool), entry.parts[0].joint
        try:
            return self._joins(batches, memory, never_whole if joint is None else joint.whole)
        finally:
            memory.finish()
            took, known = (time.thread_time() - began) / _size(entry.task), self._division.joining
            self._division.joining = took if known is None else min(took, known)


def _some(task: Task, rows: Rows) -> Task:
    """The task with some of its rows."""
    assert task.indices is not None
    first = task.first + rows.start * task.stride if task.first >= 0 else -1
    return task._replace(indices=task.indices[rows.start : rows.stop], first=first, rows=rows)


def _size(task: Task) -> int:
    assert task.indices is not None
    return len(task.indices)
