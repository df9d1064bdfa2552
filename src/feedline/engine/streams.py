"""What the engine knows about a stream: where it ends, whether all workers read the same, and where its parts are.

Takes: an epoch's tasks as they are planned; outcomes, when they arrive and again when they are delivered; deaths.
Gives: errors; warnings at the end (a wrong length, a rank that got no elements). For a part whose worker has died:
tasks that say where to open it again, and a sentence that says so to the user.
Promises: if workers read a stream in different ways, or find different ends, that is an error: no element is lost
silently. A dead worker's part continues from the state that its latest outcome reported, if that state is complete;
otherwise it is read again from where this epoch began. This is so even if the worker died without a task. Workers that
may disagree on the order serve no further epoch.
Not its job: reading a stream, opening a part, comparing what is read again (reading.stream_reader), which tasks are
left (plan).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from feedline.errors import StateError
from feedline.errors.counting import counted
from feedline.messages.outcome import Outcome
from feedline.messages.task import Task
from feedline.options import Options
from feedline.order.plan import Tasks
from feedline.order.rank_turns import OTHER_RANKS
from feedline.reading.stream_source import again, goes_on
from feedline.reading.stream_words import DISAGREE, ENDED_BY, FEWER, UNEQUAL
from feedline.resume.passed import Passed

NOTHING_HERE = (
    "rank {rank} of {ranks} got no element of the IterableDataset, which ranks='shard' divides among ranks: {why}. A "
    "step of distributed training waits for all ranks, so it would wait for this one forever. Divide the data more "
    "finely, or let every rank read all of it (ranks='all')"
)
NO_SHARE = (
    "it picks its own share, and had none for this rank's workers. It may have fewer files or shards than there "
    "are workers on all ranks ({shards})"
)
FEW_BATCHES = "it has fewer batches than there are ranks"


class StreamEnds:
    """Where the stream ends in one epoch, and whether workers agree on it."""

    def __init__(self, options: Options, passed: Passed) -> None:
        self._options = options
        self._passed = passed
        self._samples = passed.place.samples
        self._read_whole: set[bool] = set()
        self._last, self._latest = sys.maxsize, -1  # if each worker reads it whole: last batch, latest batch seen
        self._ended_by = ""
        self._counts: set[int] = set()  # if each worker reads it whole: how many elements they found

    def note(self, outcome: Outcome, tasks: Tasks) -> None:
        """An outcome has arrived."""
        if outcome.ended:
            tasks.ended(outcome.seq)
        if outcome.whole is not None:
            if not outcome.whole and self._passed.others is not None:
                ranks, rank = self._passed.others
                raise StateError(OTHER_RANKS.format(ranks=ranks, rank=rank))
            self._read_whole.add(outcome.whole)
            if len(self._read_whole) > 1:
                raise RuntimeError(DISAGREE)

    def left(self, outcome: Outcome) -> None:
        """An outcome is delivered."""
        if True in self._read_whole:
            self._check(outcome)
        self._samples += outcome.size + outcome.dropped
        if self._options.error_policy.on_error != "raise":
            self._samples += len(outcome.bad)

    def _check(self, outcome: Outcome) -> None:
        """Every worker reads this stream whole, so no batch may come after another worker's last one, and all must find
        the same number of elements."""
        if outcome.ended:
            self._last = min(self._last, outcome.seq)
            if outcome.notice is not None and outcome.notice.ended_by:
                self._ended_by = outcome.notice.ended_by
        if outcome.size:
            self._latest = max(self._latest, outcome.seq)
        count = -1 if outcome.notice is None else outcome.notice.elements
        if count >= 0:
            self._counts.add(count)
        if self._latest > self._last or len(self._counts) > 1:
            raise RuntimeError(ENDED_BY.format(error=self._ended_by) if self._ended_by else UNEQUAL)

    def warnings(self) -> Iterator[str]:
        """Warnings for the user at the end of the epoch."""
        for warning in (self._nothing_here(), self._wrong_length()):
            if warning is not None:
                yield warning

    def _nothing_here(self) -> str | None:
        ranks, rank = self._passed.place.ranks
        if ranks == 1 or self._samples:  # `_samples` also counts those before a resume
            return None
        why = FEW_BATCHES if True in self._read_whole else NO_SHARE.format(shards=self._passed.shards)
        return NOTHING_HERE.format(rank=rank, ranks=ranks, why=why)

    def _wrong_length(self) -> str | None:
        """The warning about a dataset whose `__len__` is wrong."""
        options, passed = self._options, self._passed
        if passed.is_shared:
            return None  # this rank does not know how many samples the others had
        short_batches = (options.batch_size or 1) * max(1, passed.shards) if options.drop_last else 0
        if self._samples + short_batches < passed.total:
            return FEWER.format(now=self._samples, then=passed.total, epoch=passed.epoch)
        try:
            said = len(options.dataset)
        except Exception:  # it has no length, or `__len__` raises
            return None
        if said - short_batches < self._samples <= said or self._samples == said:
            return None
        return (
            f"the IterableDataset's __len__ says {said}, but it gave {counted(self._samples, 'element')}, so "
            "len(loader) is wrong, too; make __len__ return the true count, or remove it"
        )


Record = dict[str, Any]

TAKEN = "A new worker takes its place; no batch is lost."
FROM_STATE = "A new worker takes its place, and continues where the dataset's state_dict() says that its part is."
READ_AGAIN = (
    "A new worker takes its place. It reads its part of the stream again from where this epoch began and skips what "
    "was delivered: no element is lost or comes twice, if the dataset gives the same elements again."
)
BEHIND = (
    " The old worker had read earlier epochs: if the order depends on what it kept from them, elements are missing or "
    "come twice in this epoch."
)
ALL_RESTARTED = " For the next epoch all workers are started again, so that they agree on the order."


class StreamPlaces:
    """Where each part of the stream is in one epoch, on this many workers; `is_first`: is it their first epoch?"""

    def __init__(self, workers: int, is_first: bool) -> None:
        self._workers = max(1, workers)
        self._is_first = is_first
        self._begun: dict[int, tuple[int, Record | None]] = {}  # a part → its worker, where it was at the beginning
        self._latest: dict[int, Record] = {}  # a part → where it is after its latest outcome
        self._unopened: set[int] = set()  # parts whose worker has died: the next task says where they are
        self.out_of_step = False
        """Has a new worker replaced one that had read earlier epochs, or the end of this one? Then workers may disagree
        on the order of later epochs, unless the dataset has a state."""

    def note(self, outcome: Outcome) -> None:
        """A worker has made a batch."""
        if outcome.stream is not None:
            self._latest[outcome.stream[0]] = outcome.stream[1]

    def placed(self, task: Task) -> Task:
        """The task; it says where its part is if no worker has that part open."""
        _, begun = self._begun.setdefault(task.shard, (task.lane % self._workers, task.place))
        if task.shard not in self._unopened:
            return task
        self._unopened.discard(task.shard)
        return task._replace(place=again(begun, self._latest.get(task.shard)))

    def has_ended(self, task: Task) -> bool:
        """Has the part of the stream that this task reads ended?"""
        return bool(task.shards) and "ended" in self._latest.get(task.shard, ())

    def lost(self, worker: int) -> str:
        """A worker has died. Returns a sentence about what happens to its parts."""
        parts = {part: begun or {} for part, (of, begun) in self._begun.items() if of == worker}
        latest = [self._latest.get(part, begun) for part, begun in parts.items()]
        self._unopened |= parts.keys()
        is_behind = not self._is_first or any("ended" in record for record in latest)
        if is_behind and not any("dataset" in record or record.get("of") == "dataset" for record in latest):
            self.out_of_step = True
        return _said(latest, self.out_of_step and not self._is_first) + (ALL_RESTARTED if self.out_of_step else "")


def _said(records: list[Record], is_behind: bool) -> str:
    unfinished = [record for record in records if "ended" not in record]
    if not all(goes_on(record) for record in unfinished):
        return READ_AGAIN + BEHIND if is_behind else READ_AGAIN
    # A dataset with a state of its own, beside its iterator's, may count epochs, and it counts one more now.
    return FROM_STATE if any({"complete", "dataset"} & record.keys() for record in unfinished) else TAKEN
