"""Workers that make a batch together: a layer around workers of any kind, which keeps their contract.

Takes: tasks. Gives: whole outcomes, and deaths with whole tasks in hand.
Promises: the same batches, errors and blame as without it. A batch whose pieces do not fit together, that draws from a
global generator, or one of whose workers dies, is made once more by one worker; a task that is urgent goes out whole.
Not its job: how many pieces (division), making one (piecework), putting them together (line.pieces).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from feedline.arena.joint import Joint, Rows
from feedline.arena.slots import LocalMemory
from feedline.datasets import awaits
from feedline.errors import MemoryShortage
from feedline.line.pieces import Pieces, never_whole
from feedline.messages import Apart, Notice, Outcome, Task
from feedline.supervise.watch import Death, Standing
from feedline.workers.around import AroundWorkers
from feedline.workers.contract import Workers
from feedline.workers.division import Division, Facts, Race, bounds, is_small, pieces_for
from feedline.workers.job import Job

TIMED = 64
"""From this task on only after every so-manieth is it looked up what a sample takes: that costs 5 µs."""


def may_split(job: Job) -> bool:
    """Could several workers make one batch of this job, as far as can be seen without reading a sample?"""
    plain = job.batched and not job.stream and job.collate_fn is None and job.on_error == "raise" and not job.in_turn
    if not plain or job.num_workers < 2 or job.registrations or not job.dialect.pieces.are_plain():
        return False
    if job.fetch_threads or awaits(job.dataset):  # a worker reads as many at a time as a batch has
        return False
    return not job.dialect.reads_many(job.dataset) and job.dialect.batch_reader(job.dataset) is None


class SplitWorkers(AroundWorkers):
    """The contract, kept by those inside."""

    def __init__(self, workers: Workers, pieces: Pieces, division: Division, in_order: bool) -> None:
        super().__init__(workers)
        self._joins = pieces.join
        self._division = division
        self._in_order = in_order
        self._wholes: dict[int, _Whole] = {}  # a piece's number → the batch it is of
        self._dropped: set[int] = set()  # pieces that are out, but of no use any more
        self._number = 0
        self._race = Race(workers.count)
        self._used_small = False
        self._begun = 0
        self._held: list[Task] = []  # until more is known
        self._idle = False  # everything goes straight through: that is 5 µs a batch
        self._largest = self._seen = self._samples = self._look_at = 0

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        if self._idle or early:  # an early one is not waited for
            self.inside.submit(task, urgent, early)
            return
        self._largest = max(self._largest, _size(task))
        pieces = 1 if urgent or self._division.never else self._pieces_for(task)
        if pieces == 0:
            self._held.append(task)
            return
        if self._begun >= 0:
            self._begun += pieces
        if pieces > 1:
            self._send_pieces(_Whole(task, bounds(_size(task), pieces)))
            return
        if not urgent:
            self._race.sent(task.seq)
        self.inside.submit(task, urgent)

    def _pieces_for(self, task: Task) -> int:
        if task.alone or task.avoid:
            return 1
        uneven = self._in_order and self._race.is_uneven
        if self._begun < 0 and not uneven:
            return 1
        known = self._division
        return pieces_for(Facts(_size(task), self.count, known.seconds, self._begun, uneven, known.joining or 0.0))

    def _send_pieces(self, whole: _Whole) -> None:
        self._used_small = True
        if (pool := self.pool) is not None and not pool.crowded:
            whole.joint = Joint(pool)
        for start, stop in whole.bounds:
            self._number -= 1  # no batch has a number below 0
            self._wholes[self._number] = whole
            whole.numbers.append(self._number)
            self._race.sent(self._number)
            self.inside.submit(whole.piece(start, stop, self._number))

    def resize(self, count: int) -> None:
        super().resize(count)
        self._race.workers = self.count

    def wait(self, timeout: float | None) -> list[Outcome | Death]:
        if self._used_small and not self._wholes and not self._dropped:
            self._used_small = False
            if (pool := self.pool) is not None:
                pool.give_back_small()
        if self._idle:
            events = self.inside.wait(timeout)
            self._took_in(len(events), len(events) * self._largest)
            return events
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            events = self.inside.wait(timeout)
            found: list[Outcome | Death] = []
            for event in events:
                found += self._whole_death(event) if isinstance(event, Death) else self._taken(event)
            self._let_go()
            if found or not events:
                return found
            if deadline is not None:
                timeout = max(0.0, deadline - time.monotonic())

    def _let_go(self) -> None:
        """Send out what was held back; called when something has come back, and more is known."""
        held, self._held = self._held, []
        for task in held:
            self.submit(task)

    def _taken(self, outcome: Outcome) -> Sequence[Outcome]:
        self._race.back(outcome.seq)
        self._dropped.discard(outcome.seq)
        self._begun = -1
        if outcome.notice is not None and outcome.notice.took is not None:
            self._division.quickest = min(self._division.quickest, outcome.notice.took)
        self._took_in(1, outcome.size)
        if outcome.seq >= 0:
            return (outcome,)
        whole = self._wholes.pop(outcome.seq, None)
        if whole is None:  # of a batch that has been sent out once more
            return ()
        if outcome.notice is not None and outcome.notice.apart is Apart.ALWAYS:
            self._never_again(whole)
            return ()
        whole.back[outcome.seq] = outcome
        return () if len(whole.back) < len(whole.numbers) else self._joined(whole)

    def _took_in(self, tasks: int, samples: int) -> None:
        """Keep up what a sample takes, and whether there is anything to do here."""
        self._seen += tasks
        self._samples += samples
        if self._samples and (self._seen < TIMED or self._seen >= self._look_at):
            self._look_at = self._seen + TIMED
            spent, known = self.spent(), self._division
            known.seconds = min(known.quickest, (spent.fetching + spent.collating) / 1e9 / self._samples)
            whole = known.never or is_small(self._largest, known.seconds)
            self._idle = whole and not (self._wholes or self._dropped or self._held)
            if self._idle:
                self._race.forget()

    def _joined(self, whole: _Whole) -> Sequence[Outcome]:
        outcomes = [whole.back[number] for number in whole.numbers]
        marks = tuple(each for one in outcomes if one.notice is not None for each in one.notice.marks)
        drawing = tuple(each for one in outcomes if one.notice is not None for each in one.notice.drawing)
        notice = Notice(marks=marks, drawing=drawing) if marks or drawing else None
        failed = next((one for one in outcomes if one.failure is not None), None)
        if failed is not None and failed.failure is not None and failed.failure.name == MemoryShortage.__name__:
            self._division.never = True  # one worker at a time may have enough
            self._send_whole([whole])
            return ()
        if failed is not None:  # the first of them, as whoever reads one sample after the other would have met it
            return (failed._replace(seq=whole.task.seq, notice=notice),)
        if not any(one.notice is not None and one.notice.apart is not None for one in outcomes):
            try:
                batch = self._join([one.batch for one in outcomes], whole)
                return (Outcome(whole.task.seq, batch, _size(whole.task), notice=notice),)
            except Exception:  # a Misfit, or no memory: whoever makes it whole will say so
                self._division.never = True
        self._send_whole([whole])
        return ()

    def _join(self, batches: list[Any], whole: _Whole) -> Any:
        began, memory = time.thread_time(), LocalMemory(self.pool)
        try:
            return self._joins(batches, memory.empty, never_whole if whole.joint is None else whole.joint.whole)
        finally:
            memory.finish()
            took, known = (time.thread_time() - began) / _size(whole.task), self._division.joining
            self._division.joining = took if known is None else min(took, known)

    def _never_again(self, found: _Whole) -> None:
        """Batches of this loader have to be made whole: all that are out as pieces, too."""
        self._division.never = True
        self._send_whole(list({found, *self._wholes.values()}))

    def _send_whole(self, wholes: list[_Whole]) -> None:
        """Once more, and before all others: they are the first that are waited for."""
        for whole in wholes:
            self._drop(whole)
        self.inside.submit_first(sorted((whole.task for whole in wholes), key=lambda task: (task.epoch, task.seq)))

    def _drop(self, whole: _Whole) -> None:
        whole.joint = None  # whoever makes the batch once more may have its memory, as soon as nobody fills that
        for number in whole.numbers:
            if self._wholes.pop(number, None) is not None:
                self._dropped.add(number)
            self._race.back(number)

    def _whole_death(self, death: Death) -> list[Death]:
        task, place = self._whole_of(death.task, death.place)
        lost: dict[int, Task] = {}
        for each in death.lost:
            whole = self._wholes.get(each.seq)
            if whole is not None:
                lost[id(whole)] = whole.task
                self._drop(whole)
            elif each.piece_of < 0:
                lost[id(each)] = each
            self._dropped.discard(each.seq)
        return [death._replace(task=task, place=place, lost=tuple(lost.values()))]

    def _whole_of(self, task: Task | None, place: int) -> tuple[Task | None, int]:
        if task is None or task.piece_of < 0:
            return task, place
        whole = self._wholes.get(task.seq)
        if whole is None:
            return None, place
        start, _ = whole.bounds[whole.numbers.index(task.seq)]
        return whole.task, place + start if place >= 0 else place

    def forget(self, keep_early: bool = False) -> None:
        self._wholes.clear()
        self._dropped.clear()
        self._held.clear()
        self._race.forget()
        self._idle = False
        self._begun = -1 if keep_early else 0
        self.inside.forget(keep_early)

    def standing(self) -> list[Standing]:
        found = []
        for at in self.inside.standing():
            task, place = self._whole_of(at.task, at.place)
            if task is None and at.task is not None:  # a piece of no use, but in the way
                task = at.task._replace(seq=at.task.piece_of)
            found.append(at._replace(task=task, place=place))
        return found


class _Whole:
    """A batch that is out in pieces."""

    def __init__(self, task: Task, bounds: list[tuple[int, int]]) -> None:
        self.task = task
        self.bounds = bounds
        self.numbers: list[int] = []
        self.back: dict[int, Outcome] = {}
        self.joint: Joint | None = None  # kept until the batch is whole

    def piece(self, start: int, stop: int, number: int) -> Task:
        """The task for some of its samples."""
        task = self.task
        assert task.indices is not None
        first = task.first + start * task.stride if task.first >= 0 else -1
        size = len(task.indices)
        rows = None if self.joint is None else Rows(start, stop, size, size // len(self.bounds))
        return task._replace(
            seq=number, indices=task.indices[start:stop], first=first, piece_of=task.seq, rows=rows, joint=self.joint
        )


def _size(task: Task) -> int:
    assert task.indices is not None
    return len(task.indices)
