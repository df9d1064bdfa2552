"""Python's global generator, seeded, saved and put back: to the last bit, whatever has been drawn meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline.randomness import global_generators
from feedline.randomness.global_generators import OwnState, PythonGenerator
from feedline.randomness.redirection import ThreadGenerators
from feedline.randomness.twister import WORDS, Words, found_in_python

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


def words_of(value: int) -> Words:
    words = Words()
    words.seed(value & 0xFFFFFFFF)
    return words


def seeded(value: int) -> random.Random:
    """A generator of Python's with the words of this seed, by Python's own means."""
    words = np.random.RandomState(value & 0xFFFFFFFF).get_state()[1][::-1]  # type: ignore[index]
    generator = random.Random()
    generator.setstate((3, (*words.tolist(), WORDS), None))
    return generator


def borrowed(value: int = 7) -> Any:
    """Seed it; what to restore."""
    saved: list[Any] = []
    SOURCE.borrow(value, words_of(value), saved)
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
def test_seeding_saving_and_restoring(value: int, before: Any, between: Any) -> None:
    random.gauss(0, 1)
    SOURCE.seed(value, words_of(value))
    assert random.getstate() == seeded(value).getstate()
    draw(before)
    was = random.getstate()
    kept = borrowed(value)
    assert type(kept) is OwnState  # the quick way
    assert random.getstate() == seeded(value).getstate()
    for _ in range(2):  # it is a value: nothing has been drawn from it
        draw(between)
        SOURCE.restore(kept)
        assert random.getstate() == was


def test_a_thread_of_its_own_generators_keeps_to_those() -> None:
    own = ThreadGenerators()
    own.open()
    try:
        shared = random._inst.getstate()  # type: ignore[attr-defined]
        SOURCE.seed(7, words_of(7))
        kept = borrowed(8)
        SOURCE.restore(kept)
        drawn = random.random()
        SOURCE.restore(kept)
        assert random.random() == drawn == seeded(7).random()
        assert random._inst.getstate() == shared  # type: ignore[attr-defined]
    finally:
        own.close()


def test_where_the_memory_is_not_known_python_does_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(global_generators, "_memory", None)
    random.gauss(0, 1)
    was = random.getstate()
    kept = borrowed()
    assert kept == was
    assert random.random() == seeded(7).random()
    SOURCE.restore(kept)
    assert random.getstate() == was
    assert found_in_python(random.SystemRandom()) is None
