"""Decides what to do about workers, from facts alone.

Takes: where workers died with a task, how long the loop has waited, the user's options. Gives: verdicts, steps.
Promises: no process, clock or memory is accessed here; times are arguments.
Not its job: gathering the facts (workers), carrying a verdict out (engine.recovery, engine.waiting).
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

from feedline.messages.progress import AT_ONCE, COLLATING, IDLE, INITIALISING, SENDING, SETTING_UP
from feedline.supervise.watch import Standing

START_SECONDS = 30.0
"""A forked worker that takes longer to start hangs: a fork takes milliseconds (benchmarks/first_batch.py). Workers
started in other ways import modules, which may take any time: they are only reported."""
STACK_SECONDS = 0.25
"""Stacks are asked for this long before they are needed: a worker that can run writes its stack in a millisecond."""


class What(enum.Enum):
    """What to do with a task whose worker died."""

    RETRY = "give it to another worker as it is"
    NARROW = "give it to another worker, which reads its samples one by one"
    SAMPLE = "one sample is to blame"
    BATCH = "the batch is to blame; which sample is not known"


class Verdict(NamedTuple):
    """The decision about a task, and the place of the sample to blame if there is one."""

    what: What
    place: int = -1


def judge(places: Sequence[int], size: int, max_deaths: int, narrowed: bool) -> Verdict:
    """Decide about a task from the places at which workers have died with it so far, in order.

    >>> judge([3], size=8, max_deaths=2, narrowed=False).what.name
    'RETRY'
    >>> judge([3, 3], size=8, max_deaths=2, narrowed=False)
    Verdict(what=<What.SAMPLE: 'one sample is to blame'>, place=3)
    >>> judge([AT_ONCE, AT_ONCE], size=8, max_deaths=2, narrowed=False).what.name
    'NARROW'
    >>> judge([AT_ONCE, AT_ONCE, 5], size=8, max_deaths=2, narrowed=True).place
    5
    """
    latest = places[-1]
    if latest == AT_ONCE and size == 1:
        places = [0 if place == AT_ONCE else place for place in places]
        latest = 0
    if latest >= 0 and (narrowed or places.count(latest) >= max_deaths):
        return Verdict(What.SAMPLE, latest)
    if latest == AT_ONCE and not narrowed and places.count(AT_ONCE) >= max_deaths:
        return Verdict(What.NARROW)
    if latest in (COLLATING, SENDING) and places.count(latest) >= max_deaths:
        return Verdict(What.BATCH)
    # Each death was at a different place: memory is short, or an earlier sample has damaged it.
    return Verdict(What.BATCH if len(places) >= 2 * max_deaths + 1 else What.RETRY)


class Step(enum.Enum):
    """What to do next while the loop waits for a batch."""

    WAIT = "nothing yet"
    ASK = "have the workers write down their stacks"
    TELL = "say where they are"
    LIMIT = "the time is up: raise, or restart workers that are stuck"


class Patience:
    """The schedule of one wait: what is due, and when.

    >>> patience = Patience(began=0, warn_after=30, limit=0)
    >>> patience.due, patience.step(29.0), patience.step(29.8), patience.step(30.1)
    (29.75, <Step.WAIT: 'nothing yet'>, <Step.ASK: ...>, <Step.TELL: 'say where they are'>)
    >>> patience.due  # again after twice the time
    89.85
    """

    def __init__(self, began: float, warn_after: float, limit: float) -> None:
        self.began = began
        self._warn_after = warn_after or math.inf
        self._warn_at = began + self._warn_after
        self._limit_at = began + (limit or math.inf)
        self._asked = False
        self._since = began

    @property
    def due(self) -> float:
        """When the next step is due; infinite if never."""
        moment = min(self._warn_at, self._limit_at)
        if self._asked or math.isinf(moment):
            return moment
        return moment - min(STACK_SECONDS, (moment - self._since) / 2)

    def step(self, now: float) -> Step:
        """The step to take now."""
        if now < self.due:
            return Step.WAIT
        if not self._asked:
            self._asked = True
            return Step.ASK
        self._asked, self._since = False, now
        if self._limit_at <= self._warn_at:
            self._limit_at = math.inf
            return Step.LIMIT
        self.told(now)
        return Step.TELL

    def told(self, now: float) -> None:
        """The user was warned: the next warning comes after twice the time."""
        self._warn_after *= 2
        self._warn_at = now + self._warn_after

    def put_off(self, seconds: float) -> None:
        """No process could run for this long, including ours (Ctrl-Z, a sleeping machine): do not count that time."""
        self.began += seconds
        self._since += seconds
        self._warn_at += seconds
        self._limit_at += seconds

    def limit_again(self, moment: float) -> None:
        """Have the limit due again at that moment."""
        self._limit_at = moment


def stuck(standings: Sequence[Standing], seconds: float) -> list[Standing]:
    """Workers that have been at the same place in user code, or stopped, for at least this long."""
    return [at for at in standings if at.seconds >= seconds and (_in_users_code(at) or at.state)]


def until_stuck(standings: Sequence[Standing], seconds: float) -> float:
    """In how many seconds the next worker may count as stuck."""
    busy = [at.seconds for at in standings if _in_users_code(at) and at.seconds < seconds]
    return seconds - max(busy, default=0.0)


def _in_users_code(at: Standing) -> bool:
    return at.place == INITIALISING or (at.task is not None and at.place not in (SETTING_UP, IDLE))


def start_due(standings: Sequence[Standing]) -> float:
    """In how many seconds the first starting worker should be ready; infinite if all are ready."""
    starting = [at.seconds for at in standings if at.place == SETTING_UP]
    return max(0.0, START_SECONDS - max(starting)) if starting else math.inf


def late_starters(standings: Sequence[Standing]) -> list[Standing]:
    """Starting workers that should have been ready by now."""
    return [at for at in standings if at.place == SETTING_UP and at.seconds >= START_SECONDS]
