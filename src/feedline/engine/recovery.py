"""After a worker has died: others make its batches, the sample that killed it is found, and a new worker is started.

Takes: deaths, the ledger, the user's settings (`ErrorPolicy`). Gives: the entries that end in an error because of a
death; all others are sent out again.
Promises: every batch still has exactly one outcome; a sample that kills worker after worker is named, and left out if
the user wants that; each warning is given once.
Not its job: noticing a death (workers), ending stuck workers (waiting), the decision about a batch (supervise.policy),
the sentences (supervise.telling).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

from feedline.engine.contract import Workers
from feedline.engine.ledger import Entry, Ledger
from feedline.engine.streams import TAKEN, StreamPlaces
from feedline.errors import StalledSample, WorkerDied, add_note
from feedline.errors.counting import counted
from feedline.messages.outcome import Failure, Outcome
from feedline.messages.progress import AT_ONCE, INITIALISING, SETTING_UP, place_among
from feedline.messages.task import Task
from feedline.observe.meter import Meter
from feedline.options import ErrorPolicy
from feedline.supervise import telling
from feedline.supervise.policy import What, judge
from feedline.supervise.shutdown import words_for
from feedline.supervise.watch import Death
from feedline.workers.main_guard import EXPLANATION, UNGUARDED

Warn = Callable[[str], None]
DATASET_BEGINS_AGAIN = (
    " What the dataset had kept in the old worker (a counter, a cache, a generator made there) begins again."
)
AGAIN_SECONDS = 1.0
"""Seconds until a worker that could not be started is tried again."""


class Recovery:
    """Handles the deaths of one iteration."""

    def __init__(
        self,
        workers: Workers,
        ledger: Ledger,
        error_policy: ErrorPolicy,
        describe: telling.Describe,
        warn: Warn,
        quarantine: dict[Any, str],
        meter: Meter,
        places: StreamPlaces | None = None,
    ) -> None:
        self.workers = workers
        self._ledger = ledger
        self._policy = error_policy
        self._describe = describe
        self._warn = warn
        self.quarantine = quarantine
        """Samples that are known to kill workers, and what happened."""
        self._meter = meter
        self.may_be_starting = True
        """Are there new workers that may not be ready yet? Then `waiting` checks whether they become ready."""
        self.ended: dict[int, str] = {}
        """Workers that we have ended, and why."""
        self.pending_warnings: list[str] = []
        """Warnings about deaths at batches of the next epoch. They wait until it begins, which it may never do."""
        self._places = places  # only for a stream
        self.failed_starts: dict[int, int] = {}
        """A worker's number → how many such workers died before their first task since the last batch was made."""
        self._empty: dict[int, bool] = {}  # number of a missing worker → whether to use another start method
        self.again_at = math.inf
        """When to start the missing workers."""

    def with_avoided(self, task: Task) -> Task:
        """The task with a note of which of its samples are known to kill workers."""
        if not self.quarantine or task.indices is None:
            return task
        known = dict(task.avoid)
        more = tuple((place, why) for place, why in self._avoided(task).items() if place not in known)
        return task._replace(avoid=task.avoid + more) if more else task

    def _avoided(self, task: Task) -> dict[int, str]:
        assert task.indices is not None
        known = ((place, self._known(index)) for place, index in enumerate(task.indices))
        return {place: why for place, why in known if why}

    def _known(self, index: Any) -> str:
        try:
            return self.quarantine.get(_key(index), "")
        except Exception:  # the index is not hashable
            return ""

    def warn_of_early_deaths(self, pending_warnings: list[str]) -> None:
        """Give the warnings that waited for this epoch to begin."""
        for told in pending_warnings:
            self._warn(told)
        pending_warnings.clear()

    def note(self, outcome: Outcome) -> None:
        """A worker has made a batch. Called for each batch of a stream, and after deaths (`failed_starts`)."""
        self.failed_starts.clear()
        if self._places is not None:
            self._places.note(outcome)

    def after(self, death: Death) -> list[Entry]:
        """Start a new worker in its place, send its batches again, and warn. Returns batches that end in an error."""
        why = self.ended.pop(death.worker, None)
        first = place_among(death.place)
        if first is not None:  # several were read at once: it is known which one is stuck, but not which one kills
            death = death._replace(place=AT_ONCE if why is None else first)
        told = self._told(death, why)
        had_begun = death.pid is not None and death.place not in (SETTING_UP, INITIALISING)
        taken = TAKEN if self._places is None else self._places.lost(death.worker)
        if had_begun:  # only processes: threads share one dataset, which keeps its state
            taken += DATASET_BEGINS_AGAIN
        entries = list(dict.fromkeys(part.entry for part in death.lost if self._ledger.is_wanted(part)))
        own = death.part.entry if death.part is not None else None
        failed, blamed = None, ""
        if own is not None and own in self._ledger.early:
            own.deaths += (death.place,)
            self.pending_warnings.append(f"{told}\n{taken}")
        elif own is not None:
            failed, blamed = self._blamed(own, death, why)
        settled = self._send_again(entries, own, failed)
        self._check_failed_start(death, told)
        self._empty[death.worker] = death.place == SETTING_UP and why is not None
        self.again_at = 0.0
        self.fill_places()
        if failed is None and (own is None or own not in self._ledger.early):
            self._warn(f"{told}\n{blamed or taken}")
        return settled

    def _send_again(self, entries: list[Entry], own: Entry | None, failed: Outcome | None) -> list[Entry]:
        """Send the dead worker's batches before all others; early batches wait until their epoch begins."""
        settled: list[Entry] = []
        entries = sorted(entries, key=lambda entry: entry.task.seq)
        for entry in entries:
            self._ledger.recall(entry)
        now = [entry for entry in entries if entry not in self._ledger.early]
        if self._places is not None:
            for entry in now:
                entry.task = self._places.placed(entry.task)
        for entry in reversed(now):
            if failed is not None and entry is own:
                self._ledger.settle(entry, failed)
                settled.append(entry)
            elif self._is_over(entry, own, failed):
                self._ledger.settle(entry, Outcome(entry.task.seq, ended=True))
                settled.append(entry)
            else:
                self.send_first(entry)
        return settled

    def _is_over(self, entry: Entry, own: Entry | None, failed: Outcome | None) -> bool:
        """Has its part of the stream nothing more to give?"""
        if failed is not None and failed.ended and own is not None and entry.task.shard == own.task.shard:
            return True  # a new reader would meet the deadly element again
        return self._places is not None and self._places.has_ended(entry.task)

    def send_first(self, entry: Entry) -> None:
        """Have one worker make the batch, before all batches that no worker has taken yet."""
        self._ledger.recall(entry)
        entry.task = self.with_avoided(entry.task)
        self.workers.send(self._ledger.whole(entry), first=True)

    def fill_places(self) -> None:
        """Start missing workers. If the system refuses to start one, the others go on, and that one is tried again."""
        if not self._empty or time.monotonic() < self.again_at:
            return
        self.again_at = math.inf
        for worker, elsewhere in list(self._empty.items()):
            try:
                self.workers.revive(worker, elsewhere)
                self._meter.restarts += 1
            except OSError as error:
                if not self.workers.standing():
                    add_note(error, "feedline: no worker is left, and no new one could be started in its place")
                    raise
                self.again_at = time.monotonic() + AGAIN_SECONDS
                refused = f"no new worker {worker} could be started ({error})"
                self._warn(f"{refused}; the other workers continue, and feedline will try again")
            else:
                del self._empty[worker]
                self.may_be_starting = True

    def _told(self, death: Death, why: str | None) -> str:
        if why is None:
            return telling.death_notice(death, self._describe)
        name = telling.name_of(death.worker, death.pid, death.host)
        first, _, rest = why.partition("\n")
        doing = telling.where(death.task, death.place, self._describe, death.instead)
        return f"{name}, {doing}, {first}" + ("\n" + rest if rest else "")

    def _check_failed_start(self, death: Death, told: str) -> None:
        if death.place not in (SETTING_UP, INITIALISING):
            return
        if death.exitcode == UNGUARDED:
            raise WorkerDied(EXPLANATION)
        count = self.failed_starts[death.worker] = self.failed_starts.get(death.worker, 0) + 1
        if count > self._policy.max_deaths:
            raise WorkerDied(
                f"{told}\n{counted(count - 1, 'earlier worker')} in its place ended in the same way, before taking a "
                "task: look at worker_init_fn and at what the dataset does when it is rebuilt in a worker, or use "
                "num_workers=0."
            )

    def _blamed(self, entry: Entry, death: Death, why: str | None) -> tuple[Outcome | None, str]:
        """What happens to the batch that a dead worker was making: an error in its place, or None; and what to say."""
        entry.deaths += (death.place,)
        task = entry.task
        size = 1 if task.indices is None else len(task.indices)
        verdict = judge(entry.deaths, size, self._policy.max_deaths, task.alone)
        if verdict.what is What.RETRY:
            return None, ""
        if verdict.what is What.NARROW:
            entry.task = task._replace(alone=True)
            return None, "Its samples are now read one by one, to find the sample that causes this."
        if verdict.what is What.SAMPLE and task.indices is not None and self._policy.on_error != "raise":
            return None, self._leave_out(entry, verdict.place, death, why)
        return self._failure(entry, death, verdict.place, why), ""

    def _leave_out(self, entry: Entry, place: int, death: Death, why: str | None) -> str:
        task = entry.task
        assert task.indices is not None
        deaths = _deaths_at(place, entry)
        last = why.splitlines()[0].removesuffix(":") if why else words_for(death.exitcode)
        sample = "it" if death.instead is None else f"dataset[{death.instead}], read instead of it"
        reason = f"{counted(deaths, 'worker')} ended at {sample}; the last {last}"
        if death.instead is not None:
            reason = f"it failed, and {reason}"
        with contextlib.suppress(Exception):  # an unhashable index is found again each time
            self.quarantine[_key(task.indices[place] if death.instead is None else death.instead)] = reason
        if death.instead is not None:  # the replacement killed it; a place named twice is not replaced again
            entry.task = task._replace(avoid=(*task.avoid, (place, reason), (place, reason)))
            return f"dataset[{death.instead}], read instead of it, is left out from now on, and so is this sample."
        avoid = {place: reason, **self._avoided(task), **dict(task.avoid)}
        entry.task = task._replace(avoid=tuple(sorted(avoid.items())))
        said = f"{telling.sample_name(task, place, self._describe)} is left out from now on"
        return f"{said} (on_error={self._policy.on_error!r})."

    def _failure(self, entry: Entry, death: Death, place: int, why: str | None) -> Outcome:
        task = entry.task
        if place >= 0:
            culprit = telling.sample_name(task, place, self._describe)
        else:
            culprit = f"batch {task.seq} of epoch {task.epoch}{telling.indices_of(task)}"
        kind, did = (WorkerDied, "killed") if why is None else (StalledSample, "stalled")
        remedy = "Repair or leave out the sample"
        if task.indices is None:
            remedy += ". on_error cannot skip it, and the rest of that worker's part of the stream is not read"
        elif place >= 0:
            remedy += ", or set on_error='skip' or 'replace' to continue without it"
        deaths = _deaths_at(place, entry)
        error = kind(f"{culprit} has {did} {counted(deaths, 'worker')}. The last: {self._told(death, why)}\n{remedy}.")
        return Outcome(task.seq, failure=Failure.of(error, same_process=True), ended=task.indices is None)


def _deaths_at(place: int, entry: Entry) -> int:
    """How many workers died at that sample, alone or while reading several at once. Forgets all deaths of the entry."""
    places, entry.deaths = entry.deaths, ()
    return len(places) if place < 0 else places.count(place) + places.count(AT_ONCE)


def _key(index: Any) -> Any:
    return int(index) if hasattr(index, "__index__") else index
