"""What a worker does with a task. It is the same code in the loop, a thread and a process.

Takes: a `Job` (everything that does not change) and tasks. Gives: outcomes; an exception in user code is an outcome
too. Promises: a batch depends on the job and the task alone; it is written directly into memory from `empty` if
collation allows that, and shares no memory with the dataset.
Not its job: how tasks and outcomes are sent (inline, threads, processes), where memory comes from (arena), reading
samples (reading.fetch), reading a stream (stream_body), collation itself (collate).
"""

from __future__ import annotations

import copy
import os
import random
from functools import partial
from typing import Any

import numpy as np

from feedline.collate.collator import Collator
from feedline.collate.default import register_collate
from feedline.collate.dropping import NothingLeft
from feedline.collate.making import Making
from feedline.collate.unshared import ALONE, references
from feedline.datasets import Empty
from feedline.errors import FeedlineError, add_note
from feedline.machine.finalizers import is_main_thread
from feedline.machine.worker_info import WorkerInfo, set_worker_info
from feedline.messages.marks import Marking, Marks
from feedline.messages.outcome import Failure, Notice, Outcome, notice_of, with_marks
from feedline.messages.outcome import made as made_outcome
from feedline.messages.progress import COLLATED, COLLATING, FETCHED, PLACE, PREPARING, SINCE, Row, clock, unwatched
from feedline.messages.task import Task
from feedline.randomness.rng import enter_task, leave_task, task_seed
from feedline.randomness.task_generators import TaskGenerators
from feedline.reading.fetch import Fetcher, brief, index_list, readers_of
from feedline.reading.salvage import Salvage
from feedline.supervise.shutdown import TOLD_TO_LEAVE
from feedline.supervise.telling import name_of
from feedline.workers.job import Job
from feedline.workers.piecework import Piecework
from feedline.workers.shared_draws import SharedDrawsCheck
from feedline.workers.stream_body import Made, StreamBody


