"""num_workers="auto": workers that come and go, and the same batches whatever their number."""

from __future__ import annotations

import copy
import os
import pickle
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few, thorough
from scripted_pace import MOST, scripted

import feedline
from feedline import (
    ArrayDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    OptionError,
    OptionTypeError,
    Subset,
    WorkerDied,
)
from feedline.engine.division import Division
from feedline.engine.ledger import Ledger
from feedline.engine.scaling import CannotStartWorkers, Scaling, needs_no_workers, scaling_for
from feedline.engine.worker_set import WorkerSet
from feedline.messages.task import Task
from feedline.observe.window import Setting
from feedline.options.worker_count import AutoCount, as_number, check_count, most_workers
from feedline.supervise.pace import Pace
from feedline.supervise.watch import ready
from feedline.workers.job import Job
from feedline.workers.processes import ProcessWorkers
from feedline.workers.threads import ThreadWorkers

THREADS: dict[str, Any] = {"workers": "thread"}
FORK: dict[str, Any] = {"multiprocessing_context": "fork"}
both = pytest.mark.parametrize("kind", [pytest.param(THREADS, id="threads"), pytest.param(FORK, id="fork")])


class Noisy(Dataset[Any]):
    """Samples with a draw of each generator in them."""

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> Any:
        return index, np.random.random(), feedline.rng().random()


def told(batches: Any) -> list[Any]:
    return [[np.asarray(leaf).tolist() for leaf in batch] for batch in batches]


def fixed(**more: Any) -> list[Any]:
    with DataLoader(Noisy(), batch_size=4, shuffle=True, seed=3, **more) as loader:
        return told(loader)


SCRIPTS = st.dictionaries(st.integers(1, 14), st.one_of(st.none(), st.integers(1, MOST)), max_size=5)


@given(script=SCRIPTS, start=st.integers(1, 3), in_order=st.booleans())
@settings(max_examples=few(100))
def test_the_same_batches_whoever_comes_and_goes(script: dict[int, Any], start: int, in_order: bool) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3, "in_order": in_order}
    with DataLoader(Noisy(), num_workers="auto", workers="thread", **options) as loader:
        pacing = scripted(loader, script, start)
        batches = told(loader)
    assert sorted(batches) == sorted(fixed())
    assert not in_order or batches == fixed()
    follow, count = [], start
    for batch in range(1, 16):
        follow.append(count)
        count = count if script.get(batch) is None else script[batch]
    assert pacing.seen == follow


@both
def test_up_to_many_down_to_one_and_up_again(kind: dict[str, Any]) -> None:
    script = {2: 3, 4: 1, 6: 4, 8: None, 9: 2, 12: 5, 13: 1}
    with DataLoader(
        Noisy(), batch_size=4, shuffle=True, seed=3, num_workers="auto", persistent_workers=True, **kind
    ) as loader:
        scripted(loader, script)
        assert told(loader) == fixed()
        later = told(loader)
        stats = loader.stats()
        assert [change.workers for change in stats.auto_workers.changes] == [3, 1, 4, 4, 2, 5, 1]
        assert [change.batches for change in stats.auto_workers.changes] == list(script)
        assert (stats.auto_workers.workers, stats.epoch.num_workers, stats.epoch.restarts) == (1, 1, 0)
        loader.set_epoch(1)
        assert told(loader) == later


def test_a_state_saved_on_the_way_goes_on_under_any_number_and_back() -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3}
    with DataLoader(Noisy(), num_workers="auto", **THREADS, **options) as loader:
        scripted(loader, {1: 3, 5: 1, 7: 2})
        iterator = iter(loader)
        for taken in range(1, 10):
            next(iterator)
            with DataLoader(Noisy(), **options) as alone:
                alone.load_state_dict(loader.state_dict())
                assert told(alone) == fixed()[taken:]
        state = loader.state_dict()
    with DataLoader(Noisy(), num_workers=2, **THREADS, **options) as two:
        two.load_state_dict(state)
        next(iter(two))
        state = two.state_dict()
    with DataLoader(Noisy(), num_workers="auto", **THREADS, **options) as loader:
        scripted(loader, {1: 3, 2: 1})
        loader.load_state_dict(state)
        assert told(loader) == fixed()[10:]


