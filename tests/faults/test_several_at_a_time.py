"""Faults in workers that read several samples at a time: the right one is named, or none."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

import numpy as np
import pytest
from kinds import FORK, THREADS

from feedline import DataLoader, StalledSample
from feedline.supervise import asking

BAD = 13
SAMPLE = f"dataset[{BAD}] (photo {BAD})"


@pytest.fixture(autouse=True)
def datasets_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need more than a moment to say what a sample is."""
    monkeypatch.setattr(asking, "MOMENT", 100)


class Faulty:
    """Sample `BAD` does something."""

    def __init__(self, fault: Callable[[], Any]) -> None:
        self.fault = fault

    def __len__(self) -> int:
        return 24

    def describe(self, index: int) -> str:
        return f"photo {index}"

    def __getitem__(self, index: int) -> Any:
        if index == BAD:
            self.fault()
        return index


class Awaited(Faulty):
    async def __getitem__(self, index: int) -> Any:
        if index == BAD and (awaited := self.fault()) is not None:
            await awaited
        return index


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@contextmanager
def noted(then: Callable[[str], None] = lambda text: None) -> Iterator[list[str]]:
    """The warnings, and what to do at each."""
    texts: list[str] = []

    def note(message: Any, *rest: Any, **more: Any) -> None:
        texts.append(str(message))
        then(texts[-1])

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = note  # put back by catch_warnings
        yield texts


@pytest.mark.parametrize(
    ("kind", "dataset", "how"),
    [
        (FORK, Faulty, "in_a_thread"),
        (THREADS, Faulty, "in_a_thread"),
        (FORK, Awaited, "in_a_coroutine"),
        (THREADS, Awaited, "in_a_coroutine"),
        (FORK, Awaited, "in_a_thread"),  # which stops the whole loop
    ],
)
def test_a_wait_that_lasts_names_the_sample_and_shows_where_it_is_read(
    kind: dict[str, Any], dataset: Any, how: str
) -> None:
    """It is stuck until a warning says all there is to say."""
    released = multiprocessing.get_context("fork").Event()

    async def in_a_coroutine() -> None:
        while not released.is_set():
            await asyncio.sleep(0.01)

    def in_a_thread() -> None:
        released.wait(300)

    place = f"reading {SAMPLE} for batch 3 of epoch 0, sample 2 of 4, the first of several that it waits for"

    def release(text: str) -> None:
        if place in text and f"in {how}" in text and "concurrent.py" not in text:
            released.set()

    stuck = in_a_coroutine if how == "in_a_coroutine" else in_a_thread
    with noted(release), DataLoader(dataset(stuck), 4, fetch_threads=3, stall_warning=0.4, **kind) as loader:
        assert len(list(loader)) == 6
    assert released.is_set()


@pytest.mark.parametrize("dataset", [Faulty, Awaited])
def test_a_sample_that_kills_is_found_by_reading_one_by_one(dataset: Any) -> None:
    with noted() as texts, DataLoader(dataset(kill), 4, fetch_threads=4, on_error="skip", **FORK) as loader:
        found = [batch.tolist() for batch in loader]
    assert found[3] == [12, 14, 15]
    assert [*chain(*found)] == [index for index in range(24) if index != BAD]
    first, second, third = texts
    for text in (first, second):  # which of the four it was is not known
        assert "while reading batch 3 of epoch 0 (indices [12, 13, 14, 15])" in text
        assert "dataset[" not in text
    assert "one by one" in second
    assert f"while reading {SAMPLE} for batch 3 of epoch 0, sample 2 of 4: " in third
    assert f"{SAMPLE} is left out from now on" in third


def test_a_sample_that_stalls_again_is_given_up() -> None:
    options = {**FORK, "num_workers": 1, "fetch_threads": 4, "on_stall": "restart", "timeout": 0.4}
    with noted() as texts, DataLoader(Faulty(lambda: time.sleep(600)), 4, **options) as loader:
        iterator = iter(loader)
        found = [next(iterator).tolist() for _ in range(3)]
        with pytest.raises(StalledSample) as stalled:
            next(iterator)
        found += [batch.tolist() for batch in iterator]
    assert [*chain(*found)] == [index for index in range(24) if not 12 <= index < 16]
    assert str(stalled.value).startswith(f"{SAMPLE} has stalled 2 workers")
    assert any(f"reading {SAMPLE}" in text for text in texts)


def test_a_worker_that_leaves_lets_its_coroutines_end(tmp_path: Any) -> None:
    """Told to leave in the middle of a batch: what is awaited is cancelled, and `finally` runs."""

    class Ending(Awaited):
        async def __getitem__(self, index: int) -> Any:
            if index >= 4:
                (tmp_path / f"begun {index}").write_text(str(os.getpid()))
                try:
                    await asyncio.Event().wait()
                finally:
                    (tmp_path / f"ended {index}").touch()
            return np.zeros(1)

    with DataLoader(Ending(kill), 4, num_workers=1, multiprocessing_context="fork") as loader:
        iterator = iter(loader)
        next(iterator)
        wait_for(lambda: len(list(tmp_path.glob("begun *"))) == 4 and (tmp_path / "begun 7").read_text() != "")
        # As close() does, which does not wait for long.
        os.kill(int((tmp_path / "begun 7").read_text()), signal.SIGTERM)
        wait_for(lambda: len(list(tmp_path.glob("ended *"))) == 4)


def wait_for(happened: Callable[[], bool]) -> None:
    patience = time.monotonic() + 300
    while not happened():
        assert time.monotonic() < patience
        time.sleep(0.01)
