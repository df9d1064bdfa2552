"""What has been sent to worker processes and is not back, and what of it is lost when one of them dies.

Takes: tasks as they go out, with the slots they go in. Gives: by its serial number, each that is still out; after a
death, those that nobody works on any more.
Promises: a slot that a living worker might still write into is not given to anybody else.
Not its job: sending and receiving (processes), what to do about a death (guard).
"""

from __future__ import annotations

from feedline.arena.slots import Slot
from feedline.messages import Task
from feedline.progress import TASK
from feedline.workers.crew import Crew


class Sent:
    """A task on its way."""

    __slots__ = ("lost", "run", "slot", "suspects", "task")

    def __init__(self, slot: Slot, task: Task, run: int) -> None:
        self.slot = slot
        self.task = task
        self.run = run
        self.lost = False
        self.suspects: dict[int, tuple[int, int]] | None = None  # who might have it, by what they were at


class Outgoing(dict[int, Sent]):
    """By serial number, in the order they were sent."""

    def __init__(self, crew: Crew) -> None:
        super().__init__()
        self._crew = crew
        self._serial = 0

    def add(self, sent: Sent) -> int:
        """The number it has from now on."""
        self._serial += 1
        self[self._serial] = sent
        return self._serial

    def lost_with(self, number: int) -> list[Sent]:
        """What was sent into that worker's lane, is not waiting there, and is in no living worker's hands."""
        lane = self._crew.lane_of(number)
        lane.recall()
        if len(self._crew.lanes) == self._crew.count:  # nobody else reads from it
            lane.waiting.clear()
            everything = [serial for serial, sent in self.items() if self._crew.lane_of(sent.task.lane) is lane]
            lost = [self.pop(serial) for serial in everything]
            for sent in lost:
                self._crew.pool.put(sent.slot)
            return lost
        safe = {ticket.serial for ticket in lane.waiting}
        at = {other: (member.process.pid, self._crew.row(other)[TASK]) for other, member in self._crew.members.items()}
        safe |= {task for _, task in at.values()}
        lost = [sent for serial, sent in self.items() if serial not in safe and not sent.lost]
        for sent in lost:
            # Perhaps another worker has just read it and is about to say so. Then it is made twice and delivered once;
            # its slot stays out until all who might have it are at something else.
            sent.lost, sent.suspects = True, at
        own = self.pop(self._crew.row(number)[TASK], None)
        if own is not None:
            self._crew.pool.put(own.slot)
        self._clear_suspicion(at, safe)
        return lost

    def _clear_suspicion(self, at: dict[int, tuple[int, int]], safe: set[int]) -> None:
        for serial, sent in list(self.items()):
            if sent.suspects is not None and serial not in safe:
                sent.suspects = {number: was for number, was in sent.suspects.items() if at.get(number) == was}
                if not sent.suspects:
                    del self[serial]
                    self._crew.pool.put(sent.slot)
