"""What a worker does with a task of a stream: it takes the next elements of the task's part and makes a batch of them.

Takes: a `Job`, tasks. Gives: outcomes that say where the part is, whether it has ended, and what to warn about.
Promises: a batch depends on the job, the task and what its part has given before; a part that is refused or cannot be
opened gives an error and no more elements.
Not its job: which parts there are (stream_parts), reading one (reading.stream_reader), making a batch (body).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from feedline.datasets import Empty
from feedline.errors import OptionError, StateError
from feedline.machine.worker_info import WorkerInfo, acting_as
from feedline.messages.outcome import Notice, Outcome, Tally, notice_of
from feedline.messages.progress import Row
from feedline.messages.task import Task
from feedline.order.ranks import draws_as
from feedline.order.shares import Share
from feedline.randomness.rng import task_seed
from feedline.randomness.task_generators import TaskGenerators
from feedline.reading.stream_reader import OpenAgain, StreamReader
from feedline.workers.dialect import NUMPY
from feedline.workers.job import Job
from feedline.workers.own_share import watch_for_sharing
from feedline.workers.rank_sharing import RankSharing
from feedline.workers.stream_parts import StreamPart, StreamParts

Made = tuple[Any, int, Tally | None]
"""A batch, how many samples are in it, and what its collator has counted."""


class StreamBody:
    """What one worker does; `worker` is its number, or None for the loop itself."""

    def __init__(
        self,
        job: Job,
        worker: int | None,
        own_process: bool,
        row: Row,
        generators: TaskGenerators,
        make: Callable[[list[Any], Empty, Any], Made],
        failed: Callable[[Task, BaseException], Outcome],
    ) -> None:
        self._job = job
        self._worker = worker
        # A framework's worker info is global to the process, so a thread must not change it.
        self._acting = NUMPY.acting if worker is not None and not own_process else job.dialect.acting
        self._row = row
        self._generators = generators
        self._make = make
        self._failed = failed
        self._ranks = RankSharing(job)
        own, loaded = job.number_of(worker or 0), job.loaded if worker is None else None
        self._parts = StreamParts(job.dataset, job.num_workers, own, job.seed, job.worker_init_fn is not None, loaded)

    def start_alone(self) -> None:
        """There are no workers: if ranks divide the stream, the loop counts as one of their workers."""
        if self._job.turns.ranks > 1:
            number, count = self._job.number_of(0)
            self._parts.own.info = WorkerInfo(number, count, self._job.seed + number, self._job.dataset)
            self._parts.own.shares = False

    def initialise(self, info: WorkerInfo) -> None:
        """Call `worker_init_fn`, which may give the dataset its share."""
        self._parts.own.shares = self._initialise(info)

    def _initialise(self, info: WorkerInfo) -> bool:
        assert self._job.worker_init_fn is not None
        self._generators.enter(info.seed)
        random.seed(info.seed)  # as torch's workers have it there
        with watch_for_sharing(info.dataset) as sharing, self._ranks.watched():
            self._job.worker_init_fn(info.id)
        return sharing.found

    def close(self) -> None:
        """Drop all readers."""
        self._parts.close()

    def run(self, task: Task, empty: Empty) -> Outcome:
        """Do one task."""
        try:
            part = self._parts.of(task)
        except Exception as error:
            return self._failed(task, error)._replace(ended=True)
        if part.info is None:
            return self._run_part(part, task, empty)
        with acting_as(part.info), self._acting(part.info):
            return self._run_part(part, task, empty)

    def _run_part(self, part: StreamPart, task: Task, empty: Empty) -> Outcome:
        try:
            self._ranks.check()
            with self._ranks.watched():
                reader = self._reader(part, task)
        except OpenAgain as other:
            return self._open_again(part, task, empty, other)
        except Exception as error:
            return self._failed(task, error)._replace(ended=True)  # without a reader it has no more elements
        whole, reader.is_new = reader.whole if reader.is_new else None, False
        try:
            with self._ranks.watched():
                elements, ended, bad, short, sources = reader.take(task)
        except OpenAgain as other:
            return self._open_again(part, task, empty, other)
        except Exception as error:
            # A refused part does not report how the stream is divided: the error is that this has changed.
            said = None if isinstance(error, StateError) else whole
            return self._failed(task, error)._replace(whole=said, stream=(task.shard, reader.record()))
        try:
            about_ranks = self._ranks.judged()
        except OptionError as error:
            return self._failed(task, error)._replace(ended=True)
        if short and self._job.drop_last:
            elements = []
        made: Made = (None, 0, None)
        share = self._job.share
        of = None if share.ranks == 1 or not elements else (len(elements), *share)
        if of is not None:
            elements = self._own_rows(share, task, elements)
        has_elements = bool(elements)  # a single one is taken out of the list
        try:
            if has_elements:
                made = self._make(elements, empty, None)
        except Exception as error:
            notice, stream = notice_of(_said(reader), None, about_ranks), (task.shard, reader.record())
            return self._failed(task, error)._replace(notice=notice, bad=bad, stream=stream, whole=whole)
        try:
            if has_elements and not reader.completes_step(task):  # after collating, which still draws for this batch
                made, ended = (None, 0, None), True
        except Exception as error:
            return self._failed(task, error)._replace(ended=True)
        batch, size, tally = made
        stream = task.shard, reader.record()
        notice = notice_of(_said(reader), tally, about_ranks, reader.ended_by, sources if size else ())
        if ended and reader.elements >= 0:
            notice = (notice or Notice())._replace(elements=reader.elements)
        return Outcome(task.seq, batch, size, None, ended, notice, bad, stream, whole, of)

    def _own_rows(self, share: Share, task: Task, elements: list[Any]) -> list[Any]:
        """This rank's rows. All ranks have drawn the same while they read the same; collating must not."""
        own = draws_as(share.rank, task.seq * self._job.batch_size + share.rank)
        if own is not None:
            self._generators.enter(task_seed(task.seed, task.epoch, own))
        rows: list[Any] = share.rows(elements)
        return rows

    def _open_again(self, part: StreamPart, task: Task, empty: Empty, other: OpenAgain) -> Outcome:
        part.put_back()
        return self._run_part(part, task._replace(place=other.place), empty)

    def _reader(self, part: StreamPart, task: Task) -> StreamReader:
        if part.reader is None or not part.reader.can_serve(task):
            job = self._job
            if part.info is not None and part.shares is None and job.worker_init_fn is not None:
                part.shares = self._initialise(part.info)  # as a worker of its own would
            # A dataset that asked for the number of workers may remember it, and not ask in the next epoch.
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
    """New warnings for the user; None if there are none."""
    said, reader.notices = "\n".join(reader.notices) or None, []
    return said


def _for_a_new_one(task: Task) -> Task:
    """The task for a new worker: its dataset is not in the state that the dead worker's dataset was in."""
    return task._replace(place={name: value for name, value in (task.place or {}).items() if name != "there"} or None)
