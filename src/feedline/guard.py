"""Workers, watched: the loop gives tasks and gets outcomes, whatever happens to the workers in between.

Takes: workers of any kind, the user's wishes (`Care`). Gives: outcomes.
Promises: every task given has exactly one outcome that counts, or `wait` raises; a wait that lasts is explained; a
task whose sample is deadly ends in a failure that names it (or is made without it, if the user wants that).
Not its job: order (deliver), deciding (supervise.policy), the sentences (supervise.telling).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

from feedline.care import Care
from feedline.counting import counted
from feedline.errors import StalledSample, WorkerDied, WorkerTimeout, add_note
from feedline.messages import Failure, Outcome, Task
from feedline.observe.meter import Meter
from feedline.progress import AT_ONCE, INITIALISING, SETTING_UP, place_among
from feedline.supervise import fork_hazards, telling
from feedline.supervise.early_losses import EarlyLosses
from feedline.supervise.policy import Patience, Step, What, birth_due, judge, stuck, unborn, until_stuck
from feedline.supervise.shutdown import words_for
from feedline.supervise.watch import Death, Standing
from feedline.workers.contract import Workers
from feedline.workers.main_guard import EXPLANATION, UNGUARDED

Warn = Callable[[str], None]
OVERSLEPT = 1.0
"""Seconds; a wait that ends later than that was not ours to end: the whole process had been stopped."""
TAKEN = "A new worker takes its place; no batch is lost."
ANEW = " What the dataset had kept in the old one (a counter, a cache, a generator made there) begins anew."
AGAIN_SECONDS = 1.0
"""Until a worker that could not be started is tried again."""


class Guard:
    """One iteration's view of its workers."""

    def __init__(
        self,
        workers: Workers,
        care: Care,
        timeout: float,
        describe: telling.Describe,
        warn: Warn,
        quarantine: dict[Any, str],
        meter: Meter,
    ) -> None:
        self.workers = workers
        self._care = care
        self._timeout = timeout
        self._describe = describe
        self.warn = warn
        self._quarantine = quarantine
        self._streams: dict[int, dict[str, Any]] = {}  # a stream's part → where it stands after its latest outcome
        self._places: dict[int, list[int]] = {}  # a task's number → where workers died with it
        self.early = EarlyLosses()
        self._killed: dict[int, str] = {}  # worker → why we ended it
        self._stillborn: dict[int, int] = {}
        self._may_be_unborn = workers.count > 0
        self._meter = meter
        self._empty: dict[int, bool] = {}  # places without a worker, and whether it is to be started in another way
        self._again_at = math.inf

    @property
    def restarts_stuck(self) -> bool:
        """Is a worker that is stuck replaced?"""
        return self._care.on_stall == "restart"

    def hired(self) -> None:
        """There are new workers: whether they come to life is to be seen."""
        self._may_be_unborn = True

    def submit(self, task: Task) -> None:
        """Give out a task; samples known to be deadly are left out."""
        self.workers.submit(self.careful(task))

    def submit_early(self, task: Task) -> Task:
        """Give out a task of the next epoch, as it is returned. If it is lost, that is only noted (`early`)."""
        task = self.careful(task)
        self.workers.submit(task, early=True)
        return task

    def submit_again(self, task: Task, places: list[int]) -> None:
        """Give out a task that was lost while it was early; that workers died with it counts."""
        if places:
            self._places[task.seq] = places
        self.submit(task)

    def careful(self, task: Task) -> Task:
        """The task, told which of its samples are known to be deadly."""
        if not self._quarantine or task.indices is None:
            return task
        avoid = self._avoided(task)
        known = dict(task.avoid)
        more = tuple((place, why) for place, why in avoid.items() if place not in known)
        return task._replace(avoid=task.avoid + more) if more else task

    def _avoided(self, task: Task) -> dict[int, str]:
        assert task.indices is not None
        known = ((place, self._known(index)) for place, index in enumerate(task.indices))
        return {place: why for place, why in known if why}

    def begin_waiting(self) -> Patience:
        """A wait begins."""
        limit = self._timeout or (self._care.stall_warning if self.restarts_stuck else 0.0)
        return Patience(time.monotonic(), self._care.stall_warning, limit)

    def wait(self, patience: Patience, seq: int | None) -> list[Outcome]:
        """Outcomes, at least one; `seq` is the batch that is waited for."""
        while True:
            outcomes = self._settle(self._wait_until(min(patience.due, self._birth_due(), self._again_at), patience))
            if outcomes:
                return outcomes
            self._replace_unborn()
            self._fill_places()
            self._take(patience.step(time.monotonic()), patience, seq)

    def _wait_until(self, due: float, patience: Patience) -> list[Outcome | Death]:
        began = time.monotonic()
        seconds = None if math.isinf(due) else max(0.0, due - began)
        found = self.workers.wait(seconds)
        if seconds is not None and not found:
            overslept = time.monotonic() - began - seconds
            if overslept > OVERSLEPT:
                patience.put_off(overslept)
        return found

    def poll(self) -> list[Outcome]:
        """Outcomes that are there already."""
        return self._settle(self.workers.wait(0))

    def _take(self, step: Step, patience: Patience, seq: int | None) -> None:
        if step is Step.ASK:
            self.workers.ask_stacks()
        elif step is Step.TELL:
            remedy = telling.RESTARTS if self.restarts_stuck else telling.STILL_WAITING
            self.warn(f"{self._report(patience, seq)}\n{remedy}")
        elif step is Step.LIMIT:
            if not self.restarts_stuck:
                raise WorkerTimeout(
                    f"no batch came within timeout={self._timeout:g} s: {self._report(patience, seq)}\n"
                    f"{telling.TIMEOUT_REMEDY}"
                )
            self._restart_stuck(patience)

    def _report(self, patience: Patience, seq: int | None) -> str:
        standings = [self._with_end(at) for at in self.workers.standing()]
        stacks = {at.worker: self.workers.stack_of(at.worker) for at in standings}
        told = telling.stall(time.monotonic() - patience.began, seq, standings, stacks, self._describe)
        likely = fork_hazards.hint(standings, stacks) if self.workers.forked else ""
        return f"{told}\n{likely}" if likely else told

    def _with_end(self, at: Standing) -> Standing:
        if at.worker not in self._killed:
            return at
        return at._replace(state=f"still there although it has been killed{': ' if at.state else ''}{at.state}")

    def _restart_stuck(self, patience: Patience) -> None:
        limit = self._timeout or self._care.stall_warning
        standings = self.workers.standing()
        now = time.monotonic()
        for at in stuck(standings, limit):
            end = "is left behind" if at.pid is None else "has been ended"
            if self._kill(at, f"was stuck for {telling.seconds(at.seconds)} and {end}", with_stack=True):
                patience.told(now)
        patience.limit_again(now + max(0.05, until_stuck(standings, limit)))

    def _birth_due(self) -> float:
        """When a worker that is being started should be ready; looked at only until all have been."""
        if not self._may_be_unborn or not self.workers.forked:
            return math.inf
        seconds = birth_due(self.workers.standing())
        self._may_be_unborn = not math.isinf(seconds)
        return time.monotonic() + seconds

    def _replace_unborn(self) -> None:
        if self._may_be_unborn and self.workers.forked:
            for at in unborn(self.workers.standing()):
                why = f"was not ready {telling.seconds(at.seconds)} after its start and has been ended"
                self._kill(at, why, with_stack=False)

    def _kill(self, at: Standing, why: str, with_stack: bool) -> bool:
        if at.worker in self._killed:
            return False
        stack = self.workers.stack_of(at.worker) if with_stack else ""
        likely = fork_hazards.hint([at], {at.worker: stack}) if with_stack and self.workers.forked else ""
        self._killed[at.worker] = why + (":\n" + telling.stack(stack) if stack else "") + (likely and f"\n{likely}")
        self.workers.kill(at.worker)
        return True

    def _settle(self, found: list[Outcome | Death]) -> list[Outcome]:
        outcomes = []
        for event in found:
            if isinstance(event, Death):
                outcomes += self._after(event)
            else:
                self._places.pop(event.seq, None)
                self._stillborn.clear()
                if event.stream is not None:
                    self._streams[event.stream[0]] = event.stream[1]
                outcomes.append(event)
        return outcomes

    def _after(self, death: Death) -> list[Outcome]:
        """Put a new worker in its place, see to its tasks, and say so."""
        why = self._killed.pop(death.worker, None)
        first = place_among(death.place)
        if first is not None:  # one that is stuck is known; which of several has killed its worker is not
            death = death._replace(place=AT_ONCE if why is None else first)
        told = self._told(death, why)
        had_begun = death.pid is not None and death.place not in (SETTING_UP, INITIALISING)
        taken = TAKEN + ANEW if had_begun else TAKEN  # threads share one dataset, which has what it had
        is_told_later = self.early.note(death, f"{told}\n{taken}")
        ended = death.task.shard if death.task is not None else None
        own, blamed = None, ""
        if death.task is not None and not is_told_later:
            own, blamed = self._retried(death.task, death, why)
        outcomes = []
        for task in reversed(self._placed(death.lost)):
            again: Task | Outcome = task
            if own is not None and own.seq == task.seq:
                again = own._replace(place=task.place) if isinstance(own, Task) else own
            elif isinstance(own, Outcome) and own.ended and task.shard == ended:
                again = Outcome(task.seq, ended=True)  # the part's new reader would come past that element again
            if isinstance(again, Outcome):
                outcomes.append(again)
            else:
                self.workers.submit(self.careful(again), urgent=True)
        self._check_birth(death, told)
        self._empty[death.worker] = death.place == SETTING_UP and why is not None
        self._again_at = 0.0
        self._fill_places()
        if not isinstance(own, Outcome) and not is_told_later:
            self.warn(f"{told}\n{blamed or taken}")
        return outcomes

    def _fill_places(self) -> None:
        """New workers for empty places. Where the system refuses one, the others go on, and it is tried again."""
        if not self._empty or time.monotonic() < self._again_at:
            return
        self._again_at = math.inf
        for worker, elsewhere in list(self._empty.items()):
            try:
                self.workers.revive(worker, elsewhere)
                self._meter.restarts += 1
            except OSError as error:
                if not self.workers.standing():
                    add_note(error, "feedline: no worker is left, and no new one could be started in its place")
                    raise
                self._again_at = time.monotonic() + AGAIN_SECONDS
                self.warn(f"no new worker {worker} could be started ({error}); the others go on, and it is tried again")
            else:
                del self._empty[worker]
                self._may_be_unborn = True

    def _placed(self, lost: tuple[Task, ...]) -> list[Task]:
        """The tasks again; the first of each part of a stream says where that stands, for whoever opens it now."""
        found: list[Task] = []
        seen: set[int] = set()
        for task in sorted(lost, key=lambda task: task.seq):
            if not task.shards or task.shard in seen:
                found.append(task)
                continue
            seen.add(task.shard)
            place = self._streams.get(task.shard, task.place) or {}
            found.append(task._replace(place=None if "problem" in place or "ended" in place else place or None))
        return found

    def _told(self, death: Death, why: str | None) -> str:
        if why is None:
            return telling.obituary(death, self._describe)
        name = telling.name_of(death.worker, death.pid)
        first, _, rest = why.partition("\n")
        doing = telling.where(death.task, death.place, self._describe, death.instead)
        return f"{name}, {doing}, {first}" + ("\n" + rest if rest else "")

    def _check_birth(self, death: Death, told: str) -> None:
        if death.place not in (SETTING_UP, INITIALISING):
            return
        if death.exitcode == UNGUARDED:
            raise WorkerDied(EXPLANATION)
        count = self._stillborn[death.worker] = self._stillborn.get(death.worker, 0) + 1
        if count > self._care.max_deaths:
            raise WorkerDied(
                f"{told}\nSo did {count - 1} before it in this place, and none had taken a task: look at "
                "worker_init_fn and at what the dataset does when it is rebuilt in a worker, or use num_workers=0."
            )

    def _retried(self, task: Task, death: Death, why: str | None) -> tuple[Task | Outcome, str]:
        """What becomes of the task in a dead worker's hands, and what to say of it."""
        places = self._places.setdefault(task.seq, [])
        places.append(death.place)
        size = 1 if task.indices is None else len(task.indices)
        verdict = judge(places, size, self._care.max_deaths, task.alone)
        if verdict.what is What.RETRY:
            return task, ""
        if verdict.what is What.NARROW:
            return task._replace(alone=True), "Its samples are now read one by one, to find the one that does it."
        if verdict.what is What.SAMPLE and task.indices is not None and self._care.on_error != "raise":
            return self._without(task, verdict.place, death, why)
        return self._failure(task, death, verdict.place, why), ""

    def _without(self, task: Task, place: int, death: Death, why: str | None) -> tuple[Task, str]:
        assert task.indices is not None
        deaths = self._deaths_at(place, task)
        last = why.splitlines()[0] if why else words_for(death.exitcode)
        reason = f"{counted(deaths, 'worker')} ended at it; the last {last}"
        if death.instead is not None:
            reason = f"it failed, and {reason.replace('at it', f'at dataset[{death.instead}], read in its stead')}"
        with contextlib.suppress(Exception):  # an index that cannot be a key is found out anew each time
            self._quarantine[_key(task.indices[place] if death.instead is None else death.instead)] = reason
        said = f"{telling.sample_name(task, place, self._describe)} is left out from now on"
        if death.instead is not None:  # what stood in for it did it: named twice, it is not replaced again
            said = f"dataset[{death.instead}], read in its stead, is left out from now on, and so is this one here"
            return task._replace(avoid=(*task.avoid, (place, reason), (place, reason))), f"{said}."
        avoid = {place: reason, **self._avoided(task), **dict(task.avoid)}
        return task._replace(avoid=tuple(sorted(avoid.items()))), f"{said} (on_error={self._care.on_error!r})."

    def _failure(self, task: Task, death: Death, place: int, why: str | None) -> Outcome:
        if place >= 0:
            culprit = telling.sample_name(task, place, self._describe)
        else:
            culprit = f"batch {task.seq} of epoch {task.epoch}{telling.indices_of(task)}"
        kind, did = (WorkerDied, "killed") if why is None else (StalledSample, "stalled")
        remedy = "Repair or leave out the sample"
        if task.indices is None:
            remedy += ". on_error cannot pass it over, and the rest of what that worker reads is not read"
        elif place >= 0:
            remedy += ", or set on_error='skip' or 'replace' to go on without it"
        deaths = self._deaths_at(place, task)
        error = kind(f"{culprit} has {did} {counted(deaths, 'worker')}. The last: {self._told(death, why)}\n{remedy}.")
        return Outcome(task.seq, failure=Failure.of(error, same_process=True), ended=task.indices is None)

    def _deaths_at(self, place: int, task: Task) -> int:
        """How many have ended at that sample, or read it with others then; which are forgotten with all the others."""
        places = self._places.pop(task.seq)
        return len(places) if place < 0 else places.count(place) + places.count(AT_ONCE)

    def _known(self, index: Any) -> str:
        try:
            return self._quarantine.get(_key(index), "")
        except Exception:  # it cannot be a key
            return ""


def _key(index: Any) -> Any:
    return int(index) if hasattr(index, "__index__") else index
