"""Workers whose number changes while they work; none among it, when the loop does the work itself.

Takes: a job, and how to have workers for it. Gives: the contract, and `resize`.
Promises: which batches come is the same for every number; a worker that is dismissed finishes what it has begun. The
loop works alone only where that runs no code of the user's: a file that such code had opened or kept in this process,
in a cache or a global, a worker forked afterwards would share, position and all.
Not its job: how many there should be (supervise.pace), when to look (pacing).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from feedline.messages import Task
from feedline.observe.meter import Spent
from feedline.observe.recording import Slots
from feedline.workers.around import AroundWorkers
from feedline.workers.contract import Workers
from feedline.workers.inline import InlineWorkers
from feedline.workers.job import Job


class CannotHire(Exception):
    """There are no more workers to be had; why."""


class ChangingWorkers(AroundWorkers):
    """The contract, kept by as many as there are at the moment."""

    def __init__(self, job: Job, staff: Workers, count: int) -> None:
        super().__init__(staff)
        self._job = job
        self._started = False
        self._alone: InlineWorkers | None = None
        self.count = count
        self._spents = [staff.spent]
        self._releases = [staff.release]
        # Of what is in these lists, and nothing of ours: they must not keep the job alive.
        self.spent = partial(_spent, self._spents)
        self.release = partial(_release, self._releases)

    def start(self) -> None:
        if self.count:
            self.inside.start()
            self._started = True
        else:
            self._be_alone()

    def resize(self, count: int) -> None:
        """Have so many from now on; `CannotHire` if there is a reason against more."""
        if not count:  # the workers there were wait, until it has turned out well
            self.count = 0
            self._be_alone()
            return
        try:
            if self._started:
                self.inside.resize(count)
            else:
                self.inside.start()  # of none: so late, what can fail fails for want of workers
                self._started = True
                self.inside.resize(count)
        except OSError as error:
            if not self._there():
                raise
            self.count, self.do = self._there(), None
            raise CannotHire(f"the system refused more: {error}") from error
        self.count, self.do = count, None

    def tidy(self) -> None:
        """It stays so: dismiss workers that are not needed, and see to those who have left."""
        if self._started and (self.inside.count > self.count or len(self.inside.processes()) > self.count):
            self.inside.resize(self.count)

    def _there(self) -> int:
        return len(self.inside.standing())

    def _be_alone(self) -> None:
        if self._alone is None:
            self._alone = InlineWorkers(self._job)
            self._spents.append(self._alone.spent)
            self._releases.append(self._alone.release)
            self._alone.start()
        self.do = self._alone.do

    def credits(self, prefetch_factor: int) -> int:
        return prefetch_factor * self.count

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        if self._started and not self.inside.count:  # in the stead of one that was sent when there were some
            self.inside.resize(1)
        self.inside.submit(task, urgent, early)

    def slots(self) -> Slots:
        own = Slots() if self._alone is None else self._alone.slots()
        return Slots(*map(sum, zip(self.inside.slots(), own, strict=True)))


def may_be_alone(job: Job) -> bool:
    """Is a batch nothing but rows of arrays in memory? Then making it runs no code of the user's."""
    if job.stream or not job.batched or job.collate_fn is not None or job.on_error != "raise":
        return False
    reader = job.dialect.batch_reader(job.dataset)
    return reader is not None and not reader.draws and job.worker_init_fn is None


def _spent(of: list[Callable[[], Spent]]) -> Spent:
    return Spent(*map(sum, zip(*(spent() for spent in of), strict=True)))


def _release(of: list[Callable[[], None]]) -> None:
    for release in of:
        release()
