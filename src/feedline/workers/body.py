"""What a worker does with a task: the same in the loop, a thread and a process.

Takes: a `Job` (everything that stays the same) and tasks. Gives: outcomes; an exception of the user's code is an
outcome too. Promises: what is in a batch depends on the job and the task alone.
Not its job: how tasks and outcomes travel (inline, threads, processes), where memory comes from (arena).
"""

from __future__ import annotations

import copy
import os
import threading
from functools import partial

from feedline.errors import FeedlineError, OptionError, StateError, add_note
from feedline.line.collate import register_collate
from feedline.line.fetch import Fetcher, index_list, readers_of
from feedline.line.salvage import Salvage
from feedline.line.stream import Otherwise, StreamReader
from feedline.messages import Empty, Failure, Notice, Outcome, Task, notice_of, with_marks
from feedline.observe.marks import Marking, Marks
from feedline.progress import Row, clock, unwatched
from feedline.randomness.global_generators import Generators
from feedline.randomness.rng import enter_task, leave_task, task_seed
from feedline.supervise.shutdown import TOLD_TO_LEAVE
from feedline.worker_info import WorkerInfo, acting_as, set_worker_info
from feedline.workers.dialect import NUMPY
from feedline.workers.draws import Together
from feedline.workers.job import Job
from feedline.workers.making import Made, Maker
from feedline.workers.own_share import watch_for_sharing
from feedline.workers.parts import Part, Parts
from feedline.workers.piecework import Piecework
from feedline.workers.rank_sharing import RankSharing


