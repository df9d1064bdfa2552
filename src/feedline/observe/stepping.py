"""What training steps take: `with loader.step():`, by the host's clock and by a device's own.

Takes: the moments at which a step begins and ends, and at which a batch is asked for and handed over; where there is a
device, something that records its events. Gives: sums for an epoch's meter; the context manager.
Promises: nothing waits for the device: an event is read when the device has reached it, at most `MOST_OPEN` are open,
and an event that fails ends the measuring by events and nothing else. A loop that does not ask pays nothing.
Not its job: what the sums mean (stats, report), which events there are (machine.loaded_torch).

A device runs what the loop tells it to later, and in order. Events divide its time in the order of the loop: the time
between two of them belongs to what the loop did between them. If the device is behind, a batch that the loop waits for
costs it nothing: the two events around `next()` then follow one another at once.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from feedline.messages.progress import clock

if TYPE_CHECKING:
    from feedline.observe.meter import Meter
    from feedline.observe.recording import Recording

MOST_OPEN = 64
"""Events that the device has not reached yet, of sixteen batches or more: CUDA stops a host some 1,000 kernels ahead.
A loop that is further ahead has gaps in what is measured."""
OUTSIDE = (
    "loader.step() is outside of an iteration: this loader has not begun any, in this process. Put it around the "
    "training step, inside `for batch in loader:`, and call it on the loader that the loop reads: a wrapper such as "
    "Accelerate's may read another one (docs/step.md)"
)
STEP, WAIT, OTHER, APART = "step", "wait", "other", "apart"
"""What the time before an event was. `APART`: it was between two epochs, and only the waiting in it counts."""


class Timing(Protocol):
    """Records a device's events (`machine.loaded_torch.CudaTiming`)."""

    def record(self) -> Any:
        """An event that the device will reach after all it was told before; None where there can be none now."""

    def give_back(self, event: Any) -> None:
        """The event is not needed any more."""


class Steps:
    """What one epoch's steps took by the host's clock, without the waiting in them.

    >>> steps = Steps()
    >>> steps.ended(0, 5, given=100); steps.ended(0, 3, given=100)
    >>> steps.until(given=100), steps.until(given=120)  # an epoch's time ends at the latest batch
    (0, 8)
    """

    def __init__(self) -> None:
        self.count = 0
        self._before = self._latest = self._given = 0

    def ended(self, before: int, after: int, given: int) -> None:
        """A step has ended; `given` says when the latest batch was given, and the two how long it took before and after
        that moment."""
        if given != self._given:
            self._before, self._latest, self._given = self._before + self._latest, 0, given
        self._before += before
        self._latest += after

    def until(self, given: int) -> int:
        """The nanoseconds of all steps before the latest batch was given."""
        return self._before + (self._latest if given != self._given else 0)


class DeviceTimes:
    """One epoch's time on the device, in nanoseconds, as far as it has been read."""

    def __init__(self) -> None:
        self.step = self.waiting = self.other = 0
        self.is_new = True
        self.failed = False


class _Mark(NamedTuple):
    kind: str
    """What the time before it was; empty: the event before it is not known."""
    waited: int
    """The nanoseconds that the loop waited since the mark before, if no mark says when."""
    host: int
    """When the host recorded it."""
    event: Any
    times: DeviceTimes
    recording: Recording | None


