"""A loader's workers and their ledger, of the kind and number that the options ask for.

Takes: a job, options. Gives: workers that fulfil the contract, their ledger, how many batches may be out.
Promises: the batches are the same for every kind and number of workers.
Not its job: how many there should be (scaling), sending and receiving (loop), how long they are kept (session).
"""

from __future__ import annotations

from dataclasses import replace

from feedline.arena.kept import KeptPool
from feedline.engine.batch_splitting import Splitting, may_split
from feedline.engine.contract import Workers
from feedline.engine.division import Division
from feedline.engine.ledger import Ledger
from feedline.engine.scaling import CannotStartWorkers, Scaling
from feedline.observe.meter import Meter
from feedline.observe.stats import WorkerMemory
from feedline.options import Options
from feedline.options.worker_count import AutoCount
from feedline.supervise.watch import processes, ready, told_memory
from feedline.workers.inline import InlineWorkers
from feedline.workers.job import Job
from feedline.workers.processes import ProcessWorkers
from feedline.workers.ray import RayWorkers
from feedline.workers.threads import ThreadWorkers


class WorkerSet:
    """One set of workers, for one epoch or, if they are persistent, for many."""

    def __init__(
        self, job: Job, options: Options, division: Division, scaling: Scaling | None, kept: KeptPool | None = None
    ) -> None:
        self.ledger = Ledger()
        self.scaling = scaling
        job = job if scaling is None else replace(job, num_workers=scaling.most)
        self.count = options.num_workers if scaling is None else scaling.setting.workers
        """How many workers there should be; 0 if the loop makes the batches."""
        self.pending_warnings: list[str] = []
        """Warnings about deaths, to be given when the next epoch begins."""
        self.runs = 0
        """How many epochs they have served, including this one."""
        self.out_of_step = False
        """Has one worker of a stream read less than the others? Then this set serves no further epoch."""
        self._prefetch = options.prefetch_factor
        self.workers = _workers(job, options, self.ledger, kept)
        self.works_ahead = self.workers.traits.work_ahead
        """Are batches made while the user's loop computes?"""
        # These are the workers' own, not bound to `self`: the finalizer that calls them must not keep the job alive.
        self.spent, self.stop = self.workers.traits.spent, self.workers.stop
        self.room = self._room()
        """How many batches may be out at once."""
        self.splitting: Splitting | None = None
        if self.works_ahead and self.workers.traits.joins and not division.never and may_split(job):
            self.splitting = Splitting(job.dialect.pieces, division, self.ledger, self.workers)

    def _room(self) -> int:
        return self.count * (self._prefetch if self.scaling is None else self.scaling.setting.prefetch) or 1

    def start(self) -> None:
        """Start the workers."""
        self.workers.resize(self.count)

    def begin(self, in_order: bool) -> None:
        """A run begins: batches that are out are no longer wanted, except those sent early."""
        self.runs += 1
        self.ledger.begin(in_order)
        if self.splitting is not None:
            self.splitting.begin(in_order, bool(self.ledger.early))
        self.workers.drop_before(self.ledger.run)

    def leave(self) -> None:
        """A run is over, or was left before its end."""
        if self.scaling is not None:
            self.scaling.end(self)

    def scale(self, meter: Meter) -> bool:
        """The loop got a batch. Has the number of workers, or of prefetched batches, changed?"""
        assert self.scaling is not None
        has_changed = self.scaling.gave(meter, self)
        self.room = self._room()
        return has_changed

    def resize(self, count: int) -> None:
        """Have this many workers from now on; raises `CannotStartWorkers` if the system refuses more."""
        try:
            self.workers.resize(count)
            self.count = count
        except OSError as error:
            self.count = len(self.workers.standing())
            if not self.count:
                raise
            raise CannotStartWorkers(f"the system refused more workers: {error}") from error

    def clean_up_ended(self) -> None:
        """The number does not change: clean up after workers that have left."""
        if len(self.workers.standing()) > self.count:
            self.workers.resize(self.count)

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of each worker process."""
        return processes(self.workers.standing()) if self.works_ahead else []

    def told_memory(self) -> list[WorkerMemory]:
        """What workers on other machines use."""
        return told_memory(self.workers.standing()) if self.works_ahead else []

    def ready(self) -> int:
        """How many workers are ready for tasks, or at work."""
        return ready(self.workers.standing())


def _workers(job: Job, options: Options, ledger: Ledger, kept: KeptPool | None) -> Workers:
    if not options.num_workers:
        return InlineWorkers(job, kept)
    if options.workers == "thread":
        return ThreadWorkers(job, ledger)
    if options.workers == "ray":
        return RayWorkers(job, ledger, options.ray_options, kept, near=isinstance(options.num_workers, AutoCount))
    return ProcessWorkers(job, ledger, options.multiprocessing_context, kept)
