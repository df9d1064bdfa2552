"""Windows of batches: what follows from counts and seconds, and how far several measurements may be trusted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.observe.window import LITTLE_WAITING, Setting, Window, error_of_mean, spread_of
from feedline.supervise.pace import WorkerWindow

seconds = st.floats(0.001, 100.0)


@given(st.integers(1, 1000), seconds, seconds)
def test_a_batch_takes_its_step_and_its_waiting(batches: int, step: float, waited: float) -> None:
    window = Window(batches, batches * step + waited, waited)
    assert window.step == pytest.approx(step)
    assert window.seconds_per_batch == pytest.approx(step + waited / batches)
    assert window.batches_per_second * window.seconds_per_batch == pytest.approx(1.0)
    assert window.waiting_share == pytest.approx(1 - step * window.batches_per_second)


@given(st.integers(1, 1000), seconds, seconds, seconds)
def test_another_step_leaves_the_waiting(batches: int, taken: float, step: float, waited: float) -> None:
    window = WorkerWindow(batches, batches * taken + waited, waited, samples=7, work=3.0).with_step(step)
    assert window.step == pytest.approx(step)
    assert (window.waited, window.samples, window.work) == (waited, 7, 3.0)


def test_a_loop_is_kept_busy_up_to_a_little_waiting() -> None:
    assert Window(10, 1.0, LITTLE_WAITING).keeps_up
    assert not Window(10, 1.0, LITTLE_WAITING + 1e-6).keeps_up
    assert Window(0, 0.0, 0.0).keeps_up


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        (Setting(0, kind="thread"), "no workers"),
        (Setting(1), "1 process"),
        (Setting(2), "2 processes"),
        (Setting(3, 4, "thread"), "3 threads, prefetch_factor=4"),
        (Setting(2, threads=4), "2 processes, 4 threads each"),
    ],
)
def test_a_setting_in_words(setting: Setting, words: str) -> None:
    assert str(setting) == words


@given(st.lists(seconds, min_size=2, max_size=9), st.floats(0.1, 10.0))
def test_spread_and_error_are_shares(values: list[float], factor: float) -> None:
    scaled = [factor * value for value in values]
    assert spread_of(scaled) == pytest.approx(spread_of(values), abs=1e-9)
    assert error_of_mean(scaled) == pytest.approx(error_of_mean(values), abs=1e-9)
    assert spread_of([values[0]] * 4) == error_of_mean([values[0]] * 4) == 0.0


def test_one_value_says_nothing_of_a_spread() -> None:
    assert (spread_of([3.0]), error_of_mean([3.0]), error_of_mean([0, 0])) == (1.0, 0.0, 0.0)
