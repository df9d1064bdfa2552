"""The step to the devices, with a loop that says by itself when a batch is ready."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from jax_processes import in_jax


class Scripted(Iterator[Any]):
    """A loop: its batches (or errors) are ready when `ready` says so. It counts what was taken."""

    samples_given = 2

    def __init__(self, passed: Any, batches: list[Any], ready: list[int]) -> None:
        self.passed, self.batches, self.ready, self.taken, self.waited = passed, batches, ready, 0, 0

    def __next__(self) -> Any:
        from feedline.engine.ledger import Entry
        from feedline.messages.outcome import Outcome
        from feedline.messages.task import Task

        if self.taken == len(self.batches):
            self.passed.finished = True
            raise StopIteration
        entry = Entry(Task(self.taken, 0, 0, [0, 0], share=(2, 1, 0)), run=0)
        entry.outcome = Outcome(self.taken, None, 2)
        self.taken += 1
        self.passed.delivered(entry, oldest=self.taken)
        batch = self.batches[self.taken - 1]
        if isinstance(batch, Exception):
            raise batch
        return batch

    def is_ready(self) -> bool:
        return self.taken < self.ready[0]

    def moved(self, nanoseconds: int) -> None:
        self.waited += 1


def placed(batches: list[Any], depth: int, ready: list[int]) -> tuple[Any, Any, Any]:
    import jax

    from feedline.jax.layout import Layout
    from feedline.jax.placing import Placer
    from feedline.jax.shapes import Counted
    from feedline.jax.transfer import How, Placed
    from feedline.resume.passed import Passed
    from feedline.resume.state import Place

    passed, layout = Passed(Place()), Layout(jax.devices()[0])
    loop = Scripted(passed, batches, ready)
    how = How(layout, Placer(layout, False), Counted(), print, depth, 2, False, None, False)
    return Placed(loop, passed, how), loop, passed  # type: ignore[arg-type]


def batch(number: int) -> Any:
    return np.full(2, number, np.float32)


@pytest.mark.parametrize("depth", [0, 1, 3])
@in_jax()
def test_as_many_batches_as_asked_for_are_put_ahead_and_only_those_given_count(depth: int) -> None:
    iterator, loop, passed = placed([batch(n) for n in range(6)], depth, ready=[6])
    for number in range(6):
        assert next(iterator).tolist() == [number] * 2
        assert loop.taken == loop.waited == min(6, number + 1 + depth)
        assert (passed.place.batches, passed.place.samples) == (number + 1, 2 * (number + 1))
    assert next(iterator, "end") == "end"
    assert passed.finished


@in_jax()
def test_nothing_that_is_not_ready_is_waited_for() -> None:
    ready = [1]
    iterator, loop, _ = placed([batch(n) for n in range(4)], 2, ready)
    assert next(iterator).tolist() == [0, 0]
    assert loop.taken == 1
    ready[0] = 2
    assert next(iterator).tolist() == [1, 1]
    assert loop.taken == 2
    ready[0] = 4
    next(iterator)
    assert loop.taken == 4


@in_jax()
def test_an_error_of_a_later_batch_waits_for_its_turn() -> None:
    iterator, _, passed = placed([batch(0), KeyError("bad"), batch(2)], 3, ready=[3])
    assert next(iterator).tolist() == [0, 0]
    assert passed.place.batches == 1
    with pytest.raises(KeyError):
        next(iterator)
    assert passed.place.batches == 2
    assert next(iterator).tolist() == [2, 2]


@in_jax()
def test_a_copy_that_has_not_arrived_is_counted() -> None:
    iterator, _, _ = placed([batch(0), batch(1)], 0, ready=[2])
    counters = iterator._how.counters

    class Slow:
        def is_ready(self) -> bool:
            return False

    next(iterator)
    assert counters.late == 0
    iterator._ahead.append(iterator._take()._replace(arrays=[Slow()]))
    next(iterator)
    assert counters.late == 1