class Body:
    """What one worker does. `worker` is its number, or None if the loop itself makes the batches."""

    def __init__(
        self,
        job: Job,
        worker: int | None,
        generators: TaskGenerators,
        own_process: bool,
        row: Row | None = None,
        host: str = "",
    ) -> None:
        self._job = job
        self._row = self._counted = unwatched() if row is None else row
        self._marking = Marking(self._row) if job.marked else None
        if self._marking is not None:
            self._row = self._marking
        self._worker = worker
        self._generators = generators
        self._own_process = own_process
        self._entered_thread = False
        self._collate, self._own, self._dataset = job.dialect.collate, job.dialect.own, job.dataset
        self._batched, self._collate_fn = job.batched, job.collate_fn
        self._gathers = job.batched and job.collate_fn is None and not job.stream
        self._collator = job.collate_fn if isinstance(job.collate_fn, Collator) else None
        reader = job.dialect.batch_reader(job.dataset) if self._gathers else None
        many = job.dialect.reads_many(job.dataset)
        self.readers = readers_of(job.dataset, job.stream, job.fetch_threads)
        is_written_down = worker is not None or self._marking is not None
        self._fetcher = Fetcher(job.dataset, reader, many, self._row, self.readers, is_written_down=is_written_down)
        several = self.readers is not None and self.readers.count > 1 and job.batched and not many
        # If other threads run, the user's code there may draw from the same generators.
        alone = several and (own_process or (worker is None and is_main_thread()))
        self._together = SharedDrawsCheck() if alone else None
        self._salvage: Salvage | None = None
        if job.on_error != "raise":
            self._salvage = Salvage(self._fetcher, many and job.batched, job.on_error == "replace", self._row)
        self._gathers &= self._fetcher.gathers
        self._draws = reader is None or reader.draws
        self.only_gathers = not self._draws and self._salvage is None
        """Is a batch made without running user code?"""
        self._stream: StreamBody | None = None
        if job.stream:
            self._stream = StreamBody(job, worker, own_process, self._row, generators, self._made, self.failed)
        self._piecework = Piecework(job.dialect, self._fetcher, generators, self._row, reader is None and not many)
        self._broken: BaseException | None = None
        self._who = _describe(worker, own_process, host)

    @property
    def read_so_far(self) -> list[Any] | None:
        """The samples of this batch that have been read, if the row does not say which one is being read."""
        return self._fetcher.read_so_far

    def start(self) -> None:
        """Set up as that worker; if `worker_init_fn` fails, the outcome of every task is that error."""
        self._generators.open()
        if self._worker is None:
            if self._stream is not None:
                self._stream.start_alone()
            return
        job = self._job
        for kind, collate in job.registrations.items():
            register_collate(kind, collate)
        number, count = job.number_of(self._worker)
        info = WorkerInfo(number, count, job.seed + number, job.dataset)  # as in torch
        set_worker_info(info, self._own_process)
        if self._own_process:
            job.dialect.enter_worker(info)
        else:
            job.dialect.enter_thread(info)
            self._entered_thread = True
        if job.worker_init_fn is None:
            return
        try:
            if self._stream is not None:
                self._stream.initialise(info)
            else:
                self._generators.enter(info.seed)
                random.seed(info.seed)  # as torch's workers have it there
                job.worker_init_fn(info.id)
        except (Exception, SystemExit) as error:
            if isinstance(error, SystemExit) and error.code == TOLD_TO_LEAVE:  # raised by us
                raise
            self._broken = _raisable(error)
            add_note(self._broken, f"feedline: raised by worker_init_fn({self._worker}) in {self._who}")

    def stop(self) -> None:
        """Stop being a worker."""
        if self._stream is not None:
            self._stream.close()
        if self.readers is not None:
            self.readers.close()
        if self._entered_thread:
            self._entered_thread = False
            self._job.dialect.leave_thread()
        set_worker_info(None, self._own_process)
        self._generators.close()

    def run(self, task: Task, empty: Empty, began: int = 0) -> Outcome:
        """Do one task and count the time it takes; `began` is now, if the caller has looked at the clock. It raises
        nothing that is an `Exception` (but Ctrl-C passes)."""
        row = self._counted
        began = row[SINCE] = began or clock()
        row[PLACE] = PREPARING
        try:
            if self._marking is not None:
                return self._run_marked(self._marking, task, empty)
            if self.only_gathers and self._broken is None and not task.alone:
                # For plain arrays nothing is seeded or set up: that would take as long as the batch itself.
                batch = self._fetcher.gather(task, empty)
                if batch is not NotImplemented:
                    return Outcome(task.seq, batch, len(task.indices) or 1)  # type: ignore[arg-type]
            return self._run(task, empty)
        except Exception as error:
            return self.failed(task, error)
        finally:
            now = clock()
            collating = row[SINCE] if row[PLACE] == COLLATING else now  # collating is always the last step
            row[FETCHED] += collating - began
            row[COLLATED] += now - collating

    def _run_marked(self, marking: Marking, task: Task, empty: Empty) -> Outcome:
        marking.take()
        began = clock()
        try:
            outcome = self._run(task, empty)
        except Exception as error:  # how far it has come is worth knowing, too
            outcome = self.failed(task, error)
        indices = None if task.indices is None else tuple(index_list(task))
        return with_marks(outcome, Marks(task.seq, task.epoch, self._worker, began, clock(), indices, *marking.take()))

    def _run(self, task: Task, empty: Empty) -> Outcome:
        if self._broken is not None:
            return Outcome(task.seq, failure=Failure.of(_fresh(self._broken), not self._own_process))
        enter_task(task.seed, task.epoch)
        try:
            outcome = self._run_map(task, empty) if self._stream is None else self._stream.run(task, empty)
            return outcome if self._together is None else self._together.told(outcome)
        finally:
            leave_task()
            self._generators.leave()

    def failed(self, task: Task, error: BaseException) -> Outcome:
        """The outcome of a task that raised."""
        error = _raisable(error)
        add_note(error, f"feedline: in {self._who}, making batch {task.seq} of epoch {task.epoch}")
        return Outcome(task.seq, failure=Failure.of(error, not self._own_process))

    def _run_map(self, task: Task, empty: Empty) -> Outcome:
        if self._draws:
            self._seed(task)
        if self._together is not None:
            self._together.begin()
        if task.rows is not None:
            return self._piecework.run(task, empty, self._seed)
        if self._salvage is not None:
            return self._run_salvage(self._salvage, task, empty)
        if self._gathers and not task.alone:
            batch = self._fetcher.gather(task, empty)
            if batch is not NotImplemented:
                return Outcome(task.seq, batch, max(1, len(task.indices)))  # type: ignore[arg-type]
        indices: Any = task.indices
        if type(indices) is np.ndarray:
            indices = indices.tolist()
        if not self._batched:
            return made_outcome(task.seq, self._single(self._fetcher.singly(task, indices), empty), 1)
        held = [self._fetcher.samples(task, indices)]
        if self._together is not None:
            self._together.end()
        batch, size, tally = self._batch(held, empty, indices)
        made = made_outcome(task.seq, batch, size)
        return made if tally is None else made._replace(notice=Notice(None, tally))

    def _run_salvage(self, salvage: Salvage, task: Task, empty: Empty) -> Outcome:
        assert task.indices is not None
        batch, samples, indices, bad, warning = salvage.read(task, empty, partial(self._seed, task))
        if batch is not NotImplemented:
            return Outcome(task.seq, batch, max(1, len(task.indices)))
        if self._together is not None:
            self._together.end()
        if bad and not samples:
            return Outcome(task.seq, bad=bad)
        try:
            batch, size, tally = self._made(samples, empty, indices)
        except Exception as error:
            return self.failed(task, error)._replace(bad=bad)
        return Outcome(task.seq, batch, size, notice=notice_of(warning, tally), bad=bad)

    def _seed(self, task: Task) -> None:
        draw = task.seq if task.share is None and task.draws_as is None else task.draw
        self._generators.enter(task_seed(task.seed, task.epoch, draw))

    def _made(self, samples: list[Any], empty: Empty, names: Any) -> Made:
        """What the user gets: a batch of these samples, or the single sample if not batched."""
        return self._batch([samples], empty, names) if self._job.batched else (self._single(samples, empty), 1, None)

    def _batch(self, held: list[Any], empty: Empty, names: Any) -> Made:
        """A batch of the samples that the list holds."""
        row = self._row
        row[PLACE] = COLLATING
        row[SINCE] = clock()
        if self._collator is not None:
            return self._made_by(self._collator, held[0], empty, names)
        size = len(held[0] if names is None else names) or 1  # __getitems__ may return any iterable
        collate_fn = self._collate_fn
        if collate_fn is None:
            return self._collate(held[0], empty, names), size, None
        try:
            made = [collate_fn(held[0])]  # it may make a batch of no samples
            if references(held[0]) == ALONE or made[0] is held[0]:
                held.clear()  # else we would count as one who has `samples[0]`, or the list that is given back
            return (made[0] if self._own_process else self._own(made, empty, self._dataset)), size, None
        except Exception as error:
            _note_indices(error, names)
            raise

    def _made_by(self, collator: Collator, samples: list[Any], empty: Empty, names: Any) -> Made:
        """Have our own collator make the batch, directly in the slot."""
        making = Making(
            collator.arrays or self._job.dialect.arrays, empty, names, lambda tree: self._owned([tree], empty)
        )
        try:
            batch = collator.make(samples, making)
        except NothingLeft:
            return None, 0, making.tally
        except Exception as error:
            _note_indices(error, names)
            raise
        counted = making.tally if any(vars(making.tally).values()) else None
        return batch, len(samples) - making.tally.dropped, counted

    def _single(self, held: list[Any], empty: Empty) -> Any:
        """One sample that is not batched (`batch_size=None`); the list holds it."""
        self._row[PLACE], self._row[SINCE] = COLLATING, clock()
        if self._collator is not None:  # the sample is itself a list of samples
            try:
                return self._made_by(self._collator, held[0], empty, None)[0]
            except Exception as error:
                add_note(
                    error,
                    "feedline: with batch_size=None each item of the dataset is collated as if it were a whole batch; "
                    "set batch_size to make batches of several items",
                )
                raise
        convert = self._job.collate_fn or self._job.dialect.convert
        made = [convert(held.pop())]
        return self._owned(made, empty)

    def _owned(self, held: list[Any], empty: Empty) -> Any:
        """The tree that the list holds, which nobody else has."""
        # A worker process pickles the batch directly into the slot, which copies it anyway.
        return held[0] if self._own_process else self._own(held, empty, self._dataset)


