"""scale_learning_rate and warmup."""

from __future__ import annotations

import pickle
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline import OptionError, scale_learning_rate, warmup

sizes = st.integers(1, 1 << 20)


@given(rate=st.floats(1e-8, 10), small=sizes, large=sizes)
def test_rates_follow_their_rule_and_come_back(rate, small, large):
    assert scale_learning_rate(rate, large, small) == pytest.approx(rate * large / small)
    assert scale_learning_rate(rate, large, small, rule="sqrt") ** 2 == pytest.approx(rate**2 * large / small)
    for rule in ("linear", "sqrt"):
        there = scale_learning_rate(rate, large, small, rule=rule)
        assert scale_learning_rate(there, small, large, rule=rule) == pytest.approx(rate)


@given(steps=st.integers(0, 1000), start=st.none() | st.floats(0, 1))
def test_a_warmup_rises_evenly_to_one_and_stays(steps, start):
    factor = warmup(steps, start)
    factors = [factor(step) for step in range(steps + 3)]
    assert factors[steps:] == [1, 1, 1]
    if steps:
        assert factors[0] == pytest.approx(1 / (steps + 1) if start is None else start)
        rises = [after - before for before, after in pairwise(factors[: steps + 1])]
        assert rises == pytest.approx([(1 - factors[0]) / steps] * steps, abs=1e-12)


def test_what_comes_then_counts_from_the_end_of_the_warmup():
    factor = warmup(10, then=lambda step: 100 + step)
    assert [factor(10), factor(12)] == [100, 102]


def test_a_warmup_can_be_pickled():
    assert pickle.loads(pickle.dumps(warmup(10)))(3) == warmup(10)(3)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda: scale_learning_rate(0, 8, 4), "rate"),
        (lambda: scale_learning_rate("0.1", 8, 4), "rate"),
        (lambda: scale_learning_rate(0.1, 0, 4), "batch_size"),
        (lambda: scale_learning_rate(0.1, 8, 4.0), "base_batch_size"),
        (lambda: scale_learning_rate(0.1, 8, 4, rule="cubic"), "rule"),
        (lambda: warmup(-1), "steps"),
        (lambda: warmup(5, start=1.5), "start"),
        (lambda: warmup(5, start=True), "start"),
        (lambda: warmup(5, then=3), "then"),
    ],
)
def test_wrong_arguments_are_named(call, named):
    with pytest.raises(OptionError, match=named):
        call()
