"""A loader's feed: one epoch after another, on workers of the kind the options ask for.

Takes: checked options, an epoch's tasks, a job for workers. Gives: iterators over batches.
Promises: persistent workers serve one epoch at a time, the latest; closing ends whatever is under way.
Not its job: what happens in an epoch (loop), what the options mean (loader and fronts).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from feedline.ahead import Foresee
from feedline.lasting import Lasting
from feedline.line.passed import Passed
from feedline.line.plan import Tasks
from feedline.loop import BatchIterator
from feedline.messages import BadSample
from feedline.observe.recording import Recording
from feedline.observe.report import page_of
from feedline.observe.trace import trace_of
from feedline.options import Options
from feedline.pacing import of_a_stream, pacing_for
from feedline.progress import clock
from feedline.recorder import Recorder, Render
from feedline.staffing import AutoCount
from feedline.stats import Stats
from feedline.workers.carried import warnings_about
from feedline.workers.changeable import changeable
from feedline.workers.changing import ChangingWorkers
from feedline.workers.contract import Workers
from feedline.workers.inline import InlineWorkers
from feedline.workers.job import Job
from feedline.workers.processes import ProcessWorkers
from feedline.workers.splitting import SplitWorkers, may_split
from feedline.workers.threads import ThreadWorkers


class Feed:
    """One loader's, for all its epochs."""

    def __init__(self) -> None:
        self._lasting = Lasting()
        self.tell_once = self._lasting.tell_once
        self.drop_kept = self._lasting.drop_workers
        self._marked = False
        self._may_work_ahead = False
        self._iterators: weakref.WeakSet[BatchIterator] = weakref.WeakSet()

    def begin(
        self,
        options: Options,
        tasks: Tasks,
        passed: Passed,
        length: Callable[[], int],
        job: Job,
        kind: type[BatchIterator] = BatchIterator,
        foresee: Foresee | None = None,
    ) -> BatchIterator:
        """Start an iteration; with persistent workers one still under way on them is given up."""
        began = clock()
        job = replace(job, marked=self._lasting.recording is not None)
        self._pace(options, job)
        if self._lasting.workers is None:
            self._lasting.kind = options.workers if job.num_workers else ""
            self._warn_about(options, job)
        kept = self._kept_workers(options, job) if options.persistent_workers else None
        workers = kept or self._new_workers(options, job)
        # Somebody is there to end the workers before there are any: Ctrl-C may come at any moment.
        iterator = kind(
            self._lasting, options, tasks, passed, length, workers, foresee if self._may_work_ahead else None
        )
        self._iterators.add(iterator)
        self._lasting.latest = weakref.ref(iterator)
        try:
            if kept is None:
                workers.start()
            if self._lasting.pacing is not None and isinstance(workers, ChangingWorkers):
                self._lasting.pacing.begin(workers)
            self._lasting.memory.begin(workers.processes())
        except BaseException:
            iterator.close()
            raise
        if workers.processes():  # the start of threads is nothing to speak of
            iterator.started(clock() - began)
        return iterator

    def _warn_about(self, options: Options, job: Job) -> None:
        for message in warnings_about(job, self._lasting.kind, options.multiprocessing_context):
            self.tell_once(message)

    def _pace(self, options: Options, job: Job) -> None:
        lasting = self._lasting
        if not isinstance(options.num_workers, AutoCount):  # perhaps no longer: torch's loaders can be told another
            lasting.pacing, lasting.chosen = None, lambda: None
        elif options.stream:
            lasting.chosen = partial(of_a_stream, options)
        elif lasting.pacing is None:
            lasting.pacing = pacing_for(options, job)
            lasting.chosen = lasting.pacing.chosen

    @property
    def errors(self) -> list[BadSample]:
        """The samples that failed and were passed over."""
        return self._lasting.mishaps.samples

    def stats(self) -> Stats:
        """How the loader is doing."""
        return self._lasting.stats()

    def trace(self, path: str | os.PathLike[str]) -> Recorder:
        """Record the epochs to come as trace events."""
        return self._record(path, lambda recording, known: trace_of(recording))

    def report(self, path: str | os.PathLike[str]) -> Recorder:
        """Record the epochs to come as a page."""
        return self._record(path, lambda recording, known: page_of(recording, known.stats, known.errors))

    def _record(self, path: str | os.PathLike[str], render: Render) -> Recorder:
        if self._lasting.recording is None:
            self._lasting.ahead.outdate()  # what is made already is no part of a recording that begins now
        recorder = Recorder(path, self._lasting.recording or Recording(), render, self._lasting.known)
        self._lasting.recorders.append(recorder)
        return recorder

    def close(self) -> None:
        """End all workers and give back their memory."""
        for iterator in list(self._iterators):
            iterator.close()
        self.drop_kept()

    def _kept_workers(self, options: Options, job: Job) -> Workers:
        if (latest := self._lasting.latest()) is not None:
            latest.give_up()
        if job.marked and not self._marked:
            self.drop_kept()  # those there are were told to mark nothing
        self._marked = job.marked
        workers = self._lasting.workers
        if workers is None:
            workers = self._new_workers(options, job)
            self._may_work_ahead = options.across_epochs and not job.in_turn and changeable(job) is None
            self._lasting.keep(workers)
            try:
                workers.start()
            except BaseException:
                self.drop_kept()
                raise
        self._lasting.ahead.begin(workers)
        return workers

    def _new_workers(self, options: Options, job: Job) -> Workers:
        """Such as the options ask for, still to be started."""
        pacing = self._lasting.pacing
        if options.num_workers == 0:
            return InlineWorkers(job)
        if pacing is None:
            return self._sharing(options, job, job.num_workers)
        job, count = replace(job, num_workers=pacing.most), pacing.setting.workers
        return ChangingWorkers(job, self._sharing(options, job, count), count)

    def _sharing(self, options: Options, job: Job, count: int) -> Workers:
        """Of the kind asked for; they share batches among them where that is possible."""
        division, workers = self._lasting.division, _workers_of(options, job, count)
        if division.never or not may_split(job):
            return workers
        return SplitWorkers(workers, job.dialect.pieces, division, options.in_order)


def _workers_of(options: Options, job: Job, count: int) -> Workers:
    if options.workers == "thread":
        return ThreadWorkers(job, count)
    return ProcessWorkers(job, options.multiprocessing_context, count)
