"""`fetch_threads=N`: a batch's samples N at a time, and nothing else is different."""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few, quick_kinds

import feedline
from feedline import DataLoader, OptionError, get_worker_info, rng
from feedline.messages.marks import Marking
from feedline.messages.progress import AT_ONCE, COLLATING, PLACE, SINCE, among, place_among, unwatched
from feedline.messages.task import Task
from feedline.reading.fetch_threads import ConcurrentReading, FetchThreads, Wanted
from feedline.supervise import watchdog

PATIENCE = 600.0


class Drawing:
    """What each sample draws, from everything there is to draw from."""

    def __len__(self) -> int:
        return 23

    def __getitem__(self, index: int) -> Any:
        return index, rng().random(), random.random(), random.random(), np.random.rand(), np.random.rand()


class Does:
    """Sample i does what `do(i)` does."""

    def __init__(self, do: Callable[[int], Any], length: int = 12) -> None:
        self.do, self.length = do, length

    def __len__(self) -> int:
        return self.length

    def describe(self, index: int) -> str:
        return f"photo {index}"

    def __getitem__(self, index: int) -> Any:
        done = self.do(index)
        return index if done is None else done


def batches(dataset: Any, **options: Any) -> list[Any]:
    with DataLoader(dataset, seed=3, **{"batch_size": 4, **options}) as loader:
        return [np.asarray(batch).tolist() for batch in loader]


ALONE = batches(Drawing(), batch_size=7, fetch_threads=1)


@given(threads=st.integers(1, 9), kind=st.sampled_from([INLINE, THREADS]))
@settings(max_examples=few(60))
def test_what_a_sample_draws_depends_on_nobody_else(threads: int, kind: dict[str, Any]) -> None:
    assert batches(Drawing(), batch_size=7, fetch_threads=threads, **kind) == ALONE


def test_nor_does_it_in_processes() -> None:
    assert batches(Drawing(), batch_size=7, fetch_threads=5, **FORK) == ALONE


def test_no_two_samples_draw_the_same() -> None:
    columns = np.concatenate([np.asarray(batch) for batch in ALONE], axis=1)
    assert len(set(columns[1:].ravel().tolist())) == 5 * 23  # nor the same twice
    with DataLoader(Drawing(), 7, fetch_threads=3, seed=3) as loader:
        first, second = ([np.asarray(batch)[2].tolist() for batch in loader] for _ in range(2))
    assert first != second  # another epoch


@given(threads=st.integers(1, 6), size=st.integers(1, 9), shuffle=st.booleans(), repeat=st.booleans())
@settings(max_examples=few(60))
def test_order_and_rng_are_those_without(threads: int, size: int, shuffle: bool, repeat: bool) -> None:
    sampler = [3, 3, 1, 20, 1, 7, 3] if repeat else None
    options = {"batch_size": size, "shuffle": None if repeat else shuffle, "sampler": sampler}
    with_threads = batches(Drawing(), fetch_threads=threads, **options)
    assert [batch[:2] for batch in with_threads] == [batch[:2] for batch in batches(Drawing(), **options)]


@quick_kinds
def test_so_many_at_a_time_and_no_more(kind: dict[str, Any]) -> None:
    meet, lock, reading = threading.Barrier(3), threading.Lock(), []

    def do(index: int) -> int:
        with lock:
            reading.append(index)
            now = len(reading)
        meet.wait(PATIENCE)  # all three are here
        with lock:
            reading.remove(index)
        return now

    options = {**kind, "num_workers": 1} if kind else kind  # each process has its own barrier, all threads have one
    assert max(max(batch) for batch in batches(Does(do), batch_size=6, fetch_threads=3, **options)) == 3


@quick_kinds
def test_the_first_error_in_order_is_raised_and_the_next_batch_comes(kind: dict[str, Any]) -> None:
    failed = threading.Event()

    def do(index: int) -> None:
        if index == 2:
            failed.set()
            raise ValueError("the later one, sooner")
        if index == 1:
            assert failed.wait(PATIENCE)
            raise KeyError("the earlier one, later")

    with DataLoader(Does(do), 4, fetch_threads=4, **kind) as loader:
        iterator = iter(loader)
        with pytest.raises(KeyError, match="the earlier one") as caught:
            next(iterator)
        assert [batch.tolist() for batch in iterator] == [[4, 5, 6, 7], [8, 9, 10, 11]]
    notes = "\n".join(caught.value.__notes__)
    assert "raised by dataset[1] (photo 1)" in notes
    assert "making batch 0 of epoch 0" in notes