def test_what_was_found_lasts_over_epochs_without_persistent_workers() -> None:
    with DataLoader(Noisy(), batch_size=4, num_workers="auto", **THREADS) as loader:
        pacing = scripted(loader, {3: 4})
        for _ in range(2):
            assert len(list(loader)) == 15
        assert pacing.seen == [1] * 3 + [4] * 27
        assert loader.stats().epoch.num_workers == 4


def test_workers_that_come_late_to_an_epoch_that_is_not_the_first() -> None:
    with DataLoader(Noisy(), batch_size=4, num_workers="auto", persistent_workers=True, **FORK) as loader:
        pacing = scripted(loader, {18: 2})
        for _ in range(2):
            assert len(list(loader)) == 15
        assert pacing.seen == [1] * 18 + [2] * 12


class Divided(Dataset[Any]):
    """Samples that take long enough for workers to share a batch."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.02 if index % 16 == 5 else 0.002)
        return np.full(300, index)


@both
@pytest.mark.parametrize("script", [{1: 3, 2: 1, 4: 2, 6: 1}, {1: 4, 3: 1, 5: 3, 7: 2}], ids=str)
def test_batches_that_workers_share_while_they_come_and_go(kind: dict[str, Any], script: dict[int, Any]) -> None:
    with DataLoader(Divided(), batch_size=6, num_workers="auto", persistent_workers=True, **kind) as loader:
        scripted(loader, script, start=2)
        for _ in range(2):
            assert [batch[:, 0].tolist() for batch in loader] == [list(range(at, at + 6)) for at in range(0, 48, 6)]


EARLY = [
    ({2: 3, 13: 1}, 1),
    ({12: 2, 15: 1, 16: 4}, 1),
    ({2: 3, 14: 1, 15: None, 20: 2}, 1),
    ({2: 3, 14: 1, 15: None}, 5),
]


@pytest.mark.parametrize(("script", "second"), EARLY, ids=str)
def test_batches_made_early_for_the_next_epoch_come_whoever_is_there_then(script: dict[int, Any], second: int) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 3}
    with DataLoader(Noisy(), num_workers="auto", persistent_workers=True, **FORK, **options) as loader:
        scripted(loader, script)
        ours = epochs_of(loader, second)
    with DataLoader(Noisy(), **options) as alone:
        assert ours == epochs_of(alone, second)


def epochs_of(loader: Any, second: int) -> list[Any]:
    first = told(loader)
    loader.set_epoch(second)  # perhaps not the one that was foreseen
    return [first, told(loader), told(loader)]


@both
def test_an_interruption_while_workers_come_and_go_leaves_nothing(kind: dict[str, Any]) -> None:
    with DataLoader(Noisy(), batch_size=4, shuffle=True, seed=3, num_workers="auto", **kind) as loader:
        pacing = scripted(loader, {2: 4})
        iterator = iter(loader)
        next(iterator)
        pacing.interrupted = True
        with pytest.raises(KeyboardInterrupt):
            next(iterator)
        assert loader.stats().epoch.num_workers == 4
        with pytest.raises(RuntimeError, match="ended by an error"):
            next(iterator)
        pacing.interrupted = False
        assert len(told(loader)) == 15


def test_workers_that_never_come_to_life_are_an_error_as_ever() -> None:
    with DataLoader(Noisy(), num_workers="auto", worker_init_fn=os._exit, max_deaths=1, **FORK) as loader:
        with (
            pytest.warns(UserWarning, match="ended with exit code 0"),
            pytest.raises(WorkerDied, match="worker_init_fn"),
        ):
            list(loader)


class Pids(Dataset[Any]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        info = feedline.get_worker_info()
        return os.getpid(), -1 if info is None else info.id, 0 if info is None else info.num_workers


def test_workers_that_are_dismissed_leave_by_themselves_and_nobody_calls_it_a_death() -> None:
    with DataLoader(Pids(), num_workers="auto", **FORK) as loader:
        scripted(loader, {2: 5, 10: 1, 20: None})
        iterator = iter(loader)
        seen = [tuple(int(leaf[0]) for leaf in next(iterator)) for _ in range(20)]
        assert {workers for _, _, workers in seen} == {MOST}
        assert {number for _, number, _ in seen} <= set(range(MOST))
        rest = [tuple(int(leaf[0]) for leaf in batch) for batch in iterator]
        assert len(rest) == 20
        assert len({pid for pid, _, _ in rest[12:]}) == 1  # 2 × 5 were on their way
        assert loader.stats().epoch.restarts == 0


@both
def test_nothing_is_left_of_a_loop_that_is_left_anywhere(kind: dict[str, Any]) -> None:
    for leave in (1, 5, 8):
        with DataLoader(Noisy(), batch_size=4, num_workers="auto", **kind) as loader:
            scripted(loader, {2: 4, 4: 1, 7: 3})
            for taken, _ in enumerate(loader, 1):
                if taken == leave:
                    break  # conftest looks for processes, threads, descriptors and memory


class KillsOnce(Dataset[Any]):
    """Sample 12 ends its worker, the first time."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> int:
        if index == 12 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


