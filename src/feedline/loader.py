"""DataLoader: wires the parts together. The loop is here, once, for every kind of worker.

Takes: the options (checked by options). Gives: batches, epoch after epoch.
Promises: at most `prefetch_factor × num_workers` tasks out; every batch once; an error is raised by `next()` and
nowhere else; whatever way the loop is left, nothing is left behind.
Not its job: anything a stop on the line does (see docs/design.md).
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import Any

from feedline.errors import WorkerTimeout, add_note
from feedline.line.collate import registrations
from feedline.line.deliver import Delivery
from feedline.line.plan import IterablePlan, OrderPlan, Plan, StreamPlan, plan_of_batch_sampler
from feedline.line.samplers import RandomSampler, Sampler, SequentialSampler
from feedline.messages import Outcome
from feedline.options import Options, check_options
from feedline.workers.body import Job
from feedline.workers.contract import Workers
from feedline.workers.inline import InlineWorkers
from feedline.workers.processes import ProcessWorkers
from feedline.workers.threads import ThreadWorkers


class DataLoader:
    """Batches of a dataset, in a reproducible order, loaded ahead by workers.

    Options have torch's names, defaults and meanings. feedline's own: `seed` (order and augmentation are a function of
    seed and epoch; drawn at random if None), `workers` ("process" or "thread"), `shuffle_buffer` (for streams).

    >>> import numpy as np
    >>> from feedline import ArrayDataset
    >>> data = ArrayDataset(np.arange(6) * 10, np.arange(6))
    >>> for values, labels in DataLoader(data, batch_size=4):
    ...     print(values, labels)
    [ 0 10 20 30] [0 1 2 3]
    [40 50] [4 5]
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        in_order: bool = True,
        seed: int | None = None,
        workers: str = "process",
        shuffle_buffer: int = 0,
    ) -> None:
        given = dict(locals())
        del given["self"]
        self.options = check_options(given)
        self.epoch = 0
        """The number of the epoch that the next `iter()` will begin."""
        self._plan = _plan(self.options)
        self.warned: set[str] = set()
        """What the user has been warned of, so that it is said once and not every epoch."""
        self._kept: Workers | None = None
        self._latest: weakref.ref[BatchIterator] | None = None
        self._iterators: weakref.WeakSet[BatchIterator] = weakref.WeakSet()

    @property
    def dataset(self) -> Any:
        """The dataset that is loaded."""
        return self.options.dataset

    def __len__(self) -> int:
        """Batches in an epoch."""
        return len(self._plan)

    def __iter__(self) -> BatchIterator:
        """Begin an epoch. With persistent workers an epoch still under way on them is given up."""
        epoch, self.epoch = self.epoch, self.epoch + 1
        if self.options.persistent_workers:
            workers, owned = self._kept_workers(), False
        else:
            workers, owned = _new_workers(self.options), True
        iterator = BatchIterator(self, self.options, self._plan, workers, epoch, owned)
        self._iterators.add(iterator)
        self._latest = weakref.ref(iterator)
        return iterator

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next: it decides the order and every random draw, together with the seed."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch must be a whole number of at least 0; got {epoch!r}")
        self.epoch = epoch

    def close(self) -> None:
        """End all workers and give back their memory. Batches in the user's hands stay valid; the loader usable."""
        for iterator in list(self._iterators):
            iterator.close()
        self._drop_kept()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _kept_workers(self) -> Workers:
        latest = self._latest() if self._latest is not None else None
        if latest is not None:
            latest.give_up()
        if self._kept is None:
            self._kept = _new_workers(self.options)
            weakref.finalize(self, self._kept.stop)
        self._kept.forget()
        return self._kept

    def _drop_kept(self) -> None:
        kept, self._kept = self._kept, None
        if kept is not None:
            kept.stop()


