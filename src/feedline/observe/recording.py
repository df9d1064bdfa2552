"""A run, written down: who made which batch when, and when the loop waited for it.

Takes: marks of workers, the moments of the loop. Gives: plain records, for the trace and the report.
Promises: bounded (`MOST` batches, later ones are counted and left out; `SINGLE` samples and labels, of later ones only
their batch is kept); nothing is kept of the data but indices and labels.
Not its job: files (trace, report), what it costs when nobody records (nothing).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from feedline.messages.marks import Marks
from feedline.messages.progress import COLLATING, clock
from feedline.observe.meter import Meter

MOST = 20_000
"""Batches: a trace of so many, of 32 samples each, is a file of about 100 MB, which Perfetto still opens."""
SINGLE = 32 * MOST
"""Samples whose own times are kept: 100 batches of 4,096 took 400 MB to keep and write; 20,000 would end a process."""
INDICES = 64
"""Of a batch whose samples are not kept one by one: as many as a page or a trace shows."""
LONGEST = 40
"""Letters of a label that is a text."""
LABELLED = ("label", "labels", "target", "targets", "y", "class", "classes")


class Slots(NamedTuple):
    """How many places for batches there are, by who has them."""

    working: int = 0
    """A worker writes there, or it waits to be delivered."""
    held: int = 0
    """The user has (part of) the batch."""
    free: int = 0


class Delivered(NamedTuple):
    """One batch, as the loop saw it."""

    run: int
    """Which iteration gave it: two may have the same epoch's number."""
    epoch: int
    seq: int
    size: int
    asked: int
    """When the loop wanted a batch…"""
    gave: int
    """…and when it had this one."""
    queued: int
    """Batches that were ready when it asked."""
    slots: Slots
    labels: tuple[tuple[Any, int], ...] | None
    """(label, how many) of the batch, where it has labels that can be recognised."""


class Event(NamedTuple):
    """Something out of the ordinary, in words."""

    time: int
    text: str


class Recording:
    """What has been recorded so far."""

    def __init__(self) -> None:
        self.began = clock()
        self.marks: list[Marks] = []
        self.delivered: list[Delivered] = []
        self.events: list[Event] = []
        self.meters: list[Meter] = []
        """Those of the epochs that are recorded."""
        self.left_out = 0
        """Batches beyond `MOST`."""
        self._single = 0
        self._labels = 0

    def made(self, marks: Marks) -> None:
        """A worker has made a batch."""
        if len(self.marks) < MOST:
            self._single += max(len(marks.places), len(marks.indices or ()))
            self.marks.append(marks if self._single <= SINGLE else _as_a_whole(marks))

    def gave(
        self, run: int, epoch: int, seq: int, size: int, asked: int, queued: int, slots: Slots, batch: Any
    ) -> None:
        """The user has a batch."""
        gave = clock()
        if len(self.delivered) >= MOST:
            self.left_out += 1
            return
        labels = labels_in(batch, size) if self._labels < SINGLE else None
        self._labels += len(labels or ())
        self.delivered.append(Delivered(run, epoch, seq, size, asked, gave, queued, slots, labels))

    def happened(self, text: str) -> None:
        """Something the user was warned of."""
        self.events.append(Event(clock(), text))


def _as_a_whole(marks: Marks) -> Marks:
    """Without its samples: when it was collated, and its first indices."""
    kept = [(place, time) for place, time in zip(marks.places, marks.times, strict=True) if place < 0]
    places, times = zip(*kept, strict=True) if kept else ((), ())
    shown = None if marks.indices is None else marks.indices[:INDICES]
    left = len(marks.indices or ()) - len(shown or ())
    return marks._replace(places=places, times=times, indices=shown, indices_left=left)


def collating_since(marks: Marks) -> int:
    """When its samples began to be made a batch; the end if they were gathered at once."""
    return marks.times[marks.places.index(COLLATING)] if COLLATING in marks.places else marks.made


def sample_times(marks: Marks) -> list[tuple[int, int, int]]:
    """(place in the batch, began, ended) of each sample that was read by itself."""
    ends = (*marks.times[1:], marks.made)[: len(marks.times)]  # a stream that was over has no places
    return [
        (place, start, end) for place, start, end in zip(marks.places, marks.times, ends, strict=True) if place >= 0
    ]


def labels_in(batch: Any, size: int) -> tuple[tuple[Any, int], ...] | None:
    """How often each label is in a batch: of a field named like one, or of the last one of a tuple or list.

    >>> labels_in((np.zeros((4, 2)), np.array([0, 1, 1, 7])), 4)
    ((0, 1), (1, 2), (7, 1))
    """
    try:
        return _labels_in(batch, size)
    except Exception:  # a tensor of another device, a container of the user's that fails when it is looked through
        return None


def _labels_in(batch: Any, size: int) -> tuple[tuple[Any, int], ...] | None:
    if isinstance(batch, Mapping):
        found = next((batch[name] for name in LABELLED if name in batch), None)
    elif isinstance(batch, (tuple, list)) and len(batch) > 1:
        found = batch[-1]
    else:
        return None
    if isinstance(found, (list, tuple)) and found and all(isinstance(each, str) for each in found):
        found = np.array([each[:LONGEST] for each in found])  # as texts are collated
    dtype = str(getattr(found, "dtype", ""))
    if "int" not in dtype and "bool" not in dtype and not dtype.startswith("<U"):
        return None
    values = np.asarray(found)
    if values.shape != (size,):
        return None
    labels, counts = np.unique(values, return_counts=True)
    return tuple(zip(labels.tolist(), counts.tolist(), strict=True))
