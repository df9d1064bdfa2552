"""What is known of each worker on a Ray cluster, and of the machines that have some.

Takes: what Ray and the workers have said. Gives: records. Promises: plain data; nothing here calls Ray.
Not its job: starting and asking them (ray_fleet).
"""

from __future__ import annotations

import math
import time
from typing import Any, NamedTuple

from feedline.engine.ledger import Part
from feedline.messages.progress import PLACE, SETTING_UP, WIDTH
from feedline.workers.ray_cluster import Home
from feedline.workers.ray_worker import Made, Seen, Shared


class ClockOffset:
    """What to add to a machine's clock to get ours: known from calls, to half of the shortest call's time.

    >>> offset = ClockOffset()
    >>> offset.note(sent=1000, began=10, ended=30, received=1040)  # between 990 and 1010
    >>> offset.note(sent=2000, began=1005, ended=1105, received=2130)  # at least 995
    >>> offset.value
    1002
    """

    def __init__(self, is_ours: bool = False) -> None:
        self._low, self._high = (0.0, 0.0) if is_ours else (-math.inf, math.inf)

    def note(self, sent: int, began: int, ended: int, received: int) -> None:
        """A call, by our clock and by theirs. All in nanoseconds."""
        if self._low == self._high == 0.0:
            return
        low, high = max(self._low, sent - began), min(self._high, received - ended)
        if low > high:  # the clocks have drifted apart since
            low, high = sent - began, received - ended
        self._low, self._high = low, high

    @property
    def value(self) -> int:
        """The best guess; 0 before the first call."""
        return int((self._low + self._high) // 2) if math.isfinite(self._low) else 0


class Member:
    """One worker."""

    def __init__(self, number: int, actor: Any) -> None:
        self.number = number
        self.actor = actor
        self.home: Home | None = None
        self.lacks = ""
        """Why Ray has found no place for it, as of the latest look."""
        self.is_started = False
        """Has it been told to set up?"""
        self.is_ready = False
        self.is_leaving = False
        self.began = time.monotonic()
        self.parts: list[Part] = []
        """What it is making now."""
        self.sent = 0
        """When it was given them."""
        self.run = -1
        """The run of the latest part that it was given."""
        self.spent = (0, 0, 0)
        self.memory = (0, 0)
        """Bytes that it uses, and how many of these are its own, as of its latest answer."""
        self.offset = ClockOffset()
        row = [0] * WIDTH
        row[PLACE] = SETTING_UP
        self.seen = Seen(row, 0, "")
        self.asked: float | None = None
        """Since when it has not been said what it does, although that was asked."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"worker {self.number}" + (f" on {self.home.host}" if self.home is not None else "")


class Machine:
    """A machine of the cluster with at least one worker."""

    def __init__(self, keeper: Any) -> None:
        self.keeper = keeper
        self.shared: Shared | None = None
        self.waiting: list[Member] = []
        """Workers there that wait for the keeper."""


class Reply(NamedTuple):
    """Parts that are back; one without an outcome was not made, because its run is over."""

    parts: list[Part]
    made: list[Made]
    worker: Member | None = None
    """None if none of them was made."""


class Ended(NamedTuple):
    """A worker that has ended."""

    worker: Member
    seen: Seen | None
    """What it was doing then, if that is known."""
    reason: str
    parts: list[Part]
    """What it had been given."""
