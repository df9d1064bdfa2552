"""The loop, written once for every kind of worker and every front.

Takes: checked options, an epoch's tasks, a job for workers. Gives: an iterator over batches.
Promises: at most `prefetch_factor × num_workers` tasks out; every batch once; an error is raised by `next()` and
nowhere else; whatever way the loop is left, nothing is left behind.
Not its job: what the options mean (loader and fronts), anything a stop on the line does.
"""

from __future__ import annotations

import os
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from feedline.datasets import described
from feedline.errors import add_note
from feedline.guard import Guard
from feedline.line.deliver import Delivery
from feedline.line.passed import Passed
from feedline.line.plan import Tasks
from feedline.line.stream import DISAGREE
from feedline.messages import Outcome
from feedline.mishaps import Mishaps
from feedline.options import Options
from feedline.stats import Stats
from feedline.supervise.memory import MemoryWatch, Setting
from feedline.workers.body import Job
from feedline.workers.carried import warnings_about
from feedline.workers.contract import Workers
from feedline.workers.inline import InlineWorkers
from feedline.workers.processes import ProcessWorkers
from feedline.workers.threads import ThreadWorkers

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Feed:
    """What a loader keeps from one iteration to the next: persistent workers, and what it has warned of."""

    def __init__(self) -> None:
        self.warned: set[str] = set()
        """Said once, not every epoch."""
        self.quarantine: dict[Any, str] = {}
        """Samples that have cost several workers their lives, and how."""
        self.mishaps = Mishaps()
        self.memory = MemoryWatch()
        self._owner = os.getpid()
        self._kept: Workers | None = None
        self._stop_kept: Callable[[], object] | None = None
        self._latest: weakref.ref[BatchIterator] | None = None
        self._iterators: weakref.WeakSet[BatchIterator] = weakref.WeakSet()

    def begin(
        self,
        options: Options,
        tasks: Tasks,
        passed: Passed,
        length: Callable[[], int],
        job: Job,
        kind: type[BatchIterator] | None = None,
    ) -> BatchIterator:
        """Start an iteration; with persistent workers one still under way on them is given up."""
        if self._kept is None:
            for message in warnings_about(job, options.workers, options.multiprocessing_context):
                self.tell_once(message)
        kept = self._kept_workers(options, job) if options.persistent_workers else None
        workers = kept or new_workers(options, job)
        # Somebody is there to end the workers before there are any: Ctrl-C may come at any moment.
        iterator = (kind or BatchIterator)(self, options, tasks, passed, length, workers)
        self._iterators.add(iterator)
        self._latest = weakref.ref(iterator)
        try:
            if kept is None:
                workers.start()
            self.memory.begin(workers.processes())
        except BaseException:
            iterator.close()
            raise
        return iterator

    def tell_once(self, message: str) -> None:
        """Warn, unless that has been said before."""
        if message not in self.warned:
            self.warned.add(message)
            _tell(message)

    def stats(self) -> Stats:
        """How the loader is doing."""
        latest = self._latest() if self._latest is not None else None
        workers = self._kept if latest is None else latest
        return Stats(workers=self.memory.now([] if workers is None else workers.processes()))

    def close(self) -> None:
        """End all workers and give back their memory."""
        for iterator in list(self._iterators):
            iterator.close()
        self.drop_kept()

    def drop_kept(self) -> None:
        """End the persistent workers."""
        self._kept = None
        if self._stop_kept is not None:
            self._stop_kept()

    def _kept_workers(self, options: Options, job: Job) -> Workers:
        latest = self._latest() if self._latest is not None else None
        if latest is not None:
            latest.give_up()
        if self._owner != os.getpid():  # a forked child: the workers are the parent's
            self._kept, self._owner = None, os.getpid()
        if self._kept is None:
            self._kept = new_workers(options, job)
            self._stop_kept = weakref.finalize(self, self._kept.release)
            try:
                self._kept.start()
            except BaseException:
                self.drop_kept()
                raise
        self._kept.forget()
        return self._kept


