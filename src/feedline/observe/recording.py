"""A record of a run: who made which batch when, and when the loop waited for it.

Takes: marks from workers, the moments of the loop. Gives: plain records, for the trace and the report.
Promises: bounded: after `MOST` batches, later ones are only counted; after `SINGLE` samples and labels, only their
batches are kept. Only indices and labels of the data are kept.
Not its job: files (trace, report). It costs nothing when nobody records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from feedline.messages.marks import Marks
from feedline.messages.progress import COLLATING, clock
from feedline.observe.meter import Meter

MOST = 20_000
"""Batches: a trace of this many, with 32 samples each, is a file of about 100 MB, which Perfetto still opens."""
SINGLE = 32 * MOST
"""Samples with times of their own: 100 batches of 4,096 took 400 MB to keep and write; 20,000 would end a process."""
INDICES = 64
"""Indices kept of a batch without times per sample: as many as a page or a trace shows."""
LONGEST = 40
"""Characters kept of a label that is a text."""
LABELLED = ("label", "labels", "target", "targets", "y", "class", "classes")


class Slots(NamedTuple):
    """The number of slots for batches, by who uses them."""

    working: int = 0
    """Slots that a worker writes to, or whose batch waits to be delivered."""
    held: int = 0
    """Slots of which the user has the batch, or a part of it."""
    free: int = 0


class Delivered(NamedTuple):
    """One batch, as the loop saw it."""

    run: int
    """The iteration that gave it: two iterations may have the same epoch number."""
    epoch: int
    seq: int
    size: int
    asked: int
    """When the loop asked for a batch…"""
    gave: int
    """…and when it got this one."""
    queued: int
    """The number of batches that were ready when the loop asked."""
    slots: Slots
    labels: tuple[tuple[Any, int], ...] | None
    """(label, count) pairs of the batch, if its labels could be recognised."""


class Stretch(NamedTuple):
    """A time of the loop's or the device's, and what it was."""

    kind: str
    start: int
    end: int


class Event(NamedTuple):
    """Something unusual, in words."""

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
        """The meters of the recorded epochs."""
        self.steps: list[Stretch] = []
        """What was inside `loader.step()`…"""
        self.device: list[Stretch] = []
        """…and the device's time, laid one after the other from where the loop recorded the first event."""
        self.left_out = 0
        """The number of batches beyond `MOST`."""
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
        """The user has got a batch."""
        gave = clock()
        if len(self.delivered) >= MOST:
            self.left_out += 1
            return
        labels = labels_in(batch, size) if self._labels < SINGLE else None
        self._labels += len(labels or ())
        self.delivered.append(Delivered(run, epoch, seq, size, asked, gave, queued, slots, labels))

    def stepped(self, start: int, end: int) -> None:
        """The loop has left `loader.step()`."""
        if len(self.steps) < MOST:
            self.steps.append(Stretch("step", start, end))

    def on_device(self, kind: str, start: int, end: int) -> None:
        """The device has been there."""
        if start < end and len(self.device) < 4 * MOST:
            self.device.append(Stretch(kind, start, end))

    def happened(self, text: str) -> None:
        """The user was warned of something."""
        self.events.append(Event(clock(), text))


def _as_a_whole(marks: Marks) -> Marks:
    """The batch without its samples: when it was collated, and its first indices."""
    kept = [(place, time) for place, time in zip(marks.places, marks.times, strict=True) if place < 0]
    places, times = zip(*kept, strict=True) if kept else ((), ())
    shown = None if marks.indices is None else marks.indices[:INDICES]
    left = len(marks.indices or ()) - len(shown or ())
    return marks._replace(places=places, times=times, indices=shown, indices_left=left)


def collating_since(marks: Marks) -> int:
    """When collating began; the end if the batch was gathered at once."""
    return marks.times[marks.places.index(COLLATING)] if COLLATING in marks.places else marks.made


def sample_times(marks: Marks) -> list[tuple[int, int, int]]:
    """(place in the batch, began, ended) of each sample that was read by itself."""
    ends = (*marks.times[1:], marks.made)[: len(marks.times)]  # the end of a stream has no places
    return [
        (place, start, end) for place, start, end in zip(marks.places, marks.times, ends, strict=True) if place >= 0
    ]


def labels_in(batch: Any, size: int) -> tuple[tuple[Any, int], ...] | None:
    """How often each label is in a batch: labels are a field with such a name, or the last field of a tuple or list.

    >>> labels_in((np.zeros((4, 2)), np.array([0, 1, 1, 7])), 4)
    ((0, 1), (1, 2), (7, 1))
    """
    try:
        return _labels_in(batch, size)
    except Exception:  # a tensor on another device, a user's container that fails when it is searched
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