@pytest.mark.parametrize("script", [{1: 4, 2: 1}, {1: 3, 2: 2}], ids=str)  # by then workers have it in hand
def test_a_worker_that_is_killed_is_replaced_while_others_come_and_go(script: dict[int, Any], tmp_path: Path) -> None:
    with DataLoader(KillsOnce(tmp_path / "once"), batch_size=4, num_workers="auto", **FORK) as loader:
        scripted(loader, script)
        with pytest.warns(UserWarning, match="SIGKILL"):
            batches = [batch.tolist() for batch in loader]
        assert loader.stats().epoch.restarts == 1
    assert batches == [list(range(first, first + 4)) for first in range(0, 60, 4)]


class Quick(Dataset[Any]):
    """As cheap as samples can be; each says in which process it was read."""

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        return os.getpid()


@pytest.mark.parametrize("epochs", [3, pytest.param(10_000, marks=thorough)])
def test_code_of_the_users_never_runs_in_a_process_that_workers_are_forked_from(epochs: int) -> None:
    # What it had opened here and kept in a cache or a global, all would share: 2,381 of 5,001 batches were wrong.
    with DataLoader(Quick(), batch_size=4, num_workers="auto", persistent_workers=True, **FORK) as loader:
        read_by: set[int] = set()
        for _ in range(epochs):  # until it has decided, or a few: deciding takes 20 seconds on two cores
            read_by.update(int(pid) for batch in loader for pid in batch)
            if loader.stats().auto_workers.settled:
                break
        assert loader.stats().auto_workers.workers >= 1
    assert os.getpid() not in read_by


def test_rows_of_arrays_in_memory_have_no_workers() -> None:
    arrays = np.arange(64).reshape(32, 2)
    with DataLoader(arrays, batch_size=4, num_workers="auto", persistent_workers=True) as loader:
        for _ in range(2):
            assert np.concatenate(list(loader)).tolist() == arrays.tolist()
            chosen = loader.stats().auto_workers
            assert (chosen.workers, chosen.settled, loader.stats().epoch.num_workers) == (0, True, 0)
        assert "in memory" in str(chosen)


def test_there_are_no_workers_only_where_no_code_of_the_users_is_run() -> None:
    arrays = ArrayDataset(np.arange(4))
    with DataLoader(arrays, num_workers="auto") as loader:
        assert needs_no_workers(loader.options, job_of(arrays))
        assert needs_no_workers(loader.options, job_of(np.arange(4)))
        others = {"collate_fn": list, "on_error": "skip", "batched": False, "worker_init_fn": print}
        for name, value in others.items():
            assert not needs_no_workers(loader.options, job_of(arrays, **{name: value}))
        assert not needs_no_workers(loader.options, job_of(Quick()))


