"""What a loader keeps from one epoch to the next.

Takes: warnings, persistent workers, what befell samples. Gives: the same again, to the next epoch.
Promises: a warning is said once, as if from the line of the user's loop; persistent workers end with their loader, and
never in a forked child of its process.
Not its job: an epoch (loop), beginning one (feed).
"""

from __future__ import annotations

import os
import sys
import threading
import warnings
import weakref
from collections import deque
from collections.abc import Callable
from functools import reduce
from types import FrameType
from typing import Any, Protocol

from feedline.ahead import Ahead
from feedline.collated import Collated
from feedline.messages import Notice
from feedline.mishaps import Mishaps
from feedline.observe.meter import Meter
from feedline.observe.recording import Recording
from feedline.pacing import Pacing
from feedline.recorder import Known, Recorder
from feedline.stats import Chosen, Flow, Stats
from feedline.supervise.memory import MemoryWatch
from feedline.workers.contract import Workers
from feedline.workers.division import Division
from feedline.workers.held_generators import Repeats

KEPT = 100
"""Epochs that are kept one by one."""
_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class Iteration(Protocol):
    """What is asked of an epoch under way (loop.BatchIterator)."""

    def flow(self) -> Flow:
        """How it goes."""

    def processes(self) -> list[tuple[int, int]]:
        """Number and pid of its worker processes."""

    def give_up(self) -> None:
        """Another one takes over its workers."""


class Lasting:
    """One loader's."""

    def __init__(self) -> None:
        self.quarantine: dict[Any, str] = {}
        """Samples that have cost several workers their lives, and how."""
        self.mishaps = Mishaps()
        self.memory = MemoryWatch()
        self.collated = Collated()
        self.division = Division()
        self.ahead = Ahead()
        self.meters: deque[Meter] = deque(maxlen=KEPT)
        self.flow_before = Flow()
        """Of all epochs whose meters are not kept any more."""
        self.kind = ""
        """Of the workers; empty if there are none."""
        self.recorders: list[Recorder] = []
        self.latest: Callable[[], Iteration | None] = lambda: None
        """The epoch begun last, as long as somebody has its iterator."""
        self.pacing: Pacing | None = None
        """With num_workers="auto", of data with indices: how many workers there are."""
        self.chosen: Callable[[], Chosen | None] = lambda: None
        self._repeats = Repeats()
        self._warned: dict[str, object] = {}
        # In the same thread, too, if the garbage collector ends an iteration that is recorded while it is held.
        self._lock = threading.RLock()  # a loader may be read, and asked for its stats, in several threads at once
        self._owner = os.getpid()
        self._workers: Workers | None = None
        self._stop_workers: Callable[[], object] | None = None

    def say(self, message: str, frame: FrameType | None = None) -> None:
        """Warn of something that has happened, which is part of a recording; as if from that frame's loop."""
        if (recording := self.recording) is not None:
            recording.happened(message)
        if frame is None:
            tell(message)
        else:
            tell_of(message, frame)

    def tell_once(self, message: str) -> None:
        """Warn, unless that has been said before."""
        mine = object()
        if self._warned.setdefault(message, mine) is mine:  # in one step: of two threads one says it
            tell(message)

    def heed(self, notice: Notice) -> None:
        """Take in what a worker said beside its batch."""
        if notice.marks and (recording := self.recording) is not None:
            for marks in notice.marks:
                recording.made(marks)
        if notice.warning is not None:
            self.tell_once(notice.warning)
        if notice.ranks:
            self.tell_once(notice.ranks)
        for repeated in self._repeats.take(notice.drawing):
            self.tell_once(repeated)
        if notice.tally is not None and (hint := self.collated.take(notice.tally)) is not None:
            tell(hint)

    def new_meter(self, meter: Meter) -> Meter:
        """The next epoch's."""
        with self._lock:
            if len(self.meters) == KEPT:
                self.flow_before = self.flow_before.plus(self.meters[0].flow())
            self.meters.append(meter)
        if (recording := self.recording) is not None:
            recording.meters.append(meter)
        return meter

    @property
    def recording(self) -> Recording | None:
        """Where to write down what happens, if somebody wants to know."""
        self.recorders = [recorder for recorder in self.recorders if recorder.on]
        return self.recorders[0].recording if self.recorders else None

    def stats(self) -> Stats:
        """How the loader is doing."""
        latest = self.latest()
        workers = self.workers if latest is None else latest
        processes = [] if workers is None else workers.processes()
        ended = not processes and self.kind == "thread"  # those there may have been are none of the workers
        with self._lock:
            before, meters = self.flow_before, list(self.meters)
        epochs = [meter.flow() for meter in meters]
        if latest is not None:
            epochs[-1] = latest.flow()
        return Stats(
            epoch=epochs[-1] if epochs else Flow(),
            total=reduce(Flow.plus, epochs, before),
            epochs=tuple(epochs),
            workers=() if ended else self.memory.now(processes),
            collate=self.collated.stats(),
            errors=self.mishaps.count,
            kind=self.kind,
            chosen=self.chosen(),
        )

    def known(self) -> Known:
        """What a recording does not have."""
        return Known(self.stats(), self.mishaps.samples)

    def write_recordings(self) -> None:
        """An epoch is over: have the files there, whatever becomes of the process."""
        for recorder in self.recorders:
            try:
                if recorder.on:
                    recorder.write()
            except Exception as error:  # a full disk, or a fault of ours: no reason to end a training
                self.tell_once(f"the recording could not be written to {recorder.path}: {error!r}")

    @property
    def workers(self) -> Workers | None:
        """The persistent workers, if there are any."""
        if self._owner != os.getpid():  # a forked child: the workers are the parent's
            self._workers, self._owner = None, os.getpid()
        return self._workers

    def keep(self, workers: Workers) -> None:
        """Have these for all epochs to come; they are ended whatever becomes of the loader."""
        self._workers = workers
        self._stop_workers = weakref.finalize(self, workers.release)

    def drop_workers(self) -> None:
        """End the persistent workers."""
        self._workers = None
        if self._stop_workers is not None:
            self._stop_workers()


def tell(message: str) -> None:
    """Warn, as if from the line of the user's loop."""
    depth, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        depth, frame = depth + 1, frame.f_back
    warnings.warn(message, stacklevel=depth)


def tell_of(message: str, frame: FrameType) -> None:
    """Warn of another thread, as if from the line of its loop. Where warnings are errors, nobody here would see it."""
    at: FrameType | None = frame
    while at is not None and not at.f_code.co_filename.startswith(_PACKAGE):  # the dataset
        at = at.f_back
    while at is not None and at.f_code.co_filename.startswith(_PACKAGE):
        at = at.f_back
    at = at or frame
    try:
        warnings.warn_explicit(message, UserWarning, at.f_code.co_filename, at.f_lineno)
    except UserWarning:
        print(f"UserWarning: {message}", file=sys.stderr)
