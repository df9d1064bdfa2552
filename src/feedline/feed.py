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
from feedline.progress import clock
from feedline.recorder import Recorder, Render
from feedline.stats import Stats
from feedline.workers.body import Job
from feedline.workers.carried import warnings_about
from feedline.workers.changeable import changeable
from feedline.workers.choosing import ChoosingWorkers
from feedline.workers.contract import Workers
from feedline.workers.inline import InlineWorkers
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
        if self._lasting.workers is None:
            self._lasting.kind.begin(options.workers, job, options.multiprocessing_context)
            for message in warnings_about(job, self._lasting.kind.now.kind, options.multiprocessing_context):
                self.tell_once(message)
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
            self._lasting.memory.begin(workers.processes())
        except BaseException:
            iterator.close()
            raise
        if workers.processes():  # the start of threads is nothing to speak of
            iterator.started(clock() - began)
        return iterator

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
        if isinstance(workers, ChoosingWorkers) and workers.outdated:
            self.drop_kept()
            workers = None
        if workers is None:
            workers = self._new_workers(options, job)
            self._may_work_ahead = options.across_epochs and changeable(job) is None
            self._lasting.keep(workers)
            try:
                workers.start()
            except BaseException:
                self.drop_kept()
                raise
        self._lasting.ahead.begin(workers)
        return workers

    def _new_workers(self, options: Options, job: Job) -> Workers:
        """Of the kind asked for, or chosen, still to be started; they share batches among them where possible."""
        make, kind = partial(_workers_of, options), self._lasting.kind
        workers = ChoosingWorkers(job, make, kind) if kind.is_open else make(kind.now.kind, job)
        division = self._lasting.division
        if division.never or not may_split(job):
            return workers
        return SplitWorkers(workers, job.dialect.pieces, division, options.in_order)


def _workers_of(options: Options, kind: str, job: Job) -> Workers:
    if not kind:
        return InlineWorkers(job)
    return ThreadWorkers(job) if kind == "thread" else ProcessWorkers(job, options.multiprocessing_context)
