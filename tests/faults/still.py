"""Time stands still for a loader's patience until the fault has happened: then a short time-out is enough.

Takes: how to see, from where the workers stand, that nothing but the fault holds up the batch that is waited for.
Promises: before that no warning, time-out or restart comes, however slow the machine; from then on real time passes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from feedline.engine.waiting import Waiting
from feedline.messages.progress import IDLE, SETTING_UP
from feedline.supervise.policy import Step
from feedline.supervise.watch import with_state

Happened = Callable[[list[Any], "int | None"], bool]
MOMENT = 0.005
LONG = 100.0
"""Seconds; only something that is broken takes so long."""


def until(happened: Happened) -> None:
    """In this process, for every loader: `happened(standings, batch)` says whether the fault holds up that batch."""
    receive = Waiting.receive

    def standing_still(self: Waiting, seq: int | None) -> Any:
        if happened(self.workers.standing(), seq):
            return receive(self, seq)
        found = self.workers.receive(MOMENT)
        self.since, self._patience = time.monotonic(), None
        if not found:
            self._replace_late_starters()
            self._recovery.fill_places()
        return found

    Waiting.receive = standing_still  # type: ignore[method-assign]


def until_there(path: str | Path) -> None:
    """Until somebody has made the file."""
    until(lambda standings, batch: os.path.exists(path))


def answered() -> None:
    """Whoever is asked for its stack and can run has written it when the report is made, on the busiest machine."""
    take = Waiting._take

    def waiting(self: Waiting, step: Step, patience: Any, seq: int | None) -> None:
        take(self, step, patience, seq)
        if step is Step.ASK:
            patient_until = time.monotonic() + LONG
            asked = [
                at.worker for at in map(with_state, self.workers.standing()) if not at.state and at.place != SETTING_UP
            ]
            while not all(map(self.workers.stacks().get, asked)) and time.monotonic() < patient_until:
                time.sleep(MOMENT)

    Waiting._take = waiting  # type: ignore[method-assign]


def only_held_up(at_fault: Callable[[Any], bool]) -> Happened:
    """One worker is at fault, the others have nothing to do, and the batch that is waited for is that one's."""

    def happened(standings: list[Any], batch: int | None) -> bool:
        faulty = [at for at in standings if at.task is not None and at.place >= 0 and at_fault(at)]
        others_wait = all(at in faulty or at.place == IDLE for at in standings)
        is_theirs = len(standings) == 1 or any(at.task.seq == batch for at in faulty)
        return bool(faulty) and others_wait and is_theirs

    return happened
