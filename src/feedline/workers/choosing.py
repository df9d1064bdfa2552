"""Workers whose kind is chosen while they work: processes first, then threads if those do as well.

Takes: tasks, and how to make workers of a kind. Gives: outcomes, as any workers do; what was chosen, and why.
Promises: every batch is made once. After the choice of threads no new task goes to a process; those that they have are
finished there, and then the processes end. A choice holds for all epochs of a loader. A stream's place is in its
worker: it is read to its end by processes, and by the kind chosen from the next epoch on.
Not its job: choosing (choice), seeing (trial, carried).
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from multiprocessing.context import BaseContext

from feedline.arena import segment
from feedline.arena.slots import SlotPool
from feedline.cpus import look
from feedline.errors import ShippingError
from feedline.gil import Looks, gil_is_on
from feedline.messages import Findings, Outcome, Task
from feedline.observe.meter import Spent
from feedline.options import AUTO
from feedline.supervise.watch import Death
from feedline.workers.around import AroundWorkers
from feedline.workers.carried import lost_in_fork, not_shared
from feedline.workers.choice import Choice, Facts, decide
from feedline.workers.contract import Workers
from feedline.workers.held_generators import generators
from feedline.workers.job import Job
from feedline.workers.trial import LOOKS, TASKS

NONE = Choice("")
UNDECIDED = Choice("process", "it is still being seen whether threads would do")
Make = Callable[[str, Job, int], Workers]
"""So many workers of a kind."""


class Choosing:
    """One loader's choice, over all its epochs."""

    def __init__(self) -> None:
        self.now = NONE
        """What the workers are, or the next ones will be."""
        self._looks = Looks()
        self._reports = 0
        self._batches = 0.0

    @property
    def is_open(self) -> bool:
        """Has it to be seen first?"""
        return self.now is UNDECIDED

    def begin(self, asked: str, job: Job, context: str | BaseContext | None) -> None:
        """An epoch is about to begin: choose, if what is known before anything is read suffices."""
        if not job.num_workers or asked != AUTO:
            self.now = Choice(asked) if job.num_workers else NONE
        elif self.now is NONE:
            facts = Facts(job.num_workers, no_processes=_no_processes(job, context), not_shared=_own(job))
            self.now = decide(facts) or UNDECIDED

    def refused(self, error: ShippingError) -> None:
        """The dataset does not travel to a process."""
        self.now = Choice("thread", f"the dataset cannot be sent to a process ({error})")

    def died(self) -> None:
        """A worker process has ended, or had to be ended, before the choice."""
        if self.is_open:
            self.now = Choice("process", "a worker process has died, and a thread would have taken this process along")

    def heed(self, job: Job, findings: Findings) -> None:
        """Take in what a worker has seen, and choose once that is enough."""
        if not self.is_open:
            return
        self._looks = self._looks.plus(findings.looks)
        self._reports += 1
        self._batches += findings.batches
        if findings.not_shared or self._looks.looked >= LOOKS or self._reports >= TASKS:
            facts = Facts(
                job.num_workers, look().usable, gil_is_on(), "", findings.not_shared, self._looks, self._batches
            )
            self.now = decide(facts) or UNDECIDED


def _no_processes(job: Job, context: str | BaseContext | None) -> str:
    if not segment.available:
        return "this system has no memory for batches that processes could share"
    if multiprocessing.current_process().daemon:
        return "a worker process cannot start worker processes"
    if (path := lost_in_fork(job.dataset, context)) and not not_shared(job.dataset):
        return f"{path} would not work in a forked process"
    return ""


def _own(job: Job) -> str:
    """What each worker must have for itself."""
    if job.worker_init_fn is not None:
        return "worker_init_fn prepares each worker's own copy of the dataset, and threads share one"
    if job.stream and isinstance(job.dataset, Iterator):
        return "the dataset is an iterator, which threads would take elements from at once"
    if found := generators(job):
        return f"{found[0].path} is a random generator, which threads would share"
    if path := not_shared(job.dataset):
        return f"{path} is open, and threads would share it"
    return ""


