"""Windows of batches: whole rounds or whole epochs, every batch once, with the waiting told from the steps."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline.diagnose import consumer
from feedline.diagnose.consumer import Consumer, NothingLoaded


class Batches:
    """So many in an epoch, and how many have been taken."""

    def __init__(self, *counts: int) -> None:
        self.counts, self.taken, self.begun = counts, 0, 0

    def __iter__(self) -> Iterator[int]:
        count = self.counts[min(self.begun, len(self.counts) - 1)]
        self.begun += 1
        for number in range(count):
            self.taken += 1
            yield number


@given(count=st.integers(1, 60), size=st.integers(1, 20), epochs=st.integers(1, 3))
def test_windows_count_every_batch_once(count: int, size: int, epochs: int) -> None:
    loader = Batches(count)
    taking = Consumer(loader, samples_in=lambda place: size if place < count - 1 else 1)
    windows = [taking.window(0.0, 1) for _ in range(count * epochs)]
    assert {window.batches for window in windows} == {1}
    assert sum(window.samples for window in windows) == ((count - 1) * size + 1) * epochs
    assert (loader.taken, loader.begun) == (count * epochs, epochs)


@given(round_of=st.integers(1, 5), count=st.integers(1, 40))
def test_a_window_is_of_whole_rounds_and_goes_on_where_the_last_ended(round_of: int, count: int) -> None:
    loader = Batches(count)
    taking = Consumer(loader)
    for windows in (1, 2):
        window = taking.window(1e-9, round_of)
        assert (window.batches, window.samples) == (round_of, 0)
        assert window.seconds >= window.waited > 0
        assert loader.taken == round_of * windows
    assert loader.begun == -(-2 * round_of // count)


@given(round_of=st.integers(1, 5), count=st.integers(1, 40))
def test_warming_up_ends_after_an_epoch_or_at_the_first_round_after_its_time(round_of: int, count: int) -> None:
    loader = Batches(count)
    taking = Consumer(loader)
    assert taking.warm_up(0.0, round_of) == (count < round_of)
    assert loader.taken == min(count, round_of)
    assert taking.epoch_batches == (count if count < round_of else None)
    whole = Consumer(Batches(count))
    assert whole.warm_up(1e9, round_of)
    assert whole.epoch_batches == count


def test_epochs_are_whole() -> None:
    loader = Batches(7)
    window = Consumer(loader, samples_in=lambda place: 4 if place < 6 else 1).epochs(1e-9)
    assert (window.batches, window.samples, window.waiting_share) == (7, 25, 1.0)
    assert (loader.taken, loader.begun) == (7, 1)


@pytest.mark.parametrize(("counts", "words"), [((0,), "gives no batches"), ((2, 0), "only once, and then an empty")])
def test_an_empty_epoch_is_said(counts: tuple[int, ...], words: str) -> None:
    with pytest.raises(NothingLoaded, match=words):
        Consumer(Batches(*counts)).window(0.0, 3)


def test_steps_are_no_waiting_and_the_end_of_the_time_cuts_a_window_short(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(consumer, "clock", lambda: now[0])

    def slow() -> Iterator[int]:
        while True:
            now[0] += 1.0
            yield 0

    def step() -> None:
        now[0] += 10.0

    taking = Consumer(slow(), step)
    window = taking.window(1.0, 3)
    assert (window.batches, window.seconds, window.waited, window.step) == (3, 33.0, 3.0, 10.0)
    cut = taking.window(1.0, 3, until=50.0)
    assert (cut.batches, cut.waited) == (1, 1.0)
    assert taking.window(1.0, 3, until=50.0).batches == 0
