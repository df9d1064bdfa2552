"""Python's global generator, seeded, saved and put back: to the last bit, whatever has been drawn meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline.randomness.global_generators import PythonGenerator
from feedline.randomness.redirection import ThreadGenerators

SOURCE = PythonGenerator()

DRAWS = {
    "random": lambda count: [random.random() for _ in range(count)],
    "gauss": lambda count: [random.gauss(0, 1) for _ in range(count)],
    "shuffle": lambda count: random.shuffle(list(range(count))),
    "bits": lambda count: random.getrandbits(1 + count),
    "seed": lambda count: random.seed(count),
    "state": lambda count: random.setstate(random.Random(count).getstate()),
}
draws = st.lists(st.tuples(st.sampled_from(sorted(DRAWS)), st.integers(0, 700)), max_size=4)


def borrowed(value: int = 7) -> Any:
    """Seed it; what to restore."""
    saved: list[Any] = []
    SOURCE.borrow(value, saved)
    return saved[0]


def draw(many: list[tuple[str, int]]) -> None:
    for name, count in many:
        DRAWS[name](count)


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    kept = random.getstate()
    yield
    random.setstate(kept)


@settings(max_examples=few(200))
@given(st.integers(0, 2**64 - 1), draws, draws)
def test_seeding_saving_and_restoring_are_pythons(value: int, before: Any, between: Any) -> None:
    random.gauss(0, 1)
    SOURCE.seed(value)
    assert random.getstate() == random.Random(value).getstate()
    draw(before)
    was = random.getstate()
    kept = borrowed(value)
    assert random.getstate() == random.Random(value).getstate()
    for _ in range(2):  # it is a value: nothing has been drawn from it
        draw(between)
        SOURCE.restore(kept)
        assert random.getstate() == was


def test_a_thread_of_its_own_generators_keeps_to_those() -> None:
    own = ThreadGenerators()
    own.open()
    try:
        shared = random._inst.getstate()  # type: ignore[attr-defined]
        SOURCE.seed(7)
        kept = borrowed(8)
        SOURCE.restore(kept)
        drawn = random.random()
        SOURCE.restore(kept)
        assert random.random() == drawn == random.Random(7).random()
        assert random._inst.getstate() == shared  # type: ignore[attr-defined]
    finally:
        own.close()


def test_functions_that_somebody_has_replaced_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = random.Random(3)
    was = random.getstate()
    for name in ("seed", "getstate", "setstate", "random"):
        monkeypatch.setattr(random, name, getattr(theirs, name))
    kept = borrowed()
    assert random.random() == random.Random(7).random()
    SOURCE.restore(kept)
    assert random.random() == random.Random(3).random()
    monkeypatch.undo()
    assert random.getstate() == was
