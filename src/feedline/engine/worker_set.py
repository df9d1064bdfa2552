"""The workers a loader has, with their ledger: of the kind and number that the options ask for.

Takes: a job, options. Gives: workers that keep the contract, what is out at them, how many batches may be out.
Promises: which batches come is the same for every kind and number. With num_workers="auto" the loop works alone only
where that runs no code of the user's: a file that such code had opened or kept in this process, in a cache or a global,
a worker forked afterwards would share, position and all.
Not its job: how many there should be (scaling), sending and receiving (loop), how long they are kept (session).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from feedline.engine.contract import Workers
from feedline.engine.division import Division
from feedline.engine.ledger import Ledger
from feedline.engine.scaling import CannotHire, Scaling
from feedline.engine.splitting import Splitting, may_split
from feedline.observe.meter import Meter, Spent
from feedline.options import Options
from feedline.supervise.watch import processes, ready
from feedline.workers.inline import InlineWorkers
from feedline.workers.job import Job
from feedline.workers.processes import ProcessWorkers
from feedline.workers.threads import ThreadWorkers


class WorkerSet:
    """One set of workers, for one epoch or, if they are persistent, for many."""

    def __init__(self, job: Job, options: Options, division: Division, scaling: Scaling | None) -> None:
        self.ledger = Ledger()
        self.scaling = scaling
        self.count = options.num_workers if scaling is None else scaling.setting.workers
        """How many workers there are to be; 0 if the loop works alone."""
        self.untold: list[str] = []
        """What is to be said of deaths when the next epoch begins."""
        self.runs = 0
        """How many epochs they have served, this one among them."""
        self.out_of_step = False
        """Has one of a stream's workers not read all that the others have? Then these serve no further epoch."""
        self._prefetch = options.prefetch_factor
        self._job = job if scaling is None else replace(job, num_workers=scaling.most)
        self._staff: Workers | None = None  # none if the loop works alone, and always will
        self._alone: InlineWorkers | None = None
        if options.num_workers:
            self._staff = (
                ThreadWorkers(self._job, self.ledger)
                if options.workers == "thread"
                else ProcessWorkers(self._job, self.ledger, options.multiprocessing_context)
            )
        self._has_staff = False
        # Of what is in these lists, and nothing of ours: they must not keep the job alive.
        self._spents: list[Callable[[], Spent]] = []
        self._stops: list[Callable[[], None]] = []
        self.spent: Callable[[], Spent] = partial(_spent, self._spents)
        self.stop: Callable[[], None] = partial(_stop, self._stops)
        self.workers = self._use(self._staff) if self._staff is not None and self.count else self._inline()
        self.works_ahead = self.workers.traits.work_ahead
        """Does anybody work while the user's loop computes?"""
        self.room = 1
        """How many batches may be out at once."""
        self.has_to_switch = False
        """Is the loop to work alone from now on, or no longer? Then as soon as nothing is out."""
        self._have(self.count)
        self.splitting: Splitting | None = None
        if self._staff is not None and not division.never and may_split(self._job):
            self.splitting = Splitting(self._job.dialect.pieces, division, self.ledger, self._staff)

    def _use(self, workers: Workers) -> Workers:
        if workers.stop not in self._stops:
            self._spents.append(workers.traits.spent)
            self._stops.append(workers.stop)
        return workers

    def _inline(self) -> Workers:
        if self._alone is None:
            self._alone = InlineWorkers(self._job)
        return self._use(self._alone)

    def _have(self, count: int) -> None:
        self.count = count
        self.room = count * (self._prefetch if self.scaling is None else self.scaling.setting.prefetch) or 1
        self.has_to_switch = self._staff is not None and self.works_ahead is (count == 0)

    def start(self) -> None:
        """Have them ready to take tasks."""
        self._start(self.workers, self.count)

    def _start(self, workers: Workers, count: int) -> None:
        workers.resize(count)
        self._has_staff = self._has_staff or workers is self._staff

    def begin(self, in_order: bool) -> None:
        """A run begins: whatever is out is of no use any more, but for what was sent early."""
        self.runs += 1
        self.ledger.begin(in_order)
        if self.splitting is not None:
            self.splitting.begin(in_order, bool(self.ledger.early))
        self.workers.drop_before(self.ledger.run)

    def leave(self) -> None:
        """A run is over, or left."""
        if self.scaling is not None:
            self.scaling.end(self)

    def scale(self, meter: Meter) -> bool:
        """The loop has had a batch. Has the number of workers, or of batches ahead, changed?"""
        scaling = self.scaling
        assert scaling is not None
        scaling.unseen += 1
        if scaling.unseen < scaling.every or not scaling.gave(meter, self):
            return False
        self._have(self.count)
        return True

    def switch(self) -> Workers:
        """Do so; nothing is out."""
        if self.count == 0:
            if self._alone is None:
                self._inline().resize(0)
            assert self._alone is not None
            self.workers = self._alone
        else:
            assert self._staff is not None
            self.workers = self._staff
        self.works_ahead, self.has_to_switch = self.workers.traits.work_ahead, False
        self.workers.drop_before(self.ledger.run)
        return self.workers

    def resize(self, count: int) -> None:
        """Have so many from now on; `CannotHire` if there is a reason against more."""
        if count and self._staff is not None:
            try:
                self._start(self._use(self._staff), count)
            except OSError as error:
                there = len(self._staff.standing())
                if not there:
                    raise
                self._have(there)
                raise CannotHire(f"the system refused more: {error}") from error
        self._have(count)  # if there are none, those there were wait until it has turned out well

    def tidy(self) -> None:
        """It stays so: dismiss workers that are not needed, and see to those who have left."""
        if self._has_staff and self._staff is not None:
            needed = max(self.count, 1) if self.works_ahead else self.count  # one for what is still out
            if len(self._staff.standing()) > needed:
                self._staff.resize(needed)

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of the worker processes there are."""
        return processes(self._staff.standing()) if self._has_staff and self._staff is not None else []

    def ready(self) -> int:
        """How many have got as far as their first task."""
        return ready(self.workers.standing())


def _spent(of: list[Callable[[], Spent]]) -> Spent:
    return Spent(*map(sum, zip(*(spent() for spent in of), strict=True)))


def _stop(of: list[Callable[[], None]]) -> None:
    for stop in of:
        stop()