class ChoosingWorkers(AroundWorkers):
    """The contract, kept by processes, and later perhaps by threads."""

    def __init__(self, job: Job, make: Make, choosing: Choosing, count: int) -> None:
        super().__init__(make("process", replace(job, on_trial=True), count))
        self._job = job
        self._make = make
        self._choosing = choosing
        self._next: Workers | None = None
        self._out: set[int] = set()  # the numbers of the tasks that those at work now have
        self._ends = [self.inside.release]
        self._spent: list[Callable[[], Spent]] = [self.inside.spent]
        self.release = partial(_end_all, self._ends)
        self.spent = partial(_spent_by_all, self._spent)

    @property
    def takes_early(self) -> bool:
        """Not before it is settled that they stay: threads could not take over what processes were given early."""
        settled = not self._choosing.is_open and self._choosing.now.kind == "process"
        return settled and self.inside.takes_early

    @property
    def outdated(self) -> bool:
        """Have they not been replaced yet, although others were chosen? A stream's are not before its end."""
        return self._choosing.now.kind == "thread" and len(self._ends) == 1

    @property
    def pool(self) -> SlotPool | None:
        """Of those who get the next task."""
        return (self._next or self.inside).pool

    def start(self) -> None:
        try:
            self.inside.start()
        except ShippingError as error:
            self._choosing.refused(error)
            self._begin_threads()
            self._change_over()

    def resize(self, count: int) -> None:
        self.count = count
        (self._next or self.inside).resize(count)

    def ready(self) -> int:
        return (self._next or self.inside).ready()

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        if early:  # there will be no change-over
            self.inside.submit(task, early=True)
        elif self._next is not None and not urgent:
            self._next.submit(task)
        else:  # an urgent one was lost by those at work
            self._out.add(task.seq)
            self.inside.submit(task, urgent)

    def submit_first(self, tasks: Sequence[Task]) -> None:
        if self._next is not None:
            self._next.submit_first(tasks)
        else:
            self._out.update(task.seq for task in tasks)
            self.inside.submit_first(tasks)

    def wait(self, timeout: float | None) -> list[Outcome | Death]:
        if self._next is not None and not self._out:
            self._change_over()
        found = self.inside.wait(timeout)
        for event in found:
            if isinstance(event, Death):
                self._out.difference_update(task.seq for task in event.lost)
                self._choosing.died()
            else:
                self._out.discard(event.seq)
                if event.notice is not None and event.notice.findings is not None:
                    self._heed(event.notice.findings)
        return found

    def _heed(self, findings: Findings) -> None:
        self._choosing.heed(self._job, findings)
        if self.outdated and not self._job.stream:
            self._begin_threads()

    def _begin_threads(self) -> None:
        threads = self._make("thread", self._job, self.count)
        self._ends.append(threads.release)
        self._spent.append(threads.spent)
        threads.start()
        self._next = threads

    def _change_over(self) -> None:
        assert self._next is not None
        before, self.inside, self._next = self.inside, self._next, None
        self._spent[0] = partial(Spent, *before.spent())
        before.release()

    def forget(self, keep_early: bool = False) -> None:
        self._out.clear()
        for workers in (self.inside, self._next):
            if workers is not None:
                workers.forget(keep_early)

    def revive(self, number: int, elsewhere: bool) -> None:
        if all(at.worker != number for at in self.inside.standing()):  # else that place was a process's, and is filled
            self.inside.revive(number, elsewhere)


def _end_all(ends: list[Callable[[], None]]) -> None:
    for end in ends:
        end()


def _spent_by_all(spent: list[Callable[[], Spent]]) -> Spent:
    return Spent(*map(sum, zip(*(each() for each in spent), strict=True)))
