"""Waiting for workers: explains a long wait to the user, and ends stuck workers if the user wants that.

Takes: workers, the user's settings (`ErrorPolicy`, `timeout`). Gives: answers and deaths as they come; otherwise
warnings, and `WorkerTimeout`.
Promises: a long wait is explained; a worker that does not become ready is replaced; time in which this process itself
was stopped does not count.
Not its job: what to do after a death (recovery), when to do what (supervise.policy), the sentences
(supervise.telling), batches that the loop makes itself (inline_watch).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from feedline.engine.contract import Workers
from feedline.engine.ledger import Part
from feedline.engine.recovery import Recovery, Warn
from feedline.errors import WorkerTimeout
from feedline.options import ErrorPolicy
from feedline.supervise import fork_hazards, telling
from feedline.supervise.policy import Patience, Step, late_starters, start_due, stuck, until_stuck
from feedline.supervise.watch import Death, Standing, with_state

OVERSLEPT = 1.0
"""Seconds; if a wait ends this much too late, the whole process had been stopped."""


class Waiting:
    """Waits for the workers of one iteration."""

    def __init__(
        self,
        recovery: Recovery,
        error_policy: ErrorPolicy,
        timeout: float,
        describe: telling.Describe,
        warn: Warn,
    ) -> None:
        self._recovery = recovery
        self._policy = error_policy
        self._describe = describe
        self._warn = warn
        self._restarts = error_policy.on_stall == "restart"
        self.set_timeout(timeout)
        self.since: float | None = None
        """When the wait for the next batch began; None if a batch has been delivered since."""
        self._patience: Patience | None = None

    @property
    def workers(self) -> Workers:
        """The workers that are waited for."""
        return self._recovery.workers

    def set_timeout(self, timeout: float) -> None:
        """Wait at most this many seconds for each batch; 0 means no limit."""
        self._timeout, self.since = timeout, None
        self._limit = timeout or (self._policy.stall_warning if self._restarts else 0.0)
        self._first_due = Patience(0.0, self._policy.stall_warning, self._limit).due

    def receive(self, seq: int | None) -> Sequence[Part | Death]:
        """Answers and deaths; `seq` is the batch that is waited for. Empty if nothing came before a check was due."""
        now = time.monotonic()
        if self.since is None:
            self.since, self._patience = now, None
        due = self.since + self._first_due if self._patience is None else self._patience.due
        if self._recovery.may_be_starting:
            due = min(due, self._birth_due())
        due = min(due, self._recovery.again_at)
        seconds = None if due == math.inf else max(0.0, due - now)
        found = self._recovery.workers.receive(seconds)
        if not found:
            if self._patience is None:  # created late, because most waits end before anything is due
                self._patience = Patience(self.since, self._policy.stall_warning, self._limit)
            self._look_again(self._patience, 0.0 if seconds is None else time.monotonic() - now - seconds, seq)
        return found

    def _look_again(self, patience: Patience, overslept: float, seq: int | None) -> None:
        """Nothing came within the time: do what is due."""
        if overslept > OVERSLEPT:
            patience.put_off(overslept)
        self._replace_late_starters()
        self._recovery.fill_places()
        self._take(patience.step(time.monotonic()), patience, seq)

    def _take(self, step: Step, patience: Patience, seq: int | None) -> None:
        if step is Step.ASK:
            self.workers.stacks(ask=True)
        elif step is Step.TELL:
            remedy = telling.RESTARTS if self._restarts else telling.STILL_WAITING
            self._warn(f"{self._report(patience, seq)}\n{remedy}")
        elif step is Step.LIMIT:
            if not self._restarts:
                raise WorkerTimeout(
                    f"no batch came within timeout={self._timeout:g} s: {self._report(patience, seq)}\n"
                    f"{telling.TIMEOUT_REMEDY}"
                )
            self._restart_stuck(patience)

    def _report(self, patience: Patience, seq: int | None) -> str:
        standings = [self._with_end(with_state(at)) for at in self.workers.standing()]
        stacks = self.workers.stacks()
        told = telling.stall(time.monotonic() - patience.began, seq, standings, stacks, self._describe)
        likely = fork_hazards.hint(standings, stacks) if self.workers.traits.forked else ""
        return f"{told}\n{likely}" if likely else told

    def _with_end(self, at: Standing) -> Standing:
        if at.worker not in self._recovery.ended:
            return at
        return at._replace(state=f"still there although it has been killed{': ' if at.state else ''}{at.state}")

    def _restart_stuck(self, patience: Patience) -> None:
        limit = self._timeout or self._policy.stall_warning
        standings = list(map(with_state, self.workers.standing()))
        now = time.monotonic()
        for at in stuck(standings, limit):
            end = "is left behind" if at.pid is None else "has been ended"
            if self._kill(at, f"was stuck for {telling.seconds(at.seconds)} and {end}", with_stack=True):
                patience.told(now)
        patience.limit_again(now + max(0.05, until_stuck(standings, limit)))

    def _birth_due(self) -> float:
        """When the next starting worker should be ready; not checked again once all are ready."""
        if not self._recovery.may_be_starting or not self.workers.traits.forked:
            return math.inf
        seconds = start_due(self.workers.standing())
        self._recovery.may_be_starting = not math.isinf(seconds)
        return time.monotonic() + seconds

    def _replace_late_starters(self) -> None:
        if self._recovery.may_be_starting and self.workers.traits.forked:
            for at in late_starters(self.workers.standing()):
                why = f"was not ready {telling.seconds(at.seconds)} after its start and has been ended"
                self._kill(at, why, with_stack=False)

    def _kill(self, at: Standing, why: str, with_stack: bool) -> bool:
        if at.worker in self._recovery.ended:
            return False
        stack = self.workers.stacks().get(at.worker, "") if with_stack else ""
        likely = fork_hazards.hint([at], {at.worker: stack}) if with_stack and self.workers.traits.forked else ""
        told = why + (":\n" + telling.stack(stack) if stack else "") + (likely and f"\n{likely}")
        self._recovery.ended[at.worker] = told
        self.workers.kill(at.worker)
        return True