class Body:
    """One worker's mind. `worker` is its number, or None when the loop does the work itself."""

    def __init__(
        self, job: Job, worker: int | None, generators: Generators, own_process: bool, row: Row | None = None
    ) -> None:
        self._job = job
        self._row = unwatched() if row is None else row
        self._marking = Marking(self._row) if job.marked else None
        if self._marking is not None:
            self._row = self._marking
        self._worker = worker
        self._generators = generators
        self._own_process = own_process
        self._gathers = job.batched and job.collate_fn is None and not job.stream
        reader = job.dialect.batch_reader(job.dataset) if self._gathers else None
        many = job.dialect.reads_many(job.dataset)
        self.readers = readers_of(job.dataset, job.stream, job.fetch_threads)
        self._fetcher = Fetcher(job.dataset, reader, many, self._row, self.readers)
        several = self.readers is not None and self.readers.count > 1 and job.batched and not many
        # Beside other threads the user may draw, too.
        alone = own_process or (worker is None and threading.current_thread() is threading.main_thread())
        self._together = Together() if several and alone else None
        self._salvage: Salvage | None = None
        if job.on_error != "raise":
            self._salvage = Salvage(self._fetcher, many and job.batched, job.on_error == "replace", self._row)
        self._draws = reader is None or reader.draws
        self.only_gathers = not self._draws and self._salvage is None
        """Does a batch take no code of the user's?"""
        self._parts: Parts | None = None
        if job.stream:
            own = self._number(worker or 0)
            initialised = job.worker_init_fn is not None
            loaded = job.loaded if worker is None else None
            self._parts = Parts(job.dataset, job.num_workers, own, job.seed, initialised, loaded)
        self._ranks = RankSharing(job)
        self._maker = Maker(job, own_process, self._row)
        self._piecework = Piecework(job.dialect, self._fetcher, generators, self._row, reader is None and not many)
        self._broken: BaseException | None = None
        self._who = _describe(worker, own_process)

    def start(self) -> None:
        """Become that worker; if `worker_init_fn` fails, every task's outcome will say so."""
        self._generators.open()
        if self._worker is None:
            if self._parts is not None and self._job.turns.ranks > 1:
                self._parts.own.info, self._parts.own.shares = self._info(0), False
            return
        for kind, collate in self._job.registrations.items():
            register_collate(kind, collate)
        info = self._info(self._worker)
        set_worker_info(info, self._own_process)
        (self._job.dialect.enter_worker if self._own_process else self._job.dialect.enter_thread)(info)
        if self._job.worker_init_fn is not None:
            try:
                shares = self._initialise(info)
                if self._parts is not None:
                    self._parts.own.shares = shares
            except (Exception, SystemExit) as error:
                if isinstance(error, SystemExit) and error.code == TOLD_TO_LEAVE:  # our own
                    raise
                self._broken = _raisable(error)
                add_note(self._broken, f"feedline: raised by worker_init_fn({self._worker}) in {self._who}")

    def _info(self, worker: int) -> WorkerInfo:
        """Who this worker is."""
        number, count = self._number(worker)
        return WorkerInfo(number, count, self._job.seed + number, self._job.dataset)  # torch's way

    def _number(self, worker: int) -> tuple[int, int]:
        """Which worker, and of how many: of a stream that ranks share, all workers of all ranks are counted."""
        ranks, rank, _ = self._job.turns
        return worker * ranks + rank, max(1, self._job.num_workers) * ranks

    def _initialise(self, info: WorkerInfo) -> bool:
        assert self._job.worker_init_fn is not None
        self._generators.enter(info.seed)
        with watch_for_sharing(info.dataset) as sharing, self._ranks.watched():
            self._job.worker_init_fn(info.id)
        return sharing.found

    def stop(self) -> None:
        """Be no worker any more."""
        if self._parts is not None:
            self._parts.close()
        if self.readers is not None:
            self.readers.close()
        set_worker_info(None, self._own_process)
        self._generators.close()

    def run(self, task: Task, empty: Empty) -> Outcome:
        """Do one task. Raises only what is no `Exception` (Ctrl-C)."""
        if self._marking is not None:
            return self._run_marked(self._marking, task, empty)
        if self.only_gathers and self._broken is None and not task.alone:
            # Of plain arrays, where nobody draws or asks for the task: to set that up costs as much as such a batch.
            try:
                batch = self._fetcher.gather(task, empty)
            except Exception as error:
                return self.failed(task, error)
            if batch is not NotImplemented:
                return Outcome(task.seq, batch, len(task.indices) or 1)  # type: ignore[arg-type]
        return self._run(task, empty)

    def _run_marked(self, marking: Marking, task: Task, empty: Empty) -> Outcome:
        marking.take()
        began = clock()
        outcome = self._run(task, empty)
        indices = None if task.indices is None else tuple(index_list(task))
        return with_marks(outcome, Marks(task.seq, task.epoch, self._worker, began, clock(), indices, *marking.take()))

    def _run(self, task: Task, empty: Empty) -> Outcome:
        if self._broken is not None:
            return Outcome(task.seq, failure=Failure.of(_fresh(self._broken), not self._own_process))
        enter_task(task.seed, task.epoch)
        try:
            outcome = self._run_stream(task, empty) if self._job.stream else self._run_map(task, empty)
            return outcome if self._together is None else self._together.told(outcome)
        except Exception as error:
            return self.failed(task, error)
        finally:
            leave_task()
            self._generators.leave()

    def failed(self, task: Task, error: BaseException) -> Outcome:
        """The outcome of a task that raised."""
        error = _raisable(error)
        add_note(error, f"feedline: in {self._who}, making batch {task.seq} of epoch {task.epoch}")
        return Outcome(task.seq, failure=Failure.of(error, not self._own_process))

    def _run_map(self, task: Task, empty: Empty) -> Outcome:
        assert task.indices is not None
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
                return Outcome(task.seq, batch, max(1, len(task.indices)))
        if not self._job.batched:
            return Outcome(task.seq, self._maker.single(self._fetcher.sample(task), empty), 1)
        samples = self._fetcher.samples(task)
        if self._together is not None:
            self._together.end()
        batch, size, tally = self._maker.batch(samples, empty, index_list(task))
        return Outcome(task.seq, batch, size, notice=None if tally is None else Notice(None, tally))

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
            batch, size, tally = self._maker.made(samples, empty, indices)
        except Exception as error:
            return self.failed(task, error)._replace(bad=bad)
        return Outcome(task.seq, batch, size, notice=notice_of(warning, tally), bad=bad)

    def _run_stream(self, task: Task, empty: Empty) -> Outcome:
        assert self._parts is not None
        try:
            part = self._parts.of(task)
        except Exception as error:
            return self.failed(task, error)._replace(ended=True)
        if part.info is None:
            return self._run_part(part, task, empty)
        is_thread = (
            self._worker is not None and not self._own_process
        )  # what a framework says to all threads is not its
        acting = NUMPY.acting if is_thread else self._job.dialect.acting
        with acting_as(part.info), acting(part.info):
            return self._run_part(part, task, empty)

    def _run_part(self, part: Part, task: Task, empty: Empty) -> Outcome:
        try:
            self._ranks.check()
            with self._ranks.watched():
                reader = self._reader(part, task)
        except Otherwise as other:
            return self._run_otherwise(part, task, empty, other)
        except Exception as error:
            return self.failed(task, error)._replace(ended=True)  # what cannot be opened has no more elements
        whole, reader.is_new = reader.whole if reader.is_new else None, False
        try:
            with self._ranks.watched():
                elements, ended, bad, short = reader.take(task)
        except Otherwise as other:
            return self._run_otherwise(part, task, empty, other)
        except Exception as error:
            # A part that is refused does not say how the stream is shared: that it is another way now is the error.
            said = None if isinstance(error, StateError) else whole
            return self.failed(task, error)._replace(whole=said, stream=(task.shard, reader.record()))
        try:
            about_ranks = self._ranks.judged()
        except OptionError as error:
            return self.failed(task, error)._replace(ended=True)
        if short and self._job.drop_last:
            elements = []
        made: Made = (None, 0, None)
        try:
            if elements:
                made = self._maker.made(elements, empty, None)
        except Exception as error:
            notice, stream = notice_of(_said(reader), None, about_ranks), (task.shard, reader.record())
            return self.failed(task, error)._replace(notice=notice, bad=bad, stream=stream, whole=whole)
        try:
            if elements and not reader.completes_step(task):  # after collating, whose draws are those of this batch
                made, ended = (None, 0, None), True
        except Exception as error:
            return self.failed(task, error)._replace(ended=True)
        batch, size, tally = made
        stream = task.shard, reader.record()
        notice = notice_of(_said(reader), tally, about_ranks, reader.ended_by)
        if ended and reader.elements >= 0:
            notice = (notice or Notice())._replace(elements=reader.elements)
        return Outcome(task.seq, batch, size, None, ended, notice, bad, stream, whole)

    def _run_otherwise(self, part: Part, task: Task, empty: Empty, other: Otherwise) -> Outcome:
        part.put_back()
        return self._run_part(part, task._replace(place=other.place), empty)

    def _reader(self, part: Part, task: Task) -> StreamReader:
        if part.reader is None or not part.reader.can_serve(task):
            job = self._job
            if part.info is not None and part.shares is None and job.worker_init_fn is not None:
                part.shares = self._initialise(part.info)  # as if it were a worker of its own
            # One that has asked may remember the answer, and not ask again in the next epoch.
            part.shares = part.shares or (part.reader is not None and part.reader.asked)
            if self._worker is not None and part.reader is None:
                task = _for_a_new_one(task)
            part.expect(task.place)
            part.reader = StreamReader(
                part.dataset,
                task,
                job.batch_size,
                job.shuffle_buffer,
                self._seed,
                part.shares,
                job.on_error,
                self._row,
                job.turns,
                job.drop_last,
                job.snapshot_every,
                part.loaded,
            )
        return part.reader

    def _seed(self, task: Task) -> None:
        self._generators.enter(task_seed(task.seed, task.epoch, task.seq))


