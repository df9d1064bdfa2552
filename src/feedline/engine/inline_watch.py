"""Watches batches that the loop makes itself (num_workers=0): explains one that does not come, or gives it up.

Takes: the inline workers, the user's settings (`ErrorPolicy`, `timeout`). Gives: warnings, and `WorkerTimeout`.
Promises: the same report as with workers, made by the watchdog's thread while the loop is stuck; time spent at a
debugger's prompt does not count; it costs a batch nothing unless there is a `timeout`.
Not its job: the thread (supervise.watchdog), the sentences (supervise.telling).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from feedline.errors import WorkerTimeout
from feedline.messages.outcome import Outcome
from feedline.messages.task import Task
from feedline.options import ErrorPolicy
from feedline.supervise import telling
from feedline.supervise.interrupt import Interrupt, TimeIsUp
from feedline.supervise.policy import Patience, Step
from feedline.supervise.watchdog import WatchedLoop
from feedline.workers.inline import InlineWorkers

Warn = Callable[[str, FrameType | None], None]
AGAIN_SECONDS = 1.0
"""A batch that goes on after an interrupt is interrupted again after this long."""
DEBUGGERS = frozenset(["bdb", "pdb", "ipdb", "pudb", "pydevd", "_pydevd_bundle", "debugpy"])
"""Modules of debuggers: a thread whose stack is in one of them is at a debugger's prompt."""


class InlineWatch:
    """Watches one iteration."""

    def __init__(
        self, workers: InlineWorkers, error_policy: ErrorPolicy, timeout: float, describe: telling.Describe, warn: Warn
    ) -> None:
        self._workers = workers
        self._policy = error_policy
        self._timeout = timeout
        self._describe = describe
        self._warn = warn
        self._interrupt: Interrupt | None = None
        self._patience: Patience | None = None
        self._of = 0
        """When the batch began that `_patience` belongs to."""
        self._error = ""
        workers.entry.watch(self, min(filter(None, (error_policy.stall_warning, timeout))))

    def make(self, task: Task) -> Outcome:
        """Have a batch made within `timeout`. Only called if there is a timeout."""
        interrupt, outcome = self._interrupt or Interrupt(), None
        self._interrupt = interrupt
        try:
            try:
                interrupt.open()
                outcome = self._workers.make(task)
            finally:
                interrupt.close()
        except TimeIsUp:
            if not interrupt.sent:  # another loader sent it: one of its samples reads from this loader
                raise
        if interrupt.sent or outcome is None:
            raise WorkerTimeout(self._error) from None
        return outcome

    def end(self) -> None:
        """The loop is over."""
        self._workers.entry.leave()

    def look(self, entry: WatchedLoop, now: float, stood_still: float) -> float:
        """Called in the watchdog's thread while a batch is being made. Returns when to look again."""
        began = entry.began
        self._workers.standing()  # it counts how long a sample has taken from one look to the next
        if began != self._of or self._patience is None:
            self._of, self._error = began, ""
            self._patience = Patience(began / 1e9, self._policy.stall_warning, self._timeout)
        patience = self._patience
        if stood_still:
            patience.put_off(stood_still)
        while began and now >= patience.due:
            frame = sys._current_frames().get(entry.thread)
            if _is_debugged(frame):
                patience.put_off(now - patience.began)
            else:
                self._take(patience.step(now), patience, entry, now, frame)
        return patience.due

    def _take(self, step: Step, patience: Patience, entry: WatchedLoop, now: float, frame: FrameType | None) -> None:
        if step is Step.TELL:
            self._say(f"{self._report(patience, entry, now)}\n{telling.STILL_MAKING}", entry, frame)
        elif step is Step.LIMIT:
            tries_again, report = bool(self._error), self._report(patience, entry, now)
            self._error = self._error or (
                f"no batch came within timeout={self._timeout:g} s: {report}\n{telling.TIMEOUT_HERE}"
            )
            patience.limit_again(now + AGAIN_SECONDS)
            if self._interrupt is not None and self._interrupt.send() and tries_again:
                patience.limit_again(now + (now - patience.began))
                self._say(f"timeout={self._timeout:g} s is over: {report}\n{telling.NOT_INTERRUPTED}", entry, frame)

    def _report(self, patience: Patience, entry: WatchedLoop, now: float) -> str:
        standings, task = self._workers.standing(), entry.task
        stacks = self._workers.stacks()
        return telling.stall(
            now - patience.began, None if task is None else task.seq, standings, stacks, self._describe
        )

    def _say(self, text: str, entry: WatchedLoop, frame: FrameType | None) -> None:
        if entry.began == self._of:  # else the batch has come meanwhile
            self._warn(text, frame)


def watch_for(
    workers: InlineWorkers, error_policy: ErrorPolicy, timeout: float, describe: telling.Describe, warn: Warn
) -> InlineWatch | None:
    """The watch for these workers; None if they do not need one or the user does not want one."""
    if not workers.may_be_stuck or not (error_policy.stall_warning or timeout):
        return None
    return InlineWatch(workers, error_policy, timeout, describe, warn)


def _is_debugged(frame: FrameType | None) -> bool:
    """Is that thread at a debugger's prompt that was opened in user code called by us?"""
    while frame is not None:
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if root == "feedline":
            return False
        if root in DEBUGGERS:
            return True
        frame = frame.f_back
    return False