def _note_indices(error: Exception, names: Any) -> None:
    where = "" if names is None else f" for dataset indices {brief(names)}"
    add_note(error, f"feedline: raised by collate_fn{where}")


def _raisable(error: BaseException) -> BaseException:
    """The error, or a RuntimeError around it if it would end the user's loop or program silently."""
    if isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration)):
        return error
    wrapped = RuntimeError(f"the dataset, collate_fn or worker_init_fn raised {error!r}")
    wrapped.__cause__ = error
    wrapped.__notes__ = getattr(error, "__notes__", [])  # type: ignore[attr-defined, unused-ignore]
    return wrapped


def _fresh(error: BaseException) -> BaseException:
    """The same error as a new object: a raised error refers to the consumer's frames, and this worker keeps its own."""
    try:
        again = copy.copy(error)
    except Exception:  # copying does not know how to call its constructor
        again = RuntimeError(f"{type(error).__qualname__}: {error}")
    again.__notes__ = list(getattr(error, "__notes__", ()))  # type: ignore[attr-defined, unused-ignore]
    return again.with_traceback(error.__traceback__)


def _describe(worker: int | None, own_process: bool, host: str) -> str:
    return "the main process" if worker is None else name_of(worker, os.getpid() if own_process else None, host)


def remedy_for(error: BaseException) -> str | None:
    """The note that feedline adds to an error raised while a batch is packed."""
    if isinstance(error, FeedlineError):
        return None
    return "feedline: the batch could not be sent to the main process; have collate_fn return arrays and plain values"