def test_after_an_error_no_more_is_begun_and_what_is_under_way_is_waited_for() -> None:
    log: list[str] = []
    is_read, may_end = threading.Event(), threading.Event()

    def do(index: int) -> None:
        log.append(f"begin {index}")
        if index == 0:
            assert is_read.wait(PATIENCE)
            threading.Timer(0.1, may_end.set).start()
            raise ValueError
        if index == 1:
            is_read.set()
            assert may_end.wait(PATIENCE)
        log.append(f"end {index}")

    with DataLoader(Does(do), 6, fetch_threads=2) as loader:
        iterator = iter(loader)
        with pytest.raises(ValueError):
            next(iterator)
        assert sorted(log) == ["begin 0", "begin 1", "end 1"]
        next(iterator)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_bad_samples_are_passed_over_as_without(kind: dict[str, Any], on_error: str) -> None:
    def do(index: int) -> None:
        if index % 5 == 1:
            raise ValueError(f"sample {index}")

    found = []
    for threads in (0, 1, 3):
        with DataLoader(Does(do), 4, fetch_threads=threads, on_error=on_error, **kind) as loader:
            given = [batch.tolist() for batch in loader]
            bad = [(each.index, each.place, each.what, each.error, each.replacement) for each in loader.errors()]
            assert all("in do" in each.trace for each in loader.errors())
        found.append((given, sorted(bad)))
    assert found[0] == found[1] == found[2]
    assert len(found[0][1]) == 3


def test_a_sample_that_wants_to_leave_leaves() -> None:
    def do(index: int) -> None:
        if index == 1:
            raise SystemExit(5)

    with DataLoader(Does(do), 4, fetch_threads=2, on_error="skip") as loader:
        with pytest.raises(SystemExit) as caught:
            next(iter(loader))
    assert caught.value.code == 5


def test_ctrl_c_does_not_wait_for_the_samples(capfd: Any) -> None:
    there, may_end = threading.Barrier(2), threading.Event()

    def do(index: int) -> None:
        there.wait(PATIENCE)
        if index == 0:
            os.kill(os.getpid(), signal.SIGINT)
        may_end.wait(PATIENCE)

    began = threading.active_count()
    with DataLoader(Does(do), 2, fetch_threads=2) as loader:
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
        may_end.set()
    watchdog.rest()
    assert threading.active_count() <= began + 2  # the threads end, now that they can (conftest looks)


@quick_kinds
def test_a_worker_is_itself_in_its_threads(kind: dict[str, Any]) -> None:
    def do(index: int) -> int:
        info = get_worker_info()
        return -1 if info is None else info.id * 10 + info.num_workers

    found = {number for batch in batches(Does(do), fetch_threads=3, **kind) for number in batch}
    assert found <= ({2, 12} if kind else {-1})
    assert get_worker_info() is None


def test_the_same_threads_serve_all_batches() -> None:
    def do(index: int) -> int:
        return threading.get_ident()

    found = {ident for batch in batches(Does(do), batch_size=5, fetch_threads=3) for ident in batch}
    assert len(found) <= 3
    assert threading.get_ident() not in found


@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_a_loader_that_is_dropped_ends_its_threads(kind: dict[str, Any]) -> None:
    loader = DataLoader(Does(lambda index: None), 4, fetch_threads=4, **kind)
    iterator = iter(loader)
    next(iterator)
    named = [thread for thread in threading.enumerate() if thread.name.startswith("feedline-fetch")]
    assert named
    del iterator, loader
    gc.collect()
    for thread in named:
        thread.join(PATIENCE)
    assert not any(thread.is_alive() for thread in named)


def test_a_forked_copy_starts_threads_of_its_own() -> None:
    threads = FetchThreads(2)
    try:
        threads.read(reading := a_reading(Does(lambda index: None), 4, limit=2))
        assert reading.samples == [0, 1, 2, 3]
        old, threads._owner = list(threads._threads), -1  # as if this were the copy
        threads._waiting.put(None)
        threads.read(reading := a_reading(Does(lambda index: None), 4, limit=2))
        assert reading.samples == [0, 1, 2, 3]
        assert not set(old) & set(threads._threads)
    finally:
        threads.close()


def test_threads_that_are_idle_keep_no_samples() -> None:
    threads = FetchThreads(2)
    try:
        threads.read(reading := a_reading(Does(lambda index: None), 4, limit=2))
        last = weakref.ref(reading)
        del reading
        patience = time.monotonic() + PATIENCE
        while last() is not None and time.monotonic() < patience:  # they are on their way
            time.sleep(0.001)
        assert last() is None
    finally:
        threads.close()


def test_the_users_own_draws_go_on_as_if_nothing_had_been() -> None:
    def draw() -> list[float]:
        return [random.random(), np.random.rand()]

    random.seed(1), np.random.seed(1)
    expected = draw() + draw()
    random.seed(1), np.random.seed(1)
    before = draw()
    batches(Drawing(), fetch_threads=3)
    assert before + draw() == expected
    assert random.random.__name__ == "random"
    assert getattr(random.random, "__self__", None) is random._inst  # nothing of ours is left in the module


def test_a_loader_inside_a_sample_is_its_own() -> None:
    def inner(index: int) -> Any:
        return rng().random() if index == 3 else float(np.sum(batches(Drawing(), batch_size=7, drop_last=True)))

    once, again = (batches(Does(inner, 4), fetch_threads=threads) for threads in (1, 4))
    assert once == again
    assert once[0][0] == once[0][1] == once[0][2]