class BatchIterator(Iterator[Any]):
    """One epoch under way."""

    def __init__(
        self, loader: DataLoader, options: Options, plan: Plan, workers: Workers, epoch: int, owned: bool
    ) -> None:
        self._loader = loader  # keeps it, and with it persistent workers, alive while the loop runs
        self._options = options
        self._workers = workers
        self._owned = owned
        self._tasks = plan.tasks(epoch)
        self._delivery = Delivery(options.in_order)
        self._credits = max(1, options.prefetch_factor * workers.count)
        self._more = True
        self._sampler_error: Exception | None = None
        self._over: str | None = None
        self._samples = 0
        if owned:
            weakref.finalize(self, workers.stop)

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> BatchIterator:
        return self

    def __next__(self) -> Any:
        if self._over is not None:
            if self._over:
                raise RuntimeError(self._over)
            raise StopIteration
        try:
            outcome = self._next_outcome()
        except BaseException:  # Ctrl-C, a dead worker, no memory: whatever state that left, drop it
            self._abandon()
            raise
        if outcome is None:
            self._finish()
            raise StopIteration
        if outcome.failure is not None:
            raise outcome.failure.exception()
        return outcome.batch

    def close(self) -> None:
        """Leave the epoch; its workers end unless they are persistent."""
        if self._over is None:
            self._over = ""
            self._stop_workers()

    def give_up(self) -> None:
        """A newer iteration has taken over the persistent workers."""
        if self._over is None:
            self._over = (
                "this iterator was given up when iter() was called again on its loader (persistent_workers=True)"
            )

    def _next_outcome(self) -> Outcome | None:
        delivery = self._delivery
        while True:
            self._fill()
            outcome = delivery.pop()
            if outcome is None:
                if not len(delivery):
                    return None
                self._wait()
                continue
            if outcome.notice is not None:
                self._warn(outcome.notice)
            if outcome.size or outcome.failure is not None:
                if self._workers.count:
                    self._fill()  # the place just freed is used while the user computes
                self._samples += outcome.size
                return outcome

    def _fill(self) -> None:
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
                self._workers.submit(task)

    def _wait(self) -> None:
        timeout = self._options.timeout if self._options.timeout and self._workers.count else None
        outcomes = self._workers.wait(timeout)
        if not outcomes:
            raise WorkerTimeout(
                f"no batch came within timeout={self._options.timeout:g} s from {self._workers.count} workers. A "
                "sample is stuck or slower than that: raise timeout, or look for it with num_workers=0."
            )
        for outcome in outcomes:
            if outcome.ended:
                self._tasks.ended(outcome.seq)
            self._delivery.put(outcome)

    def _finish(self) -> None:
        self.close()
        if self._sampler_error is not None:
            error, self._sampler_error = self._sampler_error, None
            raise error
        if self._options.stream:
            self._check_length()

    def _check_length(self) -> None:
        try:
            said = len(self._options.dataset)
        except TypeError:
            return
        dropped = self._options.drop_last and self._samples < said
        if self._samples != said and not dropped:
            self._warn(
                f"the IterableDataset's __len__ says {said} but it gave {self._samples} elements, so len(loader) "
                "is wrong too; let __len__ return the true count, or leave it out"
            )

    def _abandon(self) -> None:
        self._over = ""
        self._workers.stop()
        if not self._owned:
            self._loader._drop_kept()

    def _stop_workers(self) -> None:
        if self._owned:
            self._workers.stop()
        else:
            self._workers.forget()

    def _warn(self, message: str) -> None:
        if message not in self._loader.warned:
            self._loader.warned.add(message)
            warnings.warn(message, stacklevel=4)


def _plan(options: Options) -> Plan:
    size, drop, seed = options.batch_size, options.drop_last, options.seed
    if options.stream:
        return StreamPlan(options.dataset, size, drop, seed, shards=max(1, options.num_workers))
    if options.batch_sampler is not None:
        return plan_of_batch_sampler(options.batch_sampler, seed)
    sampler = options.sampler
    if sampler is None:
        sampler = RandomSampler(options.dataset) if options.shuffle else SequentialSampler(options.dataset)
    if isinstance(sampler, Sampler):
        return OrderPlan(sampler, size, drop, seed)
    return IterablePlan(sampler, size, drop, seed)


def _new_workers(options: Options) -> Workers:
    job = Job(
        dataset=options.dataset,
        stream=options.stream,
        batched=options.batched,
        batch_size=options.batch_size or 1,
        drop_last=options.drop_last,
        collate_fn=options.collate_fn,
        worker_init_fn=options.worker_init_fn,
        shuffle_buffer=options.shuffle_buffer,
        seed=options.seed,
        num_workers=options.num_workers,
        registrations=registrations(),
    )
    workers: Workers
    if options.num_workers == 0:
        workers = InlineWorkers(job)
    elif options.workers == "thread":
        workers = ThreadWorkers(job)
    else:
        workers = ProcessWorkers(job, options.multiprocessing_context)
    try:
        workers.start()
    except BaseException:
        workers.stop()
        raise
    return workers
