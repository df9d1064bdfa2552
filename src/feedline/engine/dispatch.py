"""From the plan to the workers and back: sends out batches while there is room, and takes in their answers.

Takes: an epoch's tasks, the ledger, workers. Gives: entries that have an outcome, in the ledger.
Promises: no more batches are out than there is room for; batches sent early for this epoch are used if the epoch does
begin with them, and dropped if not; a sampler's error is raised after the batches before it.
Not its job: delivering (loop), deaths (recovery), waiting (waiting), the number of parts of a batch (batch_splitting).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from feedline.engine.batch_splitting import Splitting
from feedline.engine.ledger import Entry, Part
from feedline.engine.next_epoch import NextEpoch, Predict
from feedline.engine.recovery import Recovery
from feedline.engine.streams import StreamEnds, StreamPlaces
from feedline.engine.worker_set import WorkerSet
from feedline.errors import add_note
from feedline.messages.task import Task
from feedline.order.plan import MapTasks, Tasks
from feedline.resume.passed import Passed
from feedline.supervise.watch import Death


class Dispatch:
    """Sends and receives the batches of one epoch."""

    def __init__(
        self,
        tasks: Tasks,
        passed: Passed,
        crew: WorkerSet,
        recovery: Recovery,
        ends: StreamEnds | None,
        next_epoch: NextEpoch,
        predict: Predict | None,
        places: StreamPlaces | None = None,
    ) -> None:
        self.tasks = tasks
        self.sampler_state = tasks.sampler_state
        self._take_task = tasks.take if isinstance(tasks, MapTasks) else tasks.__next__
        self._passed = passed
        self._crew = crew
        self._ledger, self._splitting = crew.ledger, crew.splitting
        self._recovery = recovery
        self._quarantine = recovery.quarantine
        self._ends = ends
        self._next_epoch = next_epoch
        self._predict = predict
        self._places = places
        self._begun = False
        self._more = True
        self.sampler_error: Exception | None = None
        """The error that ended the tasks; None if they came to their end."""
        self.held = 0
        """How many batches were taken before the user asked: each keeps its place until the user asks for it."""

    def fill(self) -> None:
        """Send out batches while there is room."""
        crew, ledger, queue = self._crew, self._ledger, self._ledger.queue
        if not self._begun:
            self._begin()
        room = crew.room - self.held
        while len(queue) < room and (task := self.next_task()) is not None:
            if self._splitting is None or self._splitting.idle:
                crew.workers.send(ledger.plan(task, self.tasks.sampler_state()))
            else:
                self._send(ledger.add(task, self.tasks.sampler_state()))
        # Places that become free from now on are used for the next epoch.
        if not self._more and self._predict is not None:
            while len(queue) + len(ledger.early) < room:
                following = self._next_epoch.following(self._predict)
                if following is None:
                    return
                crew.workers.send(ledger.whole(ledger.add_early(self._recovery.with_avoided(following))))

    def _send(self, entry: Entry) -> None:
        splitting, workers = self._splitting, self._crew.workers
        if splitting is None or (parts := splitting.parts_for(entry.task, self._crew.count)) == 1:
            workers.send(self._ledger.whole(entry))
        elif parts > 1:
            for part in splitting.divide(entry, parts):
                workers.send(part)

    def _begin(self) -> None:
        """Use the batches that the last epoch sent early for this one, if this epoch does begin with them."""
        self._begun, early = True, self._ledger.early
        if not early:
            return
        self._recovery.warn_of_early_deaths(self._crew.pending_warnings)
        tasks: list[tuple[Task, Any]] = []
        if not self._passed.resumed_ahead:  # else it resumes in its middle, which was not predicted
            while len(tasks) < len(early) and (task := self.next_task()) is not None:
                tasks.append((task, self.tasks.sampler_state()))
        if self._next_epoch.is_right([entry.task for entry in early], [task for task, _ in tasks]):
            self._adopt(early, tasks)
            return
        self._ledger.drop_early()
        self._crew.workers.drop_before(self._ledger.run)
        for task, state in tasks:
            self._send(self._ledger.add(task, state))

    def _adopt(self, early: list[Entry], tasks: list[tuple[Task, Any]]) -> None:
        self._ledger.early = []
        for entry, (task, state) in zip(early, tasks, strict=True):
            self._ledger.adopt(entry, task, state)
        for entry in reversed(self._ledger.unsent()):  # their worker died; each goes before those sent so far
            self._recovery.send_first(entry)

    def next_task(self) -> Task | None:
        """The next task that was not delivered before the place where this epoch began; None if there are no more."""
        while self._more:
            try:
                task = self._take_task()
            except StopIteration:
                self._more = False
            except Exception as error:  # raised after the batches before it
                add_note(error, "feedline: raised by the sampler")
                self.sampler_error, self._more = error, False
            else:
                passed = self._passed
                if not passed.resumed_ahead or not passed.has(task, self.tasks.sampler_state(), self._ledger.oldest()):
                    if self._quarantine:
                        task = self._recovery.with_avoided(task)
                    return task if self._places is None else self._places.placed(task)
        return None

    def take(self, events: Sequence[Part | Death]) -> None:
        """Take in answers and deaths."""
        for event in events:
            if isinstance(event, Death):
                for entry in self._recovery.after(event):
                    self._note(entry)
            elif self._splitting is not None:
                self._take_part(self._splitting, event)
            else:
                settled = self._ledger.take(event)
                if settled is not None:
                    self._note(settled)
        if events and self._splitting is not None and self._splitting.holds:
            self._splitting.holds = False
            for entry in self._ledger.unsent():
                self._send(entry)

    def _take_part(self, splitting: Splitting, part: Part) -> None:
        ledger = self._ledger
        if splitting.refuses(part, self._crew.count):
            ledger.take(part)
            for divided in reversed(ledger.divided()):
                self._recovery.send_first(divided)
            return
        entry = ledger.take(part)
        if entry is None:
            return
        if entry.outcome is None:
            joined = splitting.joined(entry)
            if joined is None:
                self._recovery.send_first(entry)
                return
            ledger.settle(entry, joined)
        self._note(entry)

    def _note(self, entry: Entry) -> None:
        """Note what an outcome says about its stream and its worker, as soon as it arrives."""
        assert entry.outcome is not None
        if self._ends is not None:
            self._recovery.note(entry.outcome)
            self._ends.note(entry.outcome, self.tasks)
        elif self._recovery.failed_starts:
            self._recovery.note(entry.outcome)
