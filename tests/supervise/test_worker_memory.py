"""From measurements to a finding: what is growth, what is warming up, what is copied; and whose list it is."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from feedline import SharedList
from feedline.observe.stats import WorkerMemory
from feedline.supervise import worker_memory as memory
from feedline.supervise.growth import MB, STEPS_WITHIN, History, Point, copied, steady
from feedline.supervise.records import largest
from feedline.supervise.worker_memory import EVERY, MemorySetting, MemoryWatch, measure, own_memory, private_own


def found(*megabytes: float, steps: int = 3) -> bool:
    return steady([Point(epoch, int(size * MB)) for epoch, size in enumerate(megabytes, 1)], steps) is not None


@pytest.mark.parametrize(
    "sizes",
    [
        (50, 70, 90, 110),
        (50_000, 50_100, 50_200, 50_300),
        (50, 62, 74, 86),
        (200, 50, 62, 74, 86),
        (50, 70, 83, 103),
        (50, 50, 50, 70, 90, 110),
    ],
)
def test_steady_growth_is_found(sizes: tuple[int, ...]) -> None:
    assert found(*sizes)


@pytest.mark.parametrize(
    "sizes",
    [
        (),
        (50,),
        (50, 70, 90),  # too few
        (50, 150, 150, 150),  # warmed up, and that was it
        (50, 150, 150.5, 150.5),
        (50, 70, 90, 90),  # has stopped
        (50, 90, 70, 110),  # up and down
        (50, 100, 125, 137),  # a cache that fills
        (50, 60, 70, 80),  # little in all
        (500, 520, 540, 560),  # little for its size
        (50_000, 50_080, 50_160, 50_240),
        (50, 50.9, 51.8, 120),  # one jump
        (110, 90, 70, 50),
    ],
)
def test_anything_else_is_none(sizes: tuple[float, ...]) -> None:
    assert not found(*sizes)


def test_rates_count_and_not_steps_where_moments_are_uneven() -> None:
    growth = steady([Point(1, 50 * MB), Point(2, 60 * MB), Point(5, 90 * MB), Point(6, 100 * MB)])
    assert growth is not None
    assert growth.rate == 10 * MB
    assert steady([Point(1, 50 * MB), Point(1, 70 * MB), Point(1, 90 * MB), Point(1, 110 * MB)]) is None


def test_slow_growth_is_found_in_the_end_and_few_points_are_kept() -> None:
    history, when = History(), 0
    while steady(history.points) is None:
        history.add(Point(when, 50 * MB + when * MB // 4))
        when += 1
        assert when < 1000
        assert len(history.points) <= 8
    assert when > 100


@pytest.mark.parametrize(
    ("at_fork", "own", "private", "expected"),
    [(500, 500, 0, 0), (500, 500, 90, 90), (500, 600, 100, 0), (500, 600, 190, 90), (500, 400, 50, 50)],
)
def test_copied_is_what_is_private_and_not_new(at_fork: int, own: int, private: int, expected: int) -> None:
    assert copied(at_fork, own, private) == expected


# Reading /proc


def test_this_process_is_measured() -> None:
    block = np.ones(8 * MB, np.uint8)
    one = measure(3, os.getpid())
    assert one is not None
    assert (one.worker, one.pid) == (3, os.getpid())
    assert one.total >= one.own >= block.nbytes
    assert one.total >= one.private >= block.nbytes
    assert abs(own_memory(os.getpid()) - one.own) < 8 * MB
    assert block.nbytes <= private_own(os.getpid()) <= one.private
    assert measure(0, 1 << 30) is None
    assert own_memory(1 << 30) == private_own(1 << 30) == 0


def test_without_smaps_there_is_statm(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "statm").write_text("900 500 200 1 0 300 0\n")
    page = os.sysconf("SC_PAGESIZE")
    assert measure(0, 7, str(tmp_path)) == WorkerMemory(0, 7, 500 * page, 300 * page, 300 * page)


def test_only_memory_without_a_file_counts_as_a_copy(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "smaps").write_text(
        "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \nSize: 4 kB\nPrivate_Clean: 1 kB\nPrivate_Dirty: 10 kB\n"
        "7f0000001000-7f0000002000 rw-s 00000000 00:01 77    /memfd:feedline (deleted)\nPrivate_Dirty: 20 kB\n"
        "7f0000002000-7f0000003000 rw-p 00000000 00:00 0    [heap]\nPrivate_Dirty: 40 kB\nVmFlags: rd wr\n"
        "7f0000003000-7f0000004000 rw-p 00000000 08:01 99    /usr/lib/with space.so\nPrivate_Dirty: 80 kB\n"
    )
    assert private_own(7, str(tmp_path)) == 50 * 1024


# When it is looked


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def grown(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """What each process has, as the test says."""
    sizes: dict[int, int] = {}
    monkeypatch.setattr(memory, "own_memory", lambda pid: sizes.get(pid, 0))
    monkeypatch.setattr(memory, "measure", lambda number, pid: WorkerMemory(number, pid, sizes[pid], 0, sizes[pid]))
    return sizes


def test_a_leak_is_told_once_and_of_the_worst(grown: dict[int, int]) -> None:
    clock, told = Clock(), []
    watch = MemoryWatch(clock)
    processes = [(0, 11), (1, 12), (2, 13)]
    for epoch in range(20):
        grown.update({11: 50 * MB, 12: (50 + 12 * epoch) * MB, 13: (50 + 20 * epoch) * MB})
        watch.begin(processes)
        clock.now += 1
        told += [
            (epoch, words) for words in watch.look(lambda: processes, MemorySetting(None, False, False), ended=True)
        ]
    ((epoch, words),) = told
    assert epoch == 3
    assert "worker 2 (pid 13) grows by 20.0 MB per epoch: from 50 to 110 MB in the last 3 epochs" in words
    assert [one.total // MB for one in watch.now([])] == [50, 278, 430]


def test_new_workers_in_each_epoch_are_no_leak(grown: dict[int, int]) -> None:
    clock = Clock()
    watch = MemoryWatch(clock)
    for epoch in range(20):
        grown.clear()
        grown[epoch + 1] = (50 + 20 * epoch) * MB
        watch.begin([(0, epoch + 1)])
        clock.now += 1
        assert not watch.look(lambda: [(0, epoch + 1)], MemorySetting(None, False, False), ended=True)  # noqa: B023
        assert len(watch._ends) == 1


@pytest.mark.parametrize(("stream", "epochs", "told"), [(False, 1, False), (False, 2, True), (True, 1, True)])
def test_a_long_epoch_is_looked_into_but_not_the_first_of_a_map(
    grown: dict[int, int], stream: bool, epochs: int, told: bool
) -> None:
    clock = Clock()
    watch = MemoryWatch(clock)
    words: list[str] = []
    looked: list[float] = []

    def processes() -> list[tuple[int, int]]:
        looked.append(clock.now)
        return [(0, 11)]

    for _ in range(epochs):
        grown[11] = 50 * MB
        watch.begin([(0, 11)])
    while clock.now < 1000 + (STEPS_WITHIN + 1.5) * EVERY:
        clock.now += 0.25
        grown[11] += MB // 4
        words += watch.look(processes, MemorySetting(None, stream, False), ended=False)
    assert len(looked) == STEPS_WITHIN + 1
    assert min(np.diff(looked)) >= EVERY
    assert bool(words) is told
    assert not told or "per minute" in words[0]


def test_looking_takes_no_more_than_a_hundredth_of_the_time(
    grown: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, spent = Clock(), [0.0]
    watch = MemoryWatch(clock)

    def slow(number: int, pid: int) -> WorkerMemory:
        clock.now += 0.5
        spent[0] += 0.5
        return WorkerMemory(number, pid, 1, 1, 1)

    monkeypatch.setattr(memory, "measure", slow)
    for _ in range(3000):
        watch.begin([(0, 11)])
        clock.now += 0.1
        watch.look(lambda: [(0, 11)], MemorySetting(None, False, False), ended=True)
    assert 0 < spent[0] <= 0.012 * (clock.now - 1000.0)


def test_the_first_epoch_of_a_new_loader_is_not_prolonged_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loader is made for each of many short evaluations. What its workers have is read where that takes no time."""
    monkeypatch.setattr(memory, "measure", lambda number, pid: pytest.fail("measured"))
    clock, here = Clock(), [(0, os.getpid())]
    watch = MemoryWatch(clock)
    watch.begin(here)
    least = memory.SECONDS_A_BYTE * memory.resident(os.getpid()) / memory.SHARE
    clock.now += least / 2
    assert not watch.look(lambda: here, MemorySetting(None, False, False), ended=True)
    (read,) = watch.now([])
    assert read.total > read.own > read.private >= 0
    measured = WorkerMemory(0, os.getpid(), 3, 2, 1)
    monkeypatch.setattr(memory, "measure", lambda number, pid: measured)
    clock.now += least
    assert not watch.look(lambda: here, MemorySetting(None, False, False), ended=True)
    assert watch.now([]) == (measured,)


