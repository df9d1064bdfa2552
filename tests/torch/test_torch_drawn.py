"""The states of the global generators, as a loader's state holds them: the quick way and the long way are the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline.torch import drawn
from feedline.torch.drawn import _NumPys, _Pythons

DRAWS = {
    "random": lambda count: [random.random() for _ in range(count)],
    "gauss": lambda count: random.gauss(0, 1),
    "python seed": lambda count: random.seed(count),
    "rand": lambda count: np.random.rand(count),
    "randn": lambda count: np.random.randn(count),
    "numpy seed": lambda count: np.random.seed(count),
}
draws = st.lists(st.tuples(st.sampled_from(sorted(DRAWS)), st.integers(0, 1300)), max_size=6)


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    python, generator, numpy = random.getstate(), np.random.get_bit_generator(), np.random.get_state()
    yield
    random.setstate(python)
    np.random.set_bit_generator(generator)
    np.random.set_state(numpy)


@settings(max_examples=few(100))
@given(draws)
def test_a_state_is_the_same_however_it_is_read_and_reading_changes_nothing(many: Any) -> None:
    for name, count in many:
        DRAWS[name](count)
    quick = _Pythons().get(), _NumPys().get()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(drawn, "python_state", lambda: None)
        assert (_Pythons().get(), _NumPys().get()) == quick
        random.random()
        np.random.randn(3)
        _Pythons().set(quick[0])
        _NumPys().set(quick[1])
    assert (_Pythons().get(), _NumPys().get()) == quick


def test_a_generator_of_another_kind_is_left_out() -> None:
    np.random.set_bit_generator(np.random.PCG64(1))
    assert _NumPys().get() == b""
