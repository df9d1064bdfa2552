"""The parts of a stream that one worker reads: its own, or those of an epoch that other workers began.

Takes: tasks, whose number of parts may be another than that of the workers. Gives: the task's part, and who to be while
reading it.
Promises: no two parts share a dataset object; what is done to one is not seen in another.
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
    """One part, as a worker of its own would have it."""

    def __init__(self, dataset: Any, info: WorkerInfo | None = None, loaded: Loaded | None = None) -> None:
        self.dataset = dataset
        self.info = info
        """Who to be while reading it; None if that is who the worker is anyway."""
        self.shares: bool | None = None
        """Is the dataset known to read a share of its own? None: `worker_init_fn` has not been called for it."""
        self.reader: StreamReader | None = None
        self.loaded = loaded or Loaded()
        self._is_the_users = loaded is not None  # and no copy in a worker: what is done to it lasts

    def expect(self, place: Record | None) -> None:
        """It is about to be opened there: if a state of the dataset's may be loaded, have one to put back later."""
        is_first = not place and self.reader is None and self.loaded.unread is None
        if self._is_the_users and is_first and is_stateful(self.dataset):
            self.loaded.unread = saved(self.dataset)
        place = place or {}
        may_load = ("there" not in place and place.get("of") == "dataset") or "instead" in place
        if self.loaded.before is None and may_load:
            known = self.loaded.unread or place.get("unread")
            self.loaded.before = known if isinstance(known, bytes) else saved(self.dataset)

    def put_back(self) -> None:
        """Have the dataset where it was before; what it has said of sharing itself out holds."""
        self.shares = self.shares or (self.reader is not None and self.reader.asked)
        self.reader = None
        if isinstance(self.loaded.before, bytes):
            with contextlib.suppress(Exception):  # what that leads to is seen, and told, when it is opened again
                load(self.dataset, self.loaded.before)


class StreamParts:
    """One worker's: of so many on this rank; its own part is that of a number, among those of all ranks."""

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
        self._initialised = initialised  # will worker_init_fn do something to the dataset?
        self._untouched: Any = None
        with contextlib.suppress(Exception):  # one that cannot be copied cannot be continued by other workers
            self._untouched = copy.copy(dataset)
        self._others: dict[int, StreamPart] = {}
        self._epoch: tuple[int, ...] = ()

    def of(self, task: Task) -> StreamPart:
        """The part that a task is of."""
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
        """Let go of all readers."""
        self.own.reader = None
        self._others = {}

    def _dataset(self, task: Task) -> Any:
        own = self.own
        is_only = task.lanes <= self._workers and own.reader is None and not self._initialised
        if is_only and not is_stateful(own.dataset):
            return with_own_generators(own.dataset)  # the others' are not drawn from either in this epoch
        if self._untouched is not None:
            with contextlib.suppress(Exception):
                return set_apart(self._untouched)
        raise StateError(
            f"the state was saved with {counted(task.shards, 'worker')}; to have others read their parts of the "
            f"stream, each needs a copy of the dataset, but a {type(own.dataset).__name__} cannot be copied: continue "
            f"with num_workers={task.shards}"
        )
