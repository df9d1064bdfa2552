"""The parts of a stream that one worker reads: its own, or those of an epoch that other workers began.

Takes: tasks, whose number of parts may differ from the number of workers. Gives: the task's part, and the worker info
to show while it is read.
Promises: no two parts share a dataset object; a change to one does not affect another.
Not its job: reading (body, reading.stream_reader), which worker gets which part (the lanes).
"""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from feedline.errors import StateError
from feedline.errors.counting import counted
from feedline.machine.worker_info import WorkerInfo
from feedline.messages.task import Task
from feedline.reading.stream_reader import StreamReader
from feedline.reading.stream_source import Loaded, Record
from feedline.resume.stateful import is_stateful, load, saved
from feedline.workers.copying import set_apart, with_own_generators


class StreamPart:
    """One part, with the dataset copy and worker info that a worker of its own would have."""

    def __init__(self, dataset: Any, info: WorkerInfo | None = None, loaded: Loaded | None = None) -> None:
        self.dataset = dataset
        self.info = info
        """The worker info to show while it is read; None if the worker's own is right."""
        self.shares: bool | None = None
        """Is the dataset known to pick its own share? None: `worker_init_fn` has not been called for it."""
        self.reader: StreamReader | None = None
        self.loaded = loaded or Loaded()
        self._is_the_users = loaded is not None  # not a copy in a worker: what is loaded into it stays

    def expect(self, place: Record | None) -> None:
        """The part will be opened at this place: if that may load a dataset state, have one to put back later."""
        is_first = not place and self.reader is None and self.loaded.unread is None
        if self._is_the_users and is_first and is_stateful(self.dataset):
            self.loaded.unread = saved(self.dataset)
        place = place or {}
        may_load = ("there" not in place and place.get("of") == "dataset") or "instead" in place
        if self.loaded.before is None and may_load:
            known = self.loaded.unread or place.get("unread")
            self.loaded.before = known if isinstance(known, bytes) else saved(self.dataset)

    def put_back(self) -> None:
        """Put the dataset back into its earlier state. Whether it picks its own share is remembered."""
        self.shares = self.shares or (self.reader is not None and self.reader.asked)
        self.reader = None
        if isinstance(self.loaded.before, bytes):
            with contextlib.suppress(Exception):  # a failure shows, and is reported, when it is opened again
                load(self.dataset, self.loaded.before)


class StreamParts:
    """All parts that one of `workers` workers on this rank reads; `own` is its own (part, number of parts)."""

    def __init__(
        self,
        dataset: Any,
        workers: int,
        own: tuple[int, int],
        seed: int,
        initialised: bool,
        loaded: Loaded | None = None,
    ) -> None:
        self.own = StreamPart(dataset, loaded=loaded)
        self._own = own
        self._workers = max(1, workers)
        self._seed = seed
        self._initialised = initialised  # may worker_init_fn change the dataset?
        self._untouched: Any = None
        with contextlib.suppress(Exception):  # without a copy, other workers cannot continue it
            self._untouched = copy.copy(dataset)
        self._others: dict[int, StreamPart] = {}
        self._epoch: tuple[int, ...] = ()

    def of(self, task: Task) -> StreamPart:
        """The part that a task reads."""
        if (task.shard, task.shards) == self._own:
            return self.own
        epoch = (task.seed, task.epoch, task.shards)
        if epoch != self._epoch:
            self._epoch, self._others = epoch, {}
        if task.shard not in self._others:
            dataset = self._dataset(task)
            info = WorkerInfo(task.shard, task.shards, self._seed + task.shard, dataset)
            self._others[task.shard] = StreamPart(dataset, info)
        return self._others[task.shard]

    def close(self) -> None:
        """Drop all readers."""
        self.own.reader = None
        self._others = {}

    def _dataset(self, task: Task) -> Any:
        own = self.own
        is_only = task.lanes <= self._workers and own.reader is None and not self._initialised
        if is_only and not is_stateful(own.dataset):
            return with_own_generators(own.dataset)  # no worker draws from its own part's in this epoch
        if self._untouched is not None:
            with contextlib.suppress(Exception):
                return set_apart(self._untouched)
        raise StateError(
            f"the state was saved with {counted(task.shards, 'worker')}; for other workers to read their parts of the "
            f"stream, each part needs a copy of the dataset, but a {type(own.dataset).__name__} cannot be copied: "
            f"continue with num_workers={task.shards}"
        )