def _said(reader: StreamReader) -> str | None:
    """What the user should be warned of, as far as it has not been said."""
    said, reader.notices = "\n".join(reader.notices) or None, []
    return said


def _for_a_new_one(task: Task) -> Task:
    """The task for a worker that is new: its dataset is not as the one before it, which has died, has left its own."""
    return task._replace(place={name: value for name, value in (task.place or {}).items() if name != "there"} or None)


def _raisable(error: BaseException) -> BaseException:
    """The error, or one around it: some would end the user's loop, or program, without a word."""
    if isinstance(error, Exception) and not isinstance(error, (StopIteration, StopAsyncIteration)):
        return error
    wrapped = RuntimeError(f"the dataset, collate_fn or worker_init_fn raised {error!r}")
    wrapped.__cause__ = error
    wrapped.__notes__ = getattr(error, "__notes__", [])  # type: ignore[attr-defined, unused-ignore]
    return wrapped


def _fresh(error: BaseException) -> BaseException:
    """The same error as a new object: a raised one holds on to the consumer's frames, and this worker to it."""
    try:
        again = copy.copy(error)
    except Exception:  # made by a constructor that copying does not know how to call
        again = RuntimeError(f"{type(error).__qualname__}: {error}")
    again.__notes__ = list(getattr(error, "__notes__", ()))  # type: ignore[attr-defined, unused-ignore]
    return again.with_traceback(error.__traceback__)


def _describe(worker: int | None, own_process: bool) -> str:
    if worker is None:
        return "the main process"
    return f"worker {worker} (pid {os.getpid()})" if own_process else f"worker thread {worker}"


def remedy_for(error: BaseException) -> str | None:
    """What feedline adds to an error of packing a batch."""
    if isinstance(error, FeedlineError):
        return None
    return "feedline: the batch could not be sent to the main process; have collate_fn return arrays and plain values"
