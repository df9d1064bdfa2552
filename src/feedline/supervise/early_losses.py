"""What befell the next epoch's tasks while this epoch was under way.

Takes: deaths. Gives: which early tasks were lost, where workers died with them, and what is to be said of that.
Promises: nothing is given out again and nothing is said before that epoch begins: one of its samples may be deadly, and
perhaps nobody will ever ask for it.
Not its job: giving them out again (feedline.ahead, guard), the sentences (telling).
"""

from __future__ import annotations

from feedline.supervise.watch import Death


class EarlyLosses:
    """One epoch's.

    >>> from feedline.messages import Task
    >>> task, losses = Task(3, 1, 0, [7, 8]), EarlyLosses()
    >>> losses.note(Death(0, 99, -9, task, 1, 0, "", (), early=(task,)), "worker 0 was killed")
    True
    >>> losses.places, losses.told
    ({3: [1]}, ['worker 0 was killed'])
    """

    def __init__(self) -> None:
        self.places: dict[int, list[int]] = {}
        """A lost task's number → where a worker died with it, if one did."""
        self.told: list[str] = []

    def note(self, death: Death, told: str) -> bool:
        """Take note. Was it at an early task, so that it is told of later?"""
        was_early = False
        for task in death.early:
            places = self.places.setdefault(task.seq, [])
            if task is death.task:
                places.append(death.place)
                was_early = True
        if was_early:
            self.told.append(told)
        return was_early