def test_rows_of_a_file_that_is_mapped_have_workers(tmp_path: Path) -> None:
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(8, 2))
    with DataLoader(mapped, num_workers="auto") as loader:
        for dataset in (mapped, ArrayDataset(mapped[2:]), Subset(ArrayDataset(x=np.arange(8), y=mapped), [1, 2])):
            assert not needs_no_workers(loader.options, job_of(dataset))
        assert needs_no_workers(loader.options, job_of(ArrayDataset(mapped + 1)))


def test_a_system_that_refuses_more_workers_has_as_many_as_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    with set_of(1, THREADS) as workers:
        monkeypatch.setattr(workers.workers, "resize", partial(refuse, workers.workers.resize))
        with pytest.raises(CannotStartWorkers, match="the system refused more workers: that is enough"):
            workers.resize(4)
        assert workers.count == 2


def refuse(resize: Any, count: int) -> None:
    resize(2)
    raise OSError("that is enough")


@contextmanager
def set_of(count: int, kind: dict[str, Any]) -> Iterator[WorkerSet]:
    """So many workers, whose number may change."""
    scaling = Scaling(Pace(Setting(count, 2), MOST), MOST)
    with DataLoader(Pids(), num_workers="auto", **kind) as loader:
        workers = WorkerSet(job_of(Pids(), num_workers=MOST), loader.options, Division(), scaling)
        try:
            workers.start()
            yield workers
        finally:
            workers.stop()


def test_threads_and_processes_that_were_never_needed_are_never_started() -> None:
    data = ArrayDataset(np.arange(40))
    with DataLoader(data, batch_size=4, num_workers="auto", persistent_workers=True, **FORK) as loader:
        for _ in range(3):
            assert [row for (batch,) in loader for row in batch.tolist()] == list(range(40))
            assert loader.stats().workers == ()
        assert loader.stats().auto_workers.workers == 0


def job_of(dataset: Any, **more: Any) -> Job:
    return Job(**{**dict.fromkeys(("collate_fn", "worker_init_fn")), **PLAIN, "dataset": dataset, **more})


PLAIN: dict[str, Any] = {
    "stream": False,
    "batched": True,
    "batch_size": 4,
    "drop_last": False,
    "shuffle_buffer": 0,
    "seed": 1,
    "num_workers": 2,
}


@pytest.mark.parametrize(
    ("more", "none"),
    [({}, True), ({"timeout": 9}, False), ({"on_stall": "restart"}, False), ({"worker_init_fn": print}, False)],
    ids=lambda value: str(value),
)
def test_who_wants_something_of_workers_has_one_from_the_start(more: dict[str, Any], none: bool) -> None:
    with DataLoader(np.arange(8), num_workers="auto", **more) as loader:
        job = job_of(np.arange(8), worker_init_fn=more.get("worker_init_fn"))
        assert needs_no_workers(loader.options, job) is none
        pacing = scaling_for(loader.options)
        assert pacing.setting == Setting(1, 2)
        assert pacing.most == most_workers(feedline.machine.cpus.look().workers)


class Sleepy(Dataset[Any]):
    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        time.sleep(0.01)
        return index


def test_a_loop_that_waits_gets_more_workers_and_is_told_why() -> None:
    with DataLoader(Sleepy(), num_workers="auto", **THREADS) as loader:
        for taken, batch in enumerate(loader):
            assert int(batch[0]) == taken
            if loader.stats().auto_workers.workers > 1:
                break
        chosen = loader.stats().auto_workers
    assert chosen.workers == 2 or chosen.workers == feedline.machine.cpus.look().workers
    assert re.fullmatch(r"with 1 worker the loop waited \d+ % of its time", chosen.reason)
    assert f"{chosen.workers} workers, 2 batches ahead each (on trial): with 1 worker" in str(loader.stats())


class Numbers(IterableDataset[Any]):
    def __init__(self, first: int = 0, step: int = 1) -> None:
        self.first, self.step = first, step

    def shard(self, index: int, count: int) -> Numbers:
        return Numbers(index, count)

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.first, 10, self.step))