def test_copies_are_told_with_the_name_of_the_list_and_only_of_forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    class Records:
        def __init__(self) -> None:
            self.records = [str(i) for i in range(200_000)]

    monkeypatch.setattr(memory, "own_memory", lambda pid: 100 * MB)
    monkeypatch.setattr(memory, "measure", lambda number, pid: WorkerMemory(number, pid, 1, 60 * MB, 101 * MB))
    monkeypatch.setattr(memory, "private_own", lambda pid: 50 * MB)
    for forked, dataset, expected in ((True, Records(), 1), (False, Records(), 0), (True, range(9), 0)):
        clock = Clock()
        watch = MemoryWatch(clock)
        words: list[str] = []
        for _ in range(3):
            watch.begin([(0, 11)])
            clock.now += 1
            words += watch.look(lambda: [(0, 11)], MemorySetting(dataset, False, forked), ended=True)
        assert len(words) == expected
        if words:
            assert "copied 49 MB" in words[0]
            assert "dataset.records: list of 200,000" in words[0]
            assert "feedline.SharedList" in words[0]


# The largest collection


class Holder:
    def __init__(self, **parts: Any) -> None:
        vars(self).update(parts)

    @property
    def trap(self) -> Any:
        raise AssertionError("no code of the user's is run")


def many(count: int) -> list[str]:
    return [f"a path of some length/{i}.jpg" for i in range(count)]