class BatchIterator(Iterator[Any]):
    """One epoch under way."""

    def __init__(
        self,
        feed: Feed,
        options: Options,
        tasks: Tasks,
        passed: Passed,
        length: Callable[[], int],
        workers: Workers,
    ) -> None:
        self._feed = feed  # keeps it, and with it persistent workers, alive while the loop runs
        self._options = options
        self._workers = workers
        self._guard = Guard(
            workers, options.care, options.timeout, partial(described, options.dataset), _tell, feed.quarantine
        )
        self._owned = not options.persistent_workers
        self._tasks = tasks
        self._passed = passed
        self._length = length
        self._delivery = Delivery(options.in_order)
        self._credits = workers.credits(options.prefetch_factor)
        self._more = True
        self._sampler_error: Exception | None = None
        self._over: str | None = None
        self._said_once = False  # whoever catches every error must come to an end
        self._samples = passed.place.samples if options.stream else 0
        self._setting = Setting(options.dataset, options.stream, workers.forked)
        self._read_whole: set[bool] = set()
        # Called once: by us, by the garbage collector or at the interpreter's end, whoever is first.
        self._stop_workers: Callable[[], object] = (
            weakref.finalize(self, workers.release) if self._owned else workers.forget
        )

    def __len__(self) -> int:
        return self._length()

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        if self._over is not None:
            over, self._over = self._over, "" if self._said_once else self._over
            if over:
                raise RuntimeError(over)
            raise StopIteration
        try:
            outcome = self._next_outcome()
        except BaseException as error:  # Ctrl-C, a timeout, no memory: whatever state that left, drop it
            self._abandon(error)
            raise
        if outcome is None:
            self._passed.finished = True
            self._finish()
            raise StopIteration
        if outcome.failure is not None:
            raise outcome.failure.exception()
        return outcome.batch

    def is_ready(self) -> bool:
        """Would `next()` give a batch without waiting for a worker? The end of the epoch does not count."""
        if self._over is not None or not self._workers.count:
            return False
        try:
            self.fill()
            if not self._delivery.ready:
                self._put(self._guard.poll())
        except BaseException as error:
            self._abandon(error)
            raise
        return self._delivery.ready

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of the worker processes there are."""
        return self._workers.processes()

    def close(self) -> None:
        """Leave the epoch; its workers end unless they are persistent."""
        self._leave("this iteration was closed before its end; begin another with iter(loader)")

    def _leave(self, over: str) -> None:
        if self._over is None:
            self._over = over
            self._delivery = Delivery(self._options.in_order)  # batches made ahead are nobody's any more
            self._stop_workers()

    def give_up(self) -> None:
        """A newer iteration has taken over the persistent workers."""
        if self._over is None:
            self._over = (
                "this iterator was given up when iter() was called again on its loader (persistent_workers=True)"
            )

    def _next_outcome(self) -> Outcome | None:
        delivery, patience = self._delivery, None
        while True:
            self.fill()
            outcome = delivery.pop()
            if outcome is None:
                if not len(delivery):
                    return None
                self._look_at_memory()
                patience = patience or self._guard.begin_waiting()
                self._put(self._guard.wait(patience, delivery.following))
                continue
            patience = None  # somebody gets on
            self._passed.delivered(outcome)
            if outcome.notice is not None:
                self._feed.tell_once(outcome.notice)
            if self._options.care.on_error != "raise":
                self._feed.mishaps.take(outcome, self._options.care)
                self._samples += len(outcome.bad)
            if outcome.size or outcome.failure is not None:
                if self._workers.count:
                    self.fill()  # the place just freed is used while the user computes
                self._samples += outcome.size
                return outcome

    def fill(self) -> None:
        """Send out tasks as far as there is credit; `next()` does this by itself."""
        while self._more and len(self._delivery) < self._credits:
            try:
                task = next(self._tasks)
            except StopIteration:
                self._more = False
            except Exception as error:  # raised after the batches before it
                add_note(error, "feedline: raised by the sampler")
                self._sampler_error, self._more = error, False
            else:
                self._delivery.expect(task.seq)
                self._passed.sent(task, self._tasks.sampler_state())
                self._guard.submit(task)

    def _look_at_memory(self) -> None:
        for warning in self._feed.memory.look(self._workers.processes, self._setting, ended=False):
            self._feed.tell_once(warning)

    def _put(self, outcomes: list[Outcome]) -> None:
        for outcome in outcomes:
            if outcome.ended:
                self._tasks.ended(outcome.seq)
            if outcome.whole is not None:
                self._read_whole.add(outcome.whole)
                if len(self._read_whole) > 1:
                    raise RuntimeError(DISAGREE)
            self._delivery.put(outcome)

    def _finish(self) -> None:
        grown = self._feed.memory.look(self._workers.processes, self._setting, ended=True)
        self._leave("")
        for warning in grown:
            self._feed.tell_once(warning)
        if self._sampler_error is not None:
            error, self._sampler_error = self._sampler_error, None
            raise error
        self._feed.mishaps.judge(self._options.care, at_end=True)
        if self._options.stream:
            self._check_length()

    def _check_length(self) -> None:
        try:
            said = len(self._options.dataset)
        except Exception:  # it has no length, or none that can be had
            return
        options = self._options
        short_batches = (options.batch_size or 1) * max(1, self._passed.shards) if options.drop_last else 0
        if not said - short_batches < self._samples <= said and self._samples != said:
            self._feed.tell_once(
                f"the IterableDataset's __len__ says {said} but it gave {self._samples} elements, so len(loader) "
                "is wrong too; let __len__ return the true count, or leave it out"
            )

    def _abandon(self, error: BaseException) -> None:
        self._leave(
            f"this iteration was ended by an error ({type(error).__name__}), and its remaining batches have not been "
            "delivered; begin another with iter(loader)"
        )
        self._said_once = True
        if not self._owned:
            self._feed.drop_kept()


def _tell(message: str) -> None:
    """Warn, as if from the line of the user's loop."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)


def new_workers(options: Options, job: Job) -> Workers:
    """Workers of the kind the options ask for, still to be started."""
    if options.num_workers == 0:
        return InlineWorkers(job)
    if options.workers == "thread":
        return ThreadWorkers(job)
    return ProcessWorkers(job, options.multiprocessing_context)
