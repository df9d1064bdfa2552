"""Workers around other workers: a layer that keeps their contract by handing everything on.

Takes: workers. Gives: the same contract; a layer overrides what it does differently.
Not its job: anything of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from feedline.arena.slots import SlotPool
from feedline.messages import Outcome, Task
from feedline.observe.meter import Spent
from feedline.observe.recording import Slots
from feedline.supervise.watch import Death, Standing
from feedline.workers.contract import Workers


class AroundWorkers:
    """The contract, kept by those inside; who that is may change while they work."""

    def __init__(self, inside: Workers) -> None:
        self.inside = inside
        self.count = inside.count
        self.do: Callable[[Task], Outcome] | None = None
        self.spent: Callable[[], Spent] = inside.spent
        self.release: Callable[[], None] = inside.release

    @property
    def forked(self) -> bool:
        return self.inside.forked

    @property
    def takes_early(self) -> bool:
        return self.inside.takes_early

    @property
    def pool(self) -> SlotPool | None:
        return self.inside.pool

    def processes(self) -> list[tuple[int, int]]:
        return self.inside.processes()

    def credits(self, prefetch_factor: int) -> int:
        return self.inside.credits(prefetch_factor)

    def start(self) -> None:
        self.inside.start()

    def submit(self, task: Task, urgent: bool = False, early: bool = False) -> None:
        self.inside.submit(task, urgent, early)

    def submit_first(self, tasks: Sequence[Task]) -> None:
        self.inside.submit_first(tasks)

    def resize(self, count: int) -> None:
        self.inside.resize(count)
        self.count = self.inside.count

    def ready(self) -> int:
        return self.inside.ready()

    def wait(self, timeout: float | None) -> list[Outcome | Death]:
        return self.inside.wait(timeout)

    def forget(self, keep_early: bool = False) -> None:
        self.inside.forget(keep_early)

    def standing(self) -> list[Standing]:
        return self.inside.standing()

    def slots(self) -> Slots:
        return self.inside.slots()

    def ask_stacks(self) -> None:
        self.inside.ask_stacks()

    def stack_of(self, number: int) -> str:
        return self.inside.stack_of(number)

    def kill(self, number: int) -> None:
        self.inside.kill(number)

    def revive(self, number: int, elsewhere: bool) -> None:
        self.inside.revive(number, elsewhere)
