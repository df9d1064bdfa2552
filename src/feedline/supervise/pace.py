"""Decides how many workers and how many prefetched batches there are, from measurements.

Takes: facts: measurements of some batches (`WorkerWindow`), and what the machine still has (`Means`). Gives: the
`Setting` to continue with, and the reason in words.
Promises: one change at a time, and each is kept only if it helped; a setting that did not help is not tried again until
the facts change; workers and batches stay within the memory budget; while the facts stay the same, it settles.
Not its job: measuring, and starting or ending workers (engine.scaling).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import ceil, hypot
from typing import NamedTuple

from feedline.errors.counting import counted
from feedline.observe.window import LITTLE_WAITING, Setting, Window

GAIN = 0.05
"""A change must save this share of the time to be kept; less is noise (benchmarks/auto_workers.py)."""
MARGIN = 1.25
"""Have this many times the workers that are needed on average, because batches take different times."""
NEWS = 1.3
"""If a batch takes this many times longer (or shorter) than when the setting was settled, that is news: try again."""
PATIENCE, LONGEST_PATIENCE, QUIET = 4, 32, 64
"""How many windows in a row must bring news before a new try: first 4, then twice as many each time, at most 32; 4
again after 64 windows without news."""
MOST_ERROR = 0.3
"""The most that the error of a window counts, so that a change that halves the time is always noticed and kept."""
HALF = 0.5
"""This share of the free memory may go to new workers and batches, here and in `feedline tune`."""
LEAST_FREE = 0.05
"""If less than this share of the memory limit is left, fewer batches are prefetched, or workers are dismissed."""
IDLE = 0.8
"""Workers that are busy for less than this share of their time wait for something, for example for a free place."""
FULL = 0.9
"""If there is a worker for each CPU and this share of the CPUs is in use, more workers would only take turns. (JPEG on
two cores, benchmarks/auto_workers.py: 4 workers give a tenth less than 2, which a noisy trial did not show.)"""
MOST_AHEAD = 8
"""The most prefetched batches for each worker, here and in `feedline tune`."""


@dataclass(frozen=True)
class WorkerWindow(Window):
    """A window, and what the workers did meanwhile."""

    work: float = 0.0
    """Seconds that workers, or without them the loop, took to make the batches."""
    utilisation: float = 1.0
    """The share of their time that workers worked."""
    cpu_utilisation: float = 0.0
    """The share of our CPUs that we used; 0 if that is not known."""
    error: float = 0.0
    """The standard error of `seconds_per_batch`, as a share of it."""

    @property
    def need(self) -> int:
        """How many workers would keep the loop busy, from the time a batch takes."""
        return ceil(min(1e6, MARGIN * self.work / max(1, self.batches) / max(self.step, 1e-9)))

    def telling(self, other: WorkerWindow) -> float:
        """By what share the times of a batch must differ in the two windows to mean something."""
        return max(GAIN, min(MOST_ERROR, 2 * hypot(self.error, other.error)))


class Means(NamedTuple):
    """What the machine has."""

    cpus: int
    free: int | None = None
    """Bytes; None if not known."""
    limit: int | None = None
    worker: int = 0
    """Bytes that one more worker takes."""
    batch: int = 0
    """Bytes that one more batch takes."""

    @property
    def short(self) -> bool:
        """Is there hardly any memory left?"""
        return self.free is not None and self.limit is not None and self.free < LEAST_FREE * self.limit

    def room_for(self, bytes_each: int) -> int:
        """How many more objects of that size the memory budget allows."""
        if self.free is None:
            return 1 << 30
        spare = min(HALF * self.free, self.free - 2 * LEAST_FREE * (self.limit or 0))
        return int(max(0.0, spare) // max(1, bytes_each))


MORE, LESS, BACK = "more", "less", "back"
"""Why a setting is tried: to be faster; to use fewer workers; because another one was no better."""


@dataclass(frozen=True)
class _Trial:
    """Why the present setting is tried, and the setting and measurements before it."""

    why: str
    other: Setting
    seen: WorkerWindow


class Pace:
    """Decides for one loader. `setting` and `reason` are the present ones.

    >>> pace = Pace(Setting(1, 2), most=8)
    >>> pace.judge(WorkerWindow(batches=100, seconds=4.0, waited=3.0, work=4.0), Means(cpus=2)).workers
    2
    >>> pace.reason
    'with 1 worker the loop waited 75 % of its time'
    """

    def __init__(self, start: Setting, most: int, may_prefetch: bool = True) -> None:
        self.setting = start
        self.reason = "not measured yet"
        self.settled = False
        self._most = most
        self._may_prefetch = may_prefetch
        self._trial: _Trial | None = None
        self._refuted: dict[Setting, str] = {}
        self._seen: set[Setting] = set()
        self._reference: WorkerWindow | None = None
        self._news = 0
        self._patience = PATIENCE
        self._quiet = 0

    def judge(self, seen: WorkerWindow, means: Means) -> Setting:
        """The setting to use after that window."""
        if means.short and (less := self._with_less_memory()) is not None:
            return self._be(less, None, f"memory is short: {_mb(means.free)} of {_mb(means.limit)} left")
        trial, self._trial = self._trial, None
        if trial is not None and (back := self._after(trial, seen)) is not None:
            return back
        if self.settled and not self._is_news(seen):
            return self.setting
        return self._next(seen, means)

    def refuse(self, there_are: int, why: str) -> None:
        """The wanted workers cannot be started: keep those that are there, and never ask for more."""
        self._most = max(1, there_are)
        self.setting = self.setting._replace(workers=there_are)
        self._trial = None
        self._settle(None, why)

    def _be(self, setting: Setting, trial: _Trial | None, reason: str) -> Setting:
        self.setting, self._trial, self.reason = setting, trial, reason
        self.settled = False
        return setting

    def _with_less_memory(self) -> Setting | None:
        workers, prefetch = self.setting.workers, self.setting.prefetch
        if prefetch > 1 and self._may_prefetch:
            return self.setting._replace(prefetch=prefetch - 1)
        if workers <= 1:
            return None
        self._most = workers - ceil(workers / 4)  # forever: the same number would be too much again
        return self.setting._replace(workers=self._most)

    def _after(self, trial: _Trial, seen: WorkerWindow) -> Setting | None:
        """The setting to return to if the trial did not help; None if it did."""
        before, much = trial.seen.seconds_per_batch, seen.telling(trial.seen)
        if trial.why == BACK:
            if seen.seconds_per_batch * (1 - much) ** 2 <= before:
                return None
            self._refuted.pop(trial.other)
            there = self._named(trial.other, self.setting)
            return self._be(trial.other, None, f"on a second look {there} were better")
        is_faster = seen.seconds_per_batch <= before * (1 - much) or (seen.keeps_up and not trial.seen.keeps_up)
        if seen.keeps_up if trial.why == LESS else is_faster:
            return None
        self._seen.add(self.setting)
        self._refuted[self.setting] = _no_better(self._named(self.setting, trial.other))
        tried, self.setting = self.setting, trial.other
        return self._be(trial.other, _Trial(BACK, tried, seen), self._refuted[tried])

    def _named(self, setting: Setting, beside: Setting) -> str:
        if setting.workers != beside.workers:
            return counted(setting.workers, "worker")
        return f"{counted(setting.prefetch, 'batch')} ahead"

    def _is_news(self, seen: WorkerWindow) -> bool:
        was = self._reference
        if was is None:
            self._reference = seen
            return False
        much = NEWS * (1 + seen.telling(was) - GAIN)
        other_time = not 1 / much < seen.seconds_per_batch / max(was.seconds_per_batch, 1e-9) < much
        # A shorter step may not show in the time of a batch. So waiting is checked too: it may grow by a tenth at most.
        waits = seen.waiting_share > 2 * LITTLE_WAITING + (0.0 if was.keeps_up else was.waiting_share)
        if not (other_time or waits):
            self._news, self._quiet = 0, self._quiet + 1
            if self._quiet >= QUIET:
                self._patience = PATIENCE
            return False
        self._news += 1
        if self._news < self._patience:
            return False
        self._news = self._quiet = 0
        self._patience = min(2 * self._patience, LONGEST_PATIENCE)
        self._refuted, self._seen = {}, set()
        return True

    def _next(self, seen: WorkerWindow, means: Means) -> Setting:
        self._seen.add(self.setting)
        for setting, why, reason in self._candidates(seen, means):
            if setting not in self._seen:  # else two equally good settings would alternate
                return self._be(setting, _Trial(why, self.setting, seen), reason)
        self._settle(seen, self._why_it_stays(seen, means))
        return self.setting

    def _settle(self, seen: WorkerWindow | None, reason: str) -> None:
        self.settled, self.reason, self._reference = True, reason, seen
        self._news = 0

    def _candidates(self, seen: WorkerWindow, means: Means) -> Iterator[tuple[Setting, str, str]]:
        """Settings that could be better, the most promising first."""
        workers = self.setting.workers
        if seen.keeps_up:
            fewer = max(1, seen.need)
            if fewer <= 0.75 * workers:
                yield self.setting._replace(workers=fewer), LESS, f"{fewer} can make a batch for every step"
            return
        share = f"{seen.waiting_share:.0%}".replace("%", " %")
        waited = f"with {counted(workers, 'worker')} the loop waited {share} of its time"
        ahead = self._more_ahead(seen, means)
        if ahead is not None and seen.need <= workers:
            yield ahead, MORE, f"{waited}, and its workers had time"
        if (more := self._more_workers(seen, means)) > workers:
            yield self.setting._replace(workers=more), MORE, waited
        if ahead is not None:
            yield ahead, MORE, f"{waited}, and its workers had time"

    def _more_workers(self, seen: WorkerWindow, means: Means) -> int:
        workers = self.setting.workers
        if self._is_full(seen, means):
            return workers
        soon = max(2 * workers, means.cpus)
        wanted = min(soon, seen.need) if seen.need > workers else workers + max(1, workers // 2)
        return min(wanted, self._most, self._by_memory(means))

    def _is_full(self, seen: WorkerWindow, means: Means) -> bool:
        """Are all CPUs busy?"""
        return self.setting.workers >= means.cpus and seen.cpu_utilisation >= FULL

    def _by_memory(self, means: Means) -> int:
        return self.setting.workers + means.room_for(means.worker + self.setting.prefetch * means.batch)

    def _more_ahead(self, seen: WorkerWindow, means: Means) -> Setting | None:
        workers, prefetch = self.setting.workers, self.setting.prefetch
        more = min(2 * prefetch, MOST_AHEAD, prefetch + means.room_for(means.batch) // workers)
        can = self._may_prefetch and seen.utilisation < IDLE and more > prefetch
        return self.setting._replace(prefetch=more) if can else None

    def _why_it_stays(self, seen: WorkerWindow, means: Means) -> str:
        workers = self.setting.workers
        waits = f"the loop waits {seen.waiting_share:.0%} of its time".replace("%", " %")
        if seen.keeps_up:
            return waits
        if self._is_full(seen, means):
            return f"{waits}, but all CPUs are busy"
        if self._refuted:
            return f"{waits}, but {'; '.join(dict.fromkeys(self._refuted.values()))}"
        if self._by_memory(means) <= workers:
            return f"{waits}, but there is no memory for more: {_mb(means.free)} of {_mb(means.limit)} left"
        return f"{waits}, and {workers} {'is' if workers == 1 else 'are'} the most there may be"


def _no_better(what: str) -> str:
    return f"{what} {'was' if what.startswith('1 ') else 'were'} no better"


def _mb(size: int | None) -> str:
    return "unknown" if size is None else f"{size / 1e6:,.0f} MB"
