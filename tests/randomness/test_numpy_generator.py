"""NumPy's global generator, saved and put back: to the last bit, whatever has been drawn before and in between."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline.randomness import global_generators, twister
from feedline.randomness.global_generators import NumPyGenerator, OwnState
from feedline.randomness.redirection import ThreadGenerators
from feedline.randomness.twister import Words

SOURCE = NumPyGenerator()

DRAWS = {
    "rand": lambda count: np.random.rand(count),
    "randn": lambda count: np.random.randn(count),
    "integers": lambda count: np.random.randint(0, 2**31, count),
    "shuffle": lambda count: np.random.permutation(count),
    "seed": lambda count: np.random.seed(count),
    "state": lambda count: np.random.set_state(np.random.RandomState(count).get_state()),
}
draws = st.lists(st.tuples(st.sampled_from(sorted(DRAWS)), st.integers(0, 1300)), max_size=4)


def state() -> tuple[Any, ...]:
    """To the last bit."""
    name, words, *rest = np.random.get_state()
    return name, words.tolist(), *rest  # type: ignore[union-attr]


def words_of(value: int) -> Words:
    words = Words()
    words.seed(value)
    return words


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
    generator, kept = np.random.get_bit_generator(), np.random.get_state()
    yield
    np.random.set_bit_generator(generator)
    np.random.set_state(kept)


@settings(max_examples=few(200))
@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1), draws, draws)
def test_borrowing_seeds_it_and_restoring_brings_all_of_it_back(
    mine: int, seed: int, before: Any, between: Any
) -> None:
    np.random.seed(mine)
    draw(before)
    was = state()
    kept = borrowed(seed)
    assert type(kept) is OwnState  # the quick way
    now = state()
    np.random.seed(seed)
    assert state() == now
    for _ in range(2):  # it is a value: nothing has been drawn from it
        draw(between)
        SOURCE.restore(kept)
        assert state() == was


@pytest.mark.parametrize("place", [0, 1, 620, 621, 622, 623, 624])
@pytest.mark.parametrize("pending", [False, True])
def test_every_place_among_the_words(place: int, pending: bool) -> None:
    words = np.random.RandomState(3).get_state()[1]  # type: ignore[index]
    np.random.set_state(("MT19937", words, place, int(pending), 0.75 if pending else 0.0))
    was = state()
    kept = borrowed()
    np.random.randn(3)
    SOURCE.restore(kept)
    assert state() == was


def test_a_generator_of_another_kind_is_saved_too() -> None:
    np.random.set_bit_generator(np.random.PCG64(5))
    drawn = np.random.rand(3).tolist()
    np.random.set_bit_generator(np.random.PCG64(5))
    kept = borrowed()
    np.random.rand(7)
    SOURCE.restore(kept)
    assert np.random.rand(3).tolist() == drawn


@pytest.mark.parametrize("mine", [np.random.MT19937(7), np.random.PCG64(7)])
@pytest.mark.parametrize("other", [np.random.MT19937(5), np.random.PCG64(5)])
@pytest.mark.parametrize("pending", [0, 1])
def test_a_generator_that_was_exchanged_meanwhile_comes_back(mine: Any, other: Any, pending: int) -> None:
    np.random.set_bit_generator(mine)
    np.random.randn(pending)
    kept = borrowed()
    SOURCE.restore(kept)
    drawn = np.random.randn(3).tolist()
    SOURCE.restore(kept)
    np.random.set_bit_generator(other)
    np.random.randn()
    SOURCE.restore(kept)
    assert np.random.get_bit_generator() is mine
    assert np.random.randn(3).tolist() == drawn


def test_two_generators_are_told_apart() -> None:
    one, two = np.random.MT19937(1), np.random.MT19937(2)
    drawn = {}
    for name, generator in (("one", one), ("two", two), ("one", one)):
        np.random.set_bit_generator(generator)
        kept = borrowed()
        SOURCE.restore(kept)
        drawn.setdefault(name, np.random.rand())
        SOURCE.restore(kept)
        assert np.random.rand() == drawn[name]
        SOURCE.restore(kept)


def test_in_a_worker_thread_it_is_the_threads_own() -> None:
    np.random.seed(7)
    was = state()
    generators = ThreadGenerators()
    generators.open()
    try:
        generators.enter(5)
        kept = borrowed()
        SOURCE.restore(kept)
        drawn = np.random.rand()
        SOURCE.restore(kept)
        assert np.random.rand() == drawn == np.random.RandomState(5).rand()
    finally:
        generators.close()
    assert state() == was


@pytest.mark.parametrize("generator", [np.random.MT19937, np.random.PCG64, np.random.Philox])
def test_what_is_drawn_after_seeding_does_not_depend_on_a_normal_number_to_come(generator: Any) -> None:
    drawn = []
    for pending in (0, 1):
        np.random.set_bit_generator(generator(5))
        np.random.randn(pending)
        kept = borrowed(7)
        drawn.append(np.random.randn(1).tolist())
        SOURCE.seed(7, words_of(7))
        drawn.append(np.random.randn(1).tolist())
        SOURCE.restore(kept)
    assert drawn == drawn[:1] * 4


@pytest.mark.parametrize("pending", [0, 1])
def test_where_the_memory_is_not_as_known_numpys_functions_do_it(pending: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Otherwise(ctypes.c_uint32 * 625):  # type: ignore[misc]
        @classmethod
        def from_address(cls, address: int) -> Any:
            return cls()  # all zeros

    monkeypatch.setattr(twister, "_Block", Otherwise)
    monkeypatch.setattr(global_generators, "_known", (None, None))
    np.random.seed(3)
    np.random.randn(pending)
    was = state()
    kept = borrowed(5)
    assert type(kept) is not OwnState
    assert np.random.randn() == np.random.RandomState(5).randn()
    for _ in range(2):
        np.random.rand(7)
        SOURCE.restore(kept)
        assert state() == was
