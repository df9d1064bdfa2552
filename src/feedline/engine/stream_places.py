"""Where the parts of a stream stand, for whoever opens one whose worker has died.

Takes: an epoch's tasks as they are planned, outcomes, deaths. Gives: tasks that say where their part is to be opened;
what becomes of a dead worker's parts, in words.
Promises: a part goes on from a state that is complete; any other is read from where this epoch began, also where the
worker died with nothing in its hands. Workers that may no longer agree on the order serve no further epoch.
Not its job: opening a part, and comparing what is read again (line.stream).
"""

from __future__ import annotations

from typing import Any

from feedline.line.source import again, goes_on
from feedline.messages import Outcome, Task

Record = dict[str, Any]

TAKEN = "A new worker takes its place; no batch is lost."
FROM_STATE = "A new worker takes its place, and goes on where the dataset's state_dict() says that its part stands."
READ_AGAIN = (
    "A new worker takes its place. It reads its part of the stream again from where this epoch began and passes over "
    "what was delivered: no element is lost or comes twice, if the dataset gives the same ones again."
)
BEHIND = (
    " The old one had read earlier epochs: if the order depends on what it kept from them, elements are missing or "
    "come twice in this one."
)
ALL_ANEW = " For the next epoch all workers are started anew, so that they agree on the order."


class StreamPlaces:
    """One epoch's, on so many workers; `is_first`: have they served no other?"""

    def __init__(self, workers: int, is_first: bool) -> None:
        self._workers = max(1, workers)
        self._is_first = is_first
        self._begun: dict[int, tuple[int, Record | None]] = {}  # a part → its worker, where it stood at the beginning
        self._latest: dict[int, Record] = {}  # a part → where it stands after its latest outcome
        self._unopened: set[int] = set()  # parts whose worker has died: the next task is to say where they stand
        self.out_of_step = False
        """Has a worker taken the place of one that had read earlier epochs, or the end of this one?"""

    def note(self, outcome: Outcome) -> None:
        """Somebody has made a batch."""
        if outcome.stream is not None:
            self._latest[outcome.stream[0]] = outcome.stream[1]

    def placed(self, task: Task) -> Task:
        """The task, which says where its part stands if nobody has that open."""
        _, begun = self._begun.setdefault(task.shard, (task.lane % self._workers, task.place))
        if task.shard not in self._unopened:
            return task
        self._unopened.discard(task.shard)
        return task._replace(place=again(begun, self._latest.get(task.shard)))

    def has_ended(self, task: Task) -> bool:
        """Is there nothing left of its part?"""
        return bool(task.shards) and "ended" in self._latest.get(task.shard, ())

    def lost(self, worker: int) -> str:
        """A worker has died: what becomes of its parts."""
        parts = {part: begun or {} for part, (of, begun) in self._begun.items() if of == worker}
        latest = [self._latest.get(part, begun) for part, begun in parts.items()]
        self._unopened |= parts.keys()
        is_behind = not self._is_first or any("ended" in record for record in latest)
        if is_behind and not any("dataset" in record or record.get("of") == "dataset" for record in latest):
            self.out_of_step = True
        return _said(latest, self.out_of_step and not self._is_first) + (ALL_ANEW if self.out_of_step else "")


def _said(records: list[Record], is_behind: bool) -> str:
    unfinished = [record for record in records if "ended" not in record]
    if not all(goes_on(record) for record in unfinished):
        return READ_AGAIN + BEHIND if is_behind else READ_AGAIN
    # A dataset that has one beside its iterator's may count its epochs, and once more now.
    return FROM_STATE if any({"complete", "dataset"} & record.keys() for record in unfinished) else TAKEN