class DeviceClock:
    """A device's time, between marks that the loop makes."""

    def __init__(self, timing: Timing, failed: Callable[[str], None]) -> None:
        self._timing: Timing | None = timing
        self._failed = failed
        self._open: deque[_Mark] = deque()
        self._reached: Any = None
        self._at = 0
        self._cut = True
        self._asked = self._inside = self._marks_next = self._full = False
        self._lock = threading.Lock()  # another thread may ask for the numbers
        self._owner = os.getpid()
        self._thread = 0

    def asked(self, meter: Meter, recording: Recording | None) -> None:
        """The loop asks for a batch, and `gave` will tell that it has got it."""
        is_first = meter.device is None or meter.device.is_new
        self._cut |= self._asked and not is_first  # there came an error instead of a batch
        self._asked = self._marks_next = True
        outside = meter.steps is not None and not self._inside
        self._mark(OTHER if outside else STEP, meter.starting, meter, recording)

    def gave(self, meter: Meter, recording: Recording | None) -> None:
        """The loop gets its batch."""
        self._asked = False
        self._mark(WAIT, 0, meter, recording)

    def began(self, waited: int, meter: Meter, recording: Recording | None) -> None:
        """A step begins; the loop has waited so long since the last one."""
        self._inside = True
        self._mark(OTHER, waited, meter, recording)

    def ended(self, waited: int, meter: Meter, recording: Recording | None) -> None:
        """It ends; the loop has waited so long in it."""
        self._inside = False
        self._mark(STEP, waited, meter, recording)

    def _mark(self, kind: str, waited: int, meter: Meter, recording: Recording | None) -> None:
        if (times := meter.device) is None:
            times = meter.device = DeviceTimes()
        if self._thread != (thread := threading.get_ident()):  # what is between marks of two loops is nobody's time
            self._thread, self._cut = thread, True
        if times.is_new:
            kind, times.is_new = APART, False
        elif self._marks_next:
            waited = 0  # there are marks where it waited
        timing = self._timing
        if timing is None or self._owner != os.getpid():  # a forked child cannot ask its parent's device
            return
        try:
            event = timing.record()
        except Exception as error:
            self._give_up(error, times)
            return
        if event is None:  # a graph is captured, and reading would spoil it
            self._cut = True
            return
        self.read()
        self._full = len(self._open) >= (MOST_OPEN // 2 if self._full else MOST_OPEN)
        if self._full:  # until half of them were reached, so that those that follow are together again
            timing.give_back(event)
            self._cut = True
            return
        self._open.append(_Mark("" if self._cut else kind, waited, clock(), event, times, recording))
        self._cut = False

    def read(self) -> None:
        """Read the events that the device has reached."""
        timing = self._timing
        if timing is None or self._owner != os.getpid() or not self._lock.acquire(blocking=False):
            return
        try:
            while self._open and self._open[0].event.query():
                self._take(timing, self._open[0])
                self._open.popleft()
        except Exception as error:
            self._give_up(error, None)
        finally:
            self._lock.release()

    def _take(self, timing: Timing, mark: _Mark) -> None:
        if mark.kind:
            took = max(0, round(self._reached.elapsed_time(mark.event) * 1e6))
            self._count(mark, took)
            self._at += took
        else:
            self._at = max(self._at, mark.host)
        if self._reached is not None:
            timing.give_back(self._reached)
        self._reached = mark.event

    def _count(self, mark: _Mark, took: int) -> None:
        # Had the loop not waited, the device would have been told so much earlier what comes next.
        waited = took if mark.kind == WAIT else min(took, mark.waited)
        mark.times.waiting += waited
        if mark.kind == STEP:
            mark.times.step += took - waited
        elif mark.kind == OTHER:
            mark.times.other += took - waited
        if mark.recording is not None:
            mark.recording.on_device(WAIT, self._at, self._at + waited)
            if mark.kind != APART:
                mark.recording.on_device(mark.kind, self._at + waited, self._at + took)

    def _give_up(self, error: Exception, times: DeviceTimes | None) -> None:
        self._timing = None
        for each in (times, *(mark.times for mark in self._open)):
            if each is not None:
                each.failed = True
        self._open.clear()
        with contextlib.suppress(Exception):  # warnings may be errors, and this is no reason to end a training
            self._failed(
                f"the device's events failed ({type(error).__name__}: {error}), so steps are measured by the host's "
                "clock from now on"
            )


class _Open(NamedTuple):
    thread: int
    process: int


class Stepping:
    """The steps of one loader: which one is open, and the device's clock."""

    def __init__(self) -> None:
        self.open: dict[int, _Open] = {}
        self.clock: DeviceClock | None = None

    def enter(self) -> None:
        """A step begins. Steps that overlap would count the same time twice."""
        mine = _Open(threading.get_ident(), os.getpid())
        try:
            theirs = self.open.setdefault(0, mine)
        except BaseException:  # Ctrl-C, after it
            if self.open.get(0) is mine:
                self.leave()
            raise
        if theirs is mine:
            return
        if theirs.process != mine.process:  # this process was forked inside a step of its parent
            self.open[0] = mine
            return
        if theirs.thread == mine.thread:
            raise RuntimeError(
                "loader.step() is inside another step() of the same loader, or one before it was never left: use "
                "`with loader.step():` once around each training step, and do not call __enter__() by hand. If Ctrl-C "
                "came in just that moment: a new iter(loader) begins afresh"
            )
        raise RuntimeError(
            "loader.step() is open in another thread at this moment, and what both take would be counted twice: give "
            "each thread a loader of its own, or put step() into one of them only"
        )

    def leave(self) -> None:
        """It has ended, or a new epoch begins: nothing can be open from before."""
        self.open.clear()


class StepBlock:
    """What `loader.step()` returns: `with loader.step():` measures what is inside as the training step."""

    def __init__(
        self,
        stepping: Stepping,
        latest: Callable[[], Meter | None],
        meters: Iterable[Meter],
        device: Callable[[], tuple[DeviceClock | None, Recording | None]],
    ) -> None:
        self._stepping, self._latest, self._meters, self._device = stepping, latest, meters, device

    def __enter__(self) -> None:
        self._meter = meter = self._latest()
        self._clock, self._recording = device, recording = self._device()
        self._stepping.enter()
        try:  # Ctrl-C here must not leave it open: the loop may be gone on with
            self._waited = 0 if meter is None else meter.waited
            if device is not None and meter is not None:
                device.began(meter.waited_since_mark(), meter, recording)
            self._began = clock()
        except BaseException:
            self._stepping.leave()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stepping.open.clear()  # first, and without a call in Python, so that Ctrl-C hardly ever comes before it
        ended, meter, latest = clock(), self._meter, self._latest()
        if latest is None:
            if error is None:
                raise RuntimeError(OUTSIDE)
            return
        waited = 0
        if meter is not None:
            meter.stepped(self._began, ended, self._waited)
            waited = meter.waited_since_mark()
        if latest is not meter:  # epochs that began inside: the first one, or the next one of forever()
            for each in [one for one in list(self._meters) if one.first_asked >= self._began]:
                each.stepped(self._began, ended, each.starting, is_new=meter is None)
                waited += each.waited_since_mark()
                meter = meter or each
        if self._clock is not None and meter is not None:
            self._clock.ended(waited, meter, self._recording)
        if self._recording is not None:
            self._recording.stepped(self._began, ended)
