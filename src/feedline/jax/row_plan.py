"""This process's rows of each global batch, as tasks.

Takes: the plan of global batches (the core's), and the layout. Gives: a plan with as many tasks, in which each has the
indices of this process's rows only, and says of how many samples the global batch is.
Promises: a row's index, and what `feedline.rng()` draws for it, do not depend on the number of processes. With
`pad_to`, a batch of fewer samples repeats its last index: padding can be on one process alone.
Not its job: streams, which have no indices (loader), masks (placing).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.errors import OptionError
from feedline.jax.layout import Layout, Rows
from feedline.messages.task import Task
from feedline.order.plan import Plan, Tasks
from feedline.resume.state import Place


class RowPlan:
    """The plan of one process."""

    def __init__(self, plan: Plan, layout: Layout, pad_to: int) -> None:
        self._plan = plan
        self._layout = layout
        self._pad_to = pad_to

    def __len__(self) -> int:
        return len(self._plan)

    @property
    def repeats(self) -> bool:
        return self._plan.repeats

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        return RowTasks(self._plan.tasks(epoch, start), self._layout, self._pad_to)

    def tasks_from(self, place: Place) -> Tasks:
        return RowTasks(self._plan.tasks_from(place), self._layout, self._pad_to)

    def predicted(self, epoch: int) -> Tasks | None:
        found = self._plan.predicted(epoch)
        return None if found is None else RowTasks(found, self._layout, self._pad_to)


class RowTasks:
    """The tasks of one epoch."""

    def __init__(self, tasks: Tasks, layout: Layout, pad_to: int) -> None:
        self._tasks = tasks
        self._layout = layout
        self._pad_to = pad_to
        self.sampler_state = tasks.sampler_state
        self.ended = tasks.ended

    def __next__(self) -> Task:
        task = next(self._tasks)
        assert task.indices is not None
        samples = len(task.indices)
        rows = self._layout.rows(max(samples, self._pad_to))
        if rows.groups == 1:  # all rows are here: what is missing is filled in afterwards
            return task._replace(share=(samples, 1, 0))
        indices = padded(task.indices, rows.size) if samples < rows.size else task.indices
        mine = indices[rows.mine] if isinstance(indices, np.ndarray) else [indices[row] for row in rows.mine]
        first, stride = _places(task, rows)
        return task._replace(indices=mine, first=first, stride=stride, share=(samples, rows.groups, rows.group))


def padded(indices: Any, size: int) -> Any:
    """As many indices, the last of them repeated.

    >>> padded([3, 4], 4)
    [3, 4, 4, 4]
    """
    missing = size - len(indices)
    if isinstance(indices, np.ndarray):
        return np.concatenate([indices, np.repeat(indices[-1:], missing)])
    return [*indices, *[indices[-1]] * missing]


def _places(task: Task, rows: Rows) -> tuple[int, int]:
    """Where the rows are in the epoch: if an index may come twice, that decides what `rng()` draws."""
    if task.first < 0:
        return task.first, task.stride
    check_places(rows)
    assert rows.step is not None
    return task.first + int(rows.mine[0]) * task.stride, task.stride * rows.step


def check_places(rows: Rows) -> None:
    """A task says where its rows are by the first place and one distance."""
    if rows.groups > 1 and not rows.is_even:
        raise OptionError(
            "the sampler may give an index twice, and the rows of some process are not evenly spaced in the batch: "
            "make the mesh from jax.devices() in their own order"
        )
