"""Workers whose number changes while they work; none among it, when the loop does the work itself.

Takes: a job, and how to have workers for it. Gives: the contract, and `resize`.
Promises: which batches come is the same for every number; a worker that is dismissed finishes what it has begun;
no worker gets something that the dataset has opened while it was read in this process.
Not its job: how many there should be (supervise.pace), when to look (pacing).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from feedline.datasets import awaits
from feedline.messages import Task
from feedline.observe.meter import Spent
from feedline.observe.recording import Slots
from feedline.workers.around import AroundWorkers
from feedline.workers.carried import open_in
from feedline.workers.contract import Workers
from feedline.workers.held_generators import generators
from feedline.workers.inline import InlineWorkers
from feedline.workers.job import Job

OPENED = "while it was read in this process the dataset has opened something that no worker may share"


class CannotHire(Exception):
    """There are no more workers to be had; why."""


class ReadHere:
    """Whether the dataset has been read in this process, in any epoch: then it had this open before."""

    known: set[str] | None = None


class ChangingWorkers(AroundWorkers):
    """The contract, kept by as many as there are at the moment. Those that `travel` take the dataset with them."""

    def __init__(self, job: Job, staff: Workers, count: int, here: ReadHere, travel: bool) -> None:
        super().__init__(staff)
        self._job = job
        self._started = False
        self._alone: InlineWorkers | None = None
        self._here = here
        self._travel = travel and not only_gathers(job)
        self.count = 0 if self._has_opened() else count
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
        if count > self.inside.count and self._has_opened():
            raise CannotHire(OPENED)
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
            if self._here.known is None:
                self._here.known = self._open()
            self._alone = InlineWorkers(self._job)
            self._spents.append(self._alone.spent)
            self._releases.append(self._alone.release)
            self._alone.start()
        self.do = self._alone.do

    def _has_opened(self) -> bool:
        """Has reading in this process left something in the dataset that cannot go to workers?"""
        return self._here.known is not None and bool(self._open() - self._here.known)

    def _open(self) -> set[str]:
        return open_in(self._job.dataset) if self._travel else set()

    def credits(self, prefetch_factor: int) -> int:
        return prefetch_factor * self.count

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        if self._started and not self.inside.count:  # in the stead of one that was sent when there were some
            self.inside.resize(1)
        self.inside.submit(task, urgent, early)

    def slots(self) -> Slots:
        own = Slots() if self._alone is None else self._alone.slots()
        return Slots(*map(sum, zip(self.inside.slots(), own, strict=True)))

    def revive(self, number: int, elsewhere: bool) -> None:
        self.inside.revive(number, elsewhere or self._has_opened())


def only_gathers(job: Job) -> bool:
    """Is a batch nothing but rows of arrays in memory? Then reading it runs no code of the user's."""
    if job.stream or not job.batched or job.collate_fn is not None or job.on_error != "raise":
        return False
    reader = job.dialect.batch_reader(job.dataset)
    return reader is not None and not reader.draws


def may_be_alone(job: Job) -> bool:
    """Would the loop make the same batches without workers? Not if something is set up in each of those; and threads
    that read for the loop would be in the way of a fork."""
    several = job.fetch_threads > 0 or awaits(job.dataset)
    return job.worker_init_fn is None and not several and not generators(job)


def _spent(of: list[Callable[[], Spent]]) -> Spent:
    return Spent(*map(sum, zip(*(spent() for spent in of), strict=True)))


def _release(of: list[Callable[[], None]]) -> None:
    for release in of:
        release()