@pytest.mark.filterwarnings("ignore:reading several samples at once failed")
def test_nor_does_it_take_the_samples_draws_where_it_is_read_in_two_ways() -> None:
    class OnlyOneByOne(Drawing):
        def __getitems__(self, indices: list[int]) -> Any:
            raise ValueError("not so")

    def inner(index: int) -> Any:
        batches(OnlyOneByOne(), on_error="skip")
        return drawn(index)

    def drawn(index: int) -> Any:
        return random.random(), np.random.rand()

    assert batches(Does(inner, 4), fetch_threads=2) == batches(Does(drawn, 4), fetch_threads=2)


@pytest.mark.parametrize(
    ("dataset", "options", "words"),
    [
        (Drawing(), {"fetch_threads": -1}, "fetch_threads must be at least 0"),
        (Drawing(), {"fetch_threads": 2.0}, "fetch_threads must be a whole number"),
        (Drawing(), {"fetch_threads": True}, "fetch_threads must be a whole number"),
        (Drawing(), {"fetch_threads": 2, "batch_size": None}, "with batch_size=None there is only one"),
        (feedline.ArrayDataset([1, 2]), {"fetch_threads": 2}, "ArrayDataset reads many at once"),
        (feedline.ChainDataset([[1, 2]]), {"fetch_threads": 2}, "a stream gives one element after the other"),
    ],
)
def test_what_cannot_be_is_refused(dataset: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises((OptionError, feedline.OptionTypeError), match=words):
        DataLoader(dataset, **options)
    assert DataLoader(dataset, **{**options, "fetch_threads": 0}).fetch_threads == 0


def test_a_generator_that_samples_share_is_warned_of() -> None:
    data = Drawing()
    data.own = np.random.default_rng(0)  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match=r"dataset\.own is a random generator .* several are read at a time"):
        batches(data, fetch_threads=2)
    batches(data, fetch_threads=1)


def test_a_batch_that_is_recorded_is_read_in_one_piece() -> None:
    marking = Marking(unwatched())
    for place, time_ in ((among(2), 5), (among(4), 6), (COLLATING, 9)):
        marking[PLACE] = place
        marking[SINCE] = time_
    assert marking.take() == ((AT_ONCE, COLLATING), (5, 9))


def test_what_is_recorded_does_not_pretend_to_know_each_samples_time(tmp_path: Path) -> None:
    with DataLoader(Drawing(), 7, fetch_threads=3) as loader:
        with loader.report(tmp_path / "run.html"), loader.trace(tmp_path / "run.json"):
            list(loader)
        assert "sample " not in (tmp_path / "run.json").read_text().replace("samples", "")
        assert (tmp_path / "run.html").stat().st_size > 1000


def a_reading(dataset: Any, count: int, limit: int = 2, row: Any = None, to_the_end: bool = False) -> ConcurrentReading:
    task = Task(0, 0, 7, list(range(count)))
    wanted = [Wanted(place + 10, place, (place,)) for place in range(count)]
    reading = ConcurrentReading(dataset, task, wanted, unwatched() if row is None else row, to_the_end)
    reading.limit = limit
    return reading


@given(st.data(), st.integers(1, 8), st.integers(2, 4), st.booleans())
@settings(max_examples=few(300))
def test_the_row_says_which_sample_is_waited_for(data: Any, count: int, limit: int, to_the_end: bool) -> None:
    """Whoever finishes when and however: without threads, by hand."""
    row = unwatched()
    reading = a_reading(None, count, limit, row, to_the_end)
    under_way: dict[int, int] = {}
    began: dict[int, int] = {}
    failed: set[int] = set()

    def take(reader: int, finished: int = -1) -> None:
        number = reading.take(reader, finished)
        if number >= 0:
            assert number == len(began)  # in order
            assert not failed or to_the_end
            under_way[number], began[number] = reader, reading._began[number]

    take(0)
    joined = 1
    while reading.wants_another():
        take(joined)
        joined += 1
    assert joined <= limit
    while under_way:
        first = min(under_way)
        assert (place_among(row[PLACE]), row[SINCE]) == (first + 10, began[first])
        assert reading.first_reader() == under_way[first]
        number = data.draw(st.sampled_from(sorted(under_way)))
        if data.draw(st.integers(0, 3)) == 0:
            useless = reading.fail(number, ValueError())
            assert useless == [] if to_the_end else useless == [under_way[o] for o in sorted(under_way) if o > number]
            failed.add(number)
        take(under_way.pop(number), number)
    reading.wait()  # and does not wait
    assert len(began) == count or failed
    assert set(reading.errors) == failed


def test_one_at_a_time_the_row_is_exact() -> None:
    row = unwatched()
    reading = a_reading(None, 3, limit=1, row=row)
    reading.take("me")
    assert row[PLACE] == 10
    assert among(10) != 10


def test_nobody_writes_into_the_row_of_a_reading_that_was_given_up() -> None:
    row = unwatched()
    reading = a_reading(None, 3, row=row)
    first, second = reading.take(0), reading.take(1)
    reading.abandon()
    row[PLACE] = row[SINCE] = 99
    assert reading.take(0, first) == reading.take(1, second) == -1
    assert row[PLACE] == row[SINCE] == 99
