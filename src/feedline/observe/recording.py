"""A run, written down: who made which batch when, and when the loop waited for it.

Takes: marks of workers, the moments of the loop. Gives: plain records, for the trace and the report.
Promises: bounded (`MOST` batches; later ones are counted and left out); nothing is kept of the data but indices and
labels.
Not its job: files (trace, report), what it costs when nobody records (nothing).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from feedline.observe.marks import Marks
from feedline.observe.meter import Meter
from feedline.progress import COLLATING, clock

MOST = 20_000
"""Batches: a trace of so many, of 32 samples each, is a file of about 100 MB, which Perfetto still opens."""
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
    labels: tuple[tuple[int, int], ...] | None
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

    def made(self, marks: Marks) -> None:
        """A worker has made a batch."""
        if len(self.marks) < MOST:
            self.marks.append(marks)

    def gave(self, epoch: int, seq: int, size: int, asked: int, queued: int, slots: Slots, batch: Any) -> None:
        """The user has a batch."""
        if len(self.delivered) >= MOST:
            self.left_out += 1
            return
        self.delivered.append(Delivered(epoch, seq, size, asked, clock(), queued, slots, labels_in(batch, size)))

    def happened(self, text: str) -> None:
        """Something the user was warned of."""
        self.events.append(Event(clock(), text))


def collating_since(marks: Marks) -> int:
    """When its samples began to be made a batch; the end if they were gathered at once."""
    return marks.times[marks.places.index(COLLATING)] if COLLATING in marks.places else marks.made


def sample_times(marks: Marks) -> list[tuple[int, int, int]]:
    """(place in the batch, began, ended) of each sample that was read by itself."""
    ends = (*marks.times[1:], marks.made)
    return [
        (place, start, end) for place, start, end in zip(marks.places, marks.times, ends, strict=True) if place >= 0
    ]


def labels_in(batch: Any, size: int) -> tuple[tuple[int, int], ...] | None:
    """How often each label is in a batch: of a field named like one, or of the last one of a tuple or list.

    >>> labels_in((np.zeros((4, 2)), np.array([0, 1, 1, 7])), 4)
    ((0, 1), (1, 2), (7, 1))
    """
    if isinstance(batch, Mapping):
        found = next((batch[name] for name in LABELLED if name in batch), None)
    elif isinstance(batch, (tuple, list)) and len(batch) > 1:
        found = batch[-1]
    else:
        return None
    dtype = str(getattr(found, "dtype", ""))
    if "int" not in dtype and "bool" not in dtype:
        return None
    try:
        values = np.asarray(found)
    except Exception:  # a tensor of another device, say
        return None
    if values.shape != (size,):
        return None
    labels, counts = np.unique(values, return_counts=True)
    return tuple(zip(labels.tolist(), counts.tolist(), strict=True))
