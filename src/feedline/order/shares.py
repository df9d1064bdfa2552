"""Each rank's share of every global batch: the same global batches for any number of ranks.

Takes: the plan of global batches, and which rank this is. Gives: a plan with as many tasks, of this rank's rows.
Promises: rank r of R has the rows r, r + R, r + 2 R, … of each global batch, so shares differ by one row at most. What
`feedline.rng()` draws for a row does not depend on R. Every rank has a batch at every step: if the last batch has fewer
rows than there are ranks, those without any get its first row, which counts for nothing (the loader's `weight` is 0).
Not its job: finding the rank (machine.this_rank), ranks that share an order index by index (ranks), torch's samplers
(torch.global_batches), JAX's rows, which follow from a sharding (jax.row_plan).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from feedline.errors import OptionError
from feedline.errors.counting import counted
from feedline.machine.this_rank import ranks as find_ranks
from feedline.messages.task import Task
from feedline.order.plan import IterablePlan, Plan, Tasks
from feedline.order.ranks import draws_as
from feedline.randomness.global_generators import GLOBAL_SOURCES
from feedline.resume.state import Place

DRAWN_APART = (
    "the sampler draws its order from a generator that belongs to the process ({names}), which the other ranks may "
    "have seeded in another way, but global_batch_size needs one order for all ranks: give the sampler a generator "
    "of its own, seeded alike on all ranks, or pass one of feedline's samplers, or shuffle=True"
)

NAMES = ("random", "numpy.random", "torch")
"""Of the global generators, in the order of `GLOBAL_SOURCES`."""


class Share(NamedTuple):
    """Which rows of each global batch are this rank's.

    >>> Share(ranks=3, rank=1).rows([10, 11, 12, 13, 14]), Share(ranks=3, rank=2).rows([10, 11])
    ([11, 14], [10])
    """

    ranks: int = 1
    rank: int = 0

    def rows(self, batch: Any) -> Any:
        """This rank's of all rows; the first one if there are fewer rows than ranks and none for this rank."""
        return batch[self.rank :: self.ranks] if self.rank < len(batch) else batch[:1]

    def count(self, samples: int) -> int:
        """How many of so many rows are this rank's, without one that counts for nothing.

        >>> [Share(4, rank).count(6) for rank in range(4)], Share(4, 3).count(2)
        ([2, 2, 1, 1], 0)
        """
        return max(0, -(-(samples - self.rank) // self.ranks))


WHOLE = Share()


def share_for(global_batch_size: int | None) -> Share:
    """This rank's share as of now: torch.distributed may be initialised after the loader was made, and again."""
    if global_batch_size is None:
        return WHOLE
    count, rank = find_ranks(None, None, alone=True)
    if count > global_batch_size:
        raise OptionError(
            f"global_batch_size={global_batch_size} is less than a sample for each of {counted(count, 'rank')}: "
            f"make it {count} or more"
        )
    return Share(count, rank)


class SharedPlan:
    """A plan of global batches of `size` rows, as the plan of one rank's rows.

    >>> from feedline.order.plan import OrderPlan
    >>> from feedline.order.samplers import SequentialSampler
    >>> plan = SharedPlan(OrderPlan(SequentialSampler(10), 4, False, seed=0), 4, lambda: Share(3, 1))
    >>> len(plan), next(plan.tasks(epoch=0, start=1)).indices
    (3, array([5]))
    """

    def __init__(self, plan: Plan, size: int, share: Callable[[], Share]) -> None:
        self._plan = plan
        self._size = size
        self._share = share

    def __len__(self) -> int:
        return len(self._plan)

    @property
    def repeats(self) -> bool:
        return self._plan.repeats

    def tasks(self, epoch: int, start: int = 0) -> Tasks:
        return self._shared(self._plan.tasks(epoch, start), start * self._size)

    def tasks_from(self, place: Place) -> Tasks:
        return self._shared(self._plan.tasks_from(place), place.samples)

    def predicted(self, epoch: int) -> Tasks | None:
        found = self._plan.predicted(epoch)
        return None if found is None else self._shared(found, 0)

    def _shared(self, tasks: Tasks, begin: int) -> SharedTasks:
        is_foreign, share = isinstance(self._plan, IterablePlan), self._share()
        return SharedTasks(tasks if share.ranks == 1 or not is_foreign else Foreign(tasks), begin, share)


class Foreign:
    """The tasks of a foreign sampler. It is refused if it draws from a global generator while the first indices are
    taken: then the order is this rank's alone."""

    def __init__(self, tasks: Tasks) -> None:
        self._tasks = tasks
        self._is_new = True
        self.sampler_state = tasks.sampler_state
        self.ended = tasks.ended

    def __next__(self) -> Task:
        if not self._is_new:
            return next(self._tasks)
        before = [source.glimpse() for source in GLOBAL_SOURCES]
        task, self._is_new = next(self._tasks), False
        now = [source.glimpse() for source in GLOBAL_SOURCES]
        drawn = [name for name, *states in zip(NAMES, before, now, strict=True) if states[0] != states[1]]
        if drawn:
            raise OptionError(DRAWN_APART.format(names=", ".join(drawn)))
        return task


class SharedTasks:
    """One rank's tasks of an epoch; `begin` is the place in the epoch's order of the first row. `check` is called when
    the first indices have been taken: can all ranks have the same?"""

    def __init__(self, tasks: Tasks, begin: int, share: Share, check: Callable[[], None] | None = None) -> None:
        self._tasks = tasks
        self._begin = begin
        self._share = share
        self._check = check
        self.sampler_state = tasks.sampler_state
        self.ended = tasks.ended

    def __next__(self) -> Task:
        task = next(self._tasks)
        if self._check is not None:
            self._check()
        if self._share.ranks == 1:
            return task
        assert task.indices is not None
        (ranks, rank), samples = self._share, len(task.indices)
        begin, self._begin = self._begin, self._begin + samples
        row = rank if rank < samples else 0
        return task._replace(
            indices=_listed(self._share.rows(task.indices)),
            first=task.first + row * task.stride if task.first >= 0 else -1,
            stride=task.stride * ranks,
            share=(samples, ranks, rank),
            draws_as=draws_as(rank, begin + rank) or task.seq,
        )


def _listed(indices: Any) -> Any:
    """Rows of their own: a view on all indices of a global batch would keep them, and compares as slowly."""
    return np.ascontiguousarray(indices) if isinstance(indices, np.ndarray) else indices
