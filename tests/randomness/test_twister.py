"""The words of a seed: the same with and without a view on NumPy's memory, and never the same for both modules."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.randomness import twister
from feedline.randomness.twister import WORDS, Words, found_in_numpy, found_in_python, seed_python

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS)
def test_numpys_words_are_those_of_its_own_seeding(seed: int) -> None:
    words = Words()
    words.seed(seed)
    _, key, place, *_ = np.random.RandomState(seed).get_state()
    assert words.numpy.tolist() == list(key)  # type: ignore[call-overload]
    assert bytes(words.block) == np.append(key, np.uint32(place)).astype(np.uint32).tobytes()  # type: ignore[call-overload]


@given(SEEDS)
def test_without_a_view_the_words_are_the_same(seed: int) -> None:
    quick, slow = Words(), Words()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(twister, "found_in_numpy", lambda generator: None)
        slow = Words()
    for words in (quick, slow):
        words.seed(seed)
    assert quick.numpy.tolist() == slow.numpy.tolist()
    assert quick.python.tolist() == slow.python.tolist()
    assert bytes(quick.block) == bytes(slow.block)


@given(SEEDS)
def test_pythons_generator_is_seeded_alike_with_and_without_a_view(seed: int) -> None:
    words, quick, slow = Words(), random.Random(), random.Random()
    words.seed(seed)
    for generator, memory in ((quick, found_in_python(quick)), (slow, None)):
        generator.gauss(0, 1)
        seed_python(generator, memory, words)
    assert quick.getstate() == slow.getstate()
    assert quick.getstate()[1][-1] == WORDS


@given(SEEDS)
def test_the_two_modules_do_not_draw_the_same(seed: int) -> None:
    words, python = Words(), random.Random()
    words.seed(seed)
    seed_python(python, found_in_python(python), words)
    drawn = [python.random() for _ in range(700)]
    assert not set(drawn) & set(np.random.RandomState(seed).random_sample(700).tolist())


def test_another_kind_of_generator_has_no_such_memory() -> None:
    assert found_in_numpy(np.random.PCG64(1)) is None
    assert found_in_python(random.SystemRandom()) is None