def test_a_stream_keeps_the_number_it_began_with() -> None:
    with DataLoader(Numbers(), batch_size=2, num_workers="auto", **THREADS) as loader:
        assert sorted(row for batch in loader for row in batch.tolist()) == list(range(10))
        chosen = loader.stats().auto_workers
    assert (chosen.workers, chosen.settled) == (loader.num_workers, True)
    assert "a stream is divided by the number of workers" in chosen.reason


def test_auto_is_a_number_that_stays_auto() -> None:
    loader = DataLoader(np.arange(8), num_workers="auto", prefetch_factor=3, timeout=5, persistent_workers=True)
    count = loader.num_workers
    assert isinstance(count, int)
    assert 1 <= count <= feedline.machine.cpus.look().workers
    assert check_count("num_workers", count) is as_number(count, 3) is count
    for again in (pickle.loads(pickle.dumps(count)), copy.deepcopy(count)):
        assert (type(again), again, again.prefetches) == (AutoCount, count, False)
    assert DataLoader(np.arange(8), num_workers="auto").num_workers.prefetches
    assert most_workers(2) == 32
    assert most_workers(64) == 256


@pytest.mark.parametrize("wrong", ["many", "Auto", 2.0, None, True])
def test_a_wrong_number_is_refused_and_auto_named(wrong: Any) -> None:
    with pytest.raises(OptionTypeError, match=r'num_workers must be a whole number of at least 0, or "auto"; got'):
        DataLoader(np.arange(8), num_workers=wrong)
    with pytest.raises(OptionError, match='or "auto"; got -1'):
        DataLoader(np.arange(8), num_workers=-1)


def one_of(kind: dict[str, Any], job: Job) -> tuple[Any, Ledger]:
    ledger = Ledger()
    staff = ThreadWorkers(job, ledger) if kind is THREADS else ProcessWorkers(job, ledger, "fork")
    staff.resize(1)
    return staff, ledger


@both
def test_staff_is_as_many_as_was_asked_for(kind: dict[str, Any]) -> None:
    job = job_of(Noisy(), num_workers=MOST)
    staff, _ = one_of(kind, job)
    try:
        for count in (3, 1, 0, 4, 2, 2, 6, 1):
            staff.resize(count)
            while len(staff.standing()) > count:
                assert staff.receive(0.05) == []  # those who leave are seen off, and are no news
            assert len(staff.standing()) == count
            while ready(staff.standing()) < count:
                assert staff.receive(0.01) == []
    finally:
        staff.stop()


@both
def test_should_more_leave_than_were_to_others_come(kind: dict[str, Any]) -> None:
    job = job_of(Noisy(), num_workers=MOST)
    staff, ledger = one_of(kind, job)
    try:
        if kind is THREADS:
            staff._lanes[0].put(None)
        else:
            staff._crew.lanes[0].dismiss(1)
        staff.send(ledger.whole(ledger.add(Task(0, 0, 1, [1, 2]))))
        (done,) = staff.receive(600)
        assert (done.outcome.seq, done.outcome.size) == (0, 2)
    finally:
        staff.stop()


class Gated(Dataset[Any]):
    """Sample 0 waits until somebody opens the other end of a pipe; each sample says who reads it."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 0:
            with open(self.gate):
                pass
        return threading.get_native_id()


@both
def test_who_was_dismissed_and_is_wanted_again_stays(kind: dict[str, Any], tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "gate")
    job = job_of(Gated(tmp_path / "gate"), num_workers=MOST)
    staff, ledger = one_of(kind, job)
    try:
        staff.send(ledger.whole(ledger.add(Task(0, 0, 1, [0]))))
        staff.resize(0)
        staff.resize(1)
        with open(tmp_path / "gate", "w"):
            first = staff.receive(600)[0].outcome
        staff.send(ledger.whole(ledger.add(Task(1, 0, 1, [1]))))
        second = staff.receive(600)[0].outcome
        assert (first.seq, second.seq, int(first.batch[0])) == (0, 1, int(second.batch[0]))
    finally:
        staff.stop()