# Each is made by its test: kept until the end, 400 MB would be copied at every later fork.
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Holder(records=many(200_000)), "dataset.records: list of 200,000"),
        (lambda: Holder(few=many(10), records=many(200_000), more=many(300_000)), "dataset.more: list of 300,000"),
        (
            lambda: Holder(inner=Holder(splits={"train": many(200_000)})),
            "dataset.inner.splits['train']: list of 200,000",
        ),
        (lambda: Holder(parts=[1, Holder(x=tuple(many(200_000)))]), "dataset.parts[1].x: tuple of 200,000"),
        (lambda: Holder(labels={i: str(i) for i in range(200_000)}), "dataset.labels: dict of 200,000"),
        (lambda: Holder(names=np.array(many(200_000), object)), "dataset.names: array of 200,000"),
        (lambda: Holder(later=deque(many(200_000))), "dataset.later: deque of 200,000"),
        (lambda: Holder(array=np.ones(10_000_000)), None),
        (lambda: Holder(records=SharedList(many(200_000))), None),
        (lambda: Holder(records=many(1000)), None),
        (lambda: many(200_000), "dataset: list of 200,000"),
        (lambda: range(10), None),
    ],
)
def test_the_largest_collection_by_its_path(make: Callable[[], Any], words: str | None) -> None:
    assert largest(make()) == words


def trap(*_: Any) -> Any:
    raise AssertionError("no code of the user's is run")


TRAPS = ("__iter__", "__len__", "__sizeof__", "__repr__", "__getitem__", "__eq__", "__getattribute__", "items", "keys")


class TouchyList(list[Any]):
    pass


class TouchyDict(dict[Any, Any]):
    pass


class TouchyRecord(dict[str, Any]):
    pass


class TouchyKey(str):
    pass


for touchy in (TouchyList, TouchyDict, TouchyRecord, TouchyKey):
    for name in TRAPS:
        if hasattr(touchy, name):
            setattr(touchy, name, trap)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Holder(records=TouchyList(many(200_000))), "dataset.records: TouchyList of 200,000"),
        (lambda: Holder(records=TouchyDict(enumerate(many(200_000)))), "dataset.records: TouchyDict of 200,000"),
        (lambda: Holder(records=[TouchyRecord(a=1) for _ in range(100_000)]), "dataset.records: list of 100,000"),
        (lambda: Holder(splits={TouchyKey("a"): many(200_000)}), "dataset.splits[…]: list of 200,000"),
        (
            lambda: Holder(names=np.array([TouchyKey(i) for i in range(200_000)], object)),
            "dataset.names: array of 200,000",
        ),
    ],
)
def test_no_code_of_the_users_is_run(make: Callable[[], Any], words: str) -> None:
    assert largest(make()) == words


def test_a_dataset_that_holds_itself() -> None:
    holder = Holder(records=many(200_000))
    holder.itself = holder
    assert largest(holder) == "dataset.records: list of 200,000"
