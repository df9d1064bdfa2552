"""workers="auto": what is decided from facts, what is found out, and that the batches are the same."""

# ruff: noqa: SIM115

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fetching import Fetching
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

import feedline
from feedline import DataLoader, Dataset, IterableDataset
from feedline.errors import OptionError, OptionTypeError, WorkerDied
from feedline.feed import _workers_of
from feedline.gil import Looks, Rival, counts
from feedline.loader import _job
from feedline.messages import Apart, Findings, Notice, Outcome, Task
from feedline.state import Place
from feedline.supervise.watch import Death
from feedline.workers import choosing as choosing_module
from feedline.workers.choice import MOST_WANTED, Choice, Facts, decide, wanted
from feedline.workers.choosing import UNDECIDED, Choosing, ChoosingWorkers
from feedline.workers.trial import LOOKS, TASKS, _share

AUTO: dict[str, Any] = {"num_workers": 2, "workers": "auto", "multiprocessing_context": "fork"}
WAITING = Looks(32, 1, seconds=10.0, computing=0.5)
RELEASING = Looks(32, 2, seconds=10.0, computing=10.0)
HOLDING = Looks(32, 30, seconds=10.0, computing=10.0)


# The choice


def chosen(facts: Facts) -> str:
    choice = decide(facts)
    assert choice is not None
    assert choice.why
    return choice.kind


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_work_that_waits_or_releases_the_gil_goes_to_threads(workers: int) -> None:
    assert chosen(Facts(workers, cpus=4, looks=WAITING)) == "thread"
    assert chosen(Facts(workers, cpus=4, looks=RELEASING)) == "thread"
    assert chosen(Facts(workers, cpus=4, looks=HOLDING)) == "process"


def test_many_workers_want_more_of_the_gil_than_there_is() -> None:
    some = Looks(100, 10, seconds=10.0, computing=10.0)
    assert chosen(Facts(4, cpus=16, looks=some)) == "thread"
    assert chosen(Facts(8, cpus=16, looks=some)) == "process"
    assert chosen(Facts(8, cpus=2, looks=some)) == "thread", "no more than two compute at once"
    waits = some._replace(computing=1.0)
    assert chosen(Facts(8, cpus=2, looks=waits)) == "process", "those that wait need no CPU: all of them are at work"


def test_what_must_not_be_shared_is_not() -> None:
    for looks in (None, WAITING):
        assert decide(Facts(2, not_shared="x is open", looks=looks)) == Choice("process", "x is open")
        assert decide(Facts(2, gil=False, not_shared="x is open", looks=looks)) == Choice("process", "x is open")


def test_where_there_can_be_no_processes_there_are_threads() -> None:
    assert decide(Facts(2, no_processes="no", not_shared="x", looks=HOLDING)) == Choice("thread", "no")


def test_without_a_gil_threads_run_at_once() -> None:
    assert chosen(Facts(8, gil=False, looks=HOLDING)) == "thread"
    assert decide(Facts(8, gil=False)) is None, "but it has to be seen what threads would share"


def test_few_looks_say_nothing_and_quick_batches_need_no_process() -> None:
    assert chosen(Facts(2, looks=Looks(7, 0, seconds=1.0), batches=32)) == "process"
    assert chosen(Facts(2, looks=Looks(8, 0, seconds=1.0), batches=32)) == "thread"
    assert chosen(Facts(2, looks=Looks(8, 8, 0.0031, 0.0031), batches=32)) == "thread"
    assert chosen(Facts(2, looks=Looks(8, 8, 0.0100, 0.0100), batches=32)) == "process"


@settings(max_examples=few(300), deadline=None)
@given(
    workers=st.integers(1, 64),
    cpus=st.floats(0.1, 64),
    looked=st.integers(8, 200),
    computing=st.floats(0, 10),
    data=st.data(),
)
def test_more_of_the_gil_never_speaks_for_threads(
    workers: int, cpus: float, looked: int, computing: float, data: st.DataObject
) -> None:
    less, more = sorted(data.draw(st.integers(0, looked)) for _ in range(2))
    facts = Facts(workers, cpus)
    kinds = [chosen(facts._replace(looks=Looks(looked, held, 10.0, computing))) for held in (less, more)]
    assert kinds != ["process", "thread"]
    looks = Looks(looked, more, 10.0, computing)
    assert (kinds[1] == "thread") == (wanted(facts, looks) <= MOST_WANTED)


# What is found out before anything is read


class Plain(Dataset[Any]):
    """With whatever it is given."""

    def __init__(self, **attributes: Any) -> None:
        self.opened: Any = None
        self.given: Any = None
        vars(self).update(attributes)

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> Any:
        return np.float32(index)


def at_first(dataset: Any, context: str = "fork", **options: Any) -> Choice:
    choosing = Choosing()
    choosing.begin("auto", _job(DataLoader(dataset, num_workers=2, **options).options), context)
    return choosing.now


def test_nothing_is_known_of_an_ordinary_dataset() -> None:
    assert at_first(Plain()) is UNDECIDED
    assert at_first(np.arange(10)) is UNDECIDED


def test_what_is_open_belongs_to_one_worker(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("some")
    with open(tmp_path / "data") as file:
        choice = Choice("process", "dataset.given[0] is open, and threads would share it")
        assert at_first(Plain(given=[file])) == choice
    assert at_first(Plain(given=file)) is UNDECIDED, "closed"
    connection = sqlite3.connect(tmp_path / "base")
    assert at_first(Plain(given=connection)).kind == "process"
    connection.close()


def test_what_each_thread_has_for_itself_may_be_open(tmp_path: Path) -> None:
    own = threading.local()
    with open(tmp_path / "data", "w") as own.file:
        assert at_first(Plain(given=own)) is UNDECIDED


def test_a_generator_or_a_worker_init_fn_speaks_for_processes() -> None:
    assert "dataset.given is a random generator" in at_first(Plain(given=np.random.default_rng(1))).why
    assert "worker_init_fn" in at_first(Plain(), worker_init_fn=print).why
    assert {at_first(Plain(), worker_init_fn=print).kind, at_first(Plain(given=np.random.default_rng(1))).kind} == {
        "process"
    }


def test_what_a_fork_would_break_speaks_for_threads() -> None:
    lock = threading.Lock()
    with lock:
        assert at_first(Plain(given=lock)) == Choice("thread", "dataset.given would not work in a forked process")
        assert at_first(Plain(given=lock), "spawn") is UNDECIDED
    assert at_first(Plain(given=lock)) is UNDECIDED


class Iterating(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        raise StopIteration


def test_an_iterator_cannot_be_shared() -> None:
    assert "is an iterator" in at_first(Iterating()).why


# What workers say


def test_the_looks_of_all_workers_count_together_and_once() -> None:
    choosing, job = Choosing(), _job(DataLoader(Plain(), num_workers=2).options)
    choosing.begin("auto", job, "fork")
    half = Findings(Looks(LOOKS // 2, 0, 1.0, 0.01))
    choosing.heed(job, half)
    assert choosing.now is UNDECIDED
    choosing.heed(job, half)
    assert choosing.now.kind == "thread"
    choosing.heed(job, Findings(HOLDING, "later"))
    assert choosing.now.kind == "thread"
    choosing.begin("auto", job, "fork")
    assert choosing.now.kind == "thread", "it holds for the next epoch, too"


def test_it_comes_to_an_end_without_looks() -> None:
    choosing, job = Choosing(), _job(DataLoader(Plain(), num_workers=2).options)
    choosing.begin("auto", job, "fork")
    for _ in range(TASKS):
        assert choosing.now is UNDECIDED
        choosing.heed(job, Findings(Looks(0, 0, 0.001, 0.001)))
    assert choosing.now is not UNDECIDED
    assert choosing.now.kind == "process"


def test_what_must_not_be_shared_is_told_at_once() -> None:
    choosing, job = Choosing(), _job(DataLoader(Plain(), num_workers=2).options)
    choosing.begin("auto", job, "fork")
    choosing.heed(job, Findings(Looks(1, 0, 1.0, 0.0), "reading opens x"))
    assert choosing.now == Choice("process", "reading opens x")


# Seeing it


def seen_of(work: Any) -> Looks:
    rival = Rival()
    rival.begin()
    while rival.looked < 16:
        work()
    rival.end()
    rival.stop()
    return rival.take()


def test_a_look_sees_who_holds_the_gil() -> None:
    holding, waiting = seen_of(lambda: sum(range(1_000))), seen_of(lambda: time.sleep(0.01))
    assert holding.held_share > 0.6 or not feedline.gil.gil_is_on()
    assert waiting.held_share < 0.4
    assert waiting.on_cpu < 0.5 < holding.on_cpu


def test_nothing_is_seen_between_tasks() -> None:
    rival = Rival()
    for _ in range(40):
        rival.begin()
        rival.end()
        time.sleep(0.003)  # as a worker waits for its next task
    rival.stop()
    assert rival.looked < 20


def test_what_holds_the_gil_between_tasks_is_no_work() -> None:
    assert counts(3.0, began=2.0, ended=1.0), "at work, for the second time"
    assert counts(3.0, began=2.0, ended=3.5), "looked at while it worked, seen afterwards"
    assert counts(3.0, began=4.0, ended=3.5), "seen while the next task was under way"
    assert not counts(3.0, began=2.0, ended=2.5), "after the end"
    assert not counts(3.0, began=3.5, ended=2.5), "in the pause, seen while the next task was under way"


def test_nothing_is_seen_twice() -> None:
    rival = Rival()
    rival.begin()
    while not rival.looked:
        time.sleep(0.001)
    rival.end()
    rival.stop()
    first = rival.take()
    assert first.looked >= 1
    assert first.seconds > 0
    assert rival.take() == Looks()


# Real loaders


PIECES = "of no global generator"


class Quick(Plain):
    """Samples that draw; if they do so by feedline.rng() alone, batches may be made in pieces."""

    def __getitem__(self, index: int) -> Any:
        drawn = 0.0 if self.given is PIECES else np.random.rand()
        return np.full(10_000, index + feedline.rng().random() + drawn, np.float32)


class Waiting(Quick):
    """The same samples, later."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.004)
        return super().__getitem__(index)


class Computing(Plain):
    def __getitem__(self, index: int) -> Any:
        return np.float32(sum(range(100_000)) % 97 + index)


def batches_of(loader: Any) -> list[Any]:
    return [np.array(batch) for batch in loader]


def same(one: list[Any], other: list[Any]) -> bool:
    return len(one) == len(other) and all(map(np.array_equal, one, other))


def seen_as(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Once somebody has looked, this is chosen: on a busy machine the looks may say anything."""

    def decided(facts: Facts) -> Choice | None:
        if facts.looks is None or facts.not_shared:
            return decide(facts)
        return Choice(kind, "making batches holds the GIL as much as the test wants")

    monkeypatch.setattr(choosing_module, "decide", decided)


def processes_there(loader: DataLoader) -> bool:
    return bool(loader.stats().workers)


@pytest.mark.parametrize(
    ("given", "more"), [(None, {}), (PIECES, {"persistent_workers": True})], ids=["anew", "persistent, in pieces"]
)
def test_threads_take_over_and_every_batch_comes_once(
    given: Any, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen_as(monkeypatch, "thread")
    fixed = DataLoader(Quick(given=given), batch_size=4, shuffle=True, seed=3)
    with DataLoader(Waiting(given=given), batch_size=4, shuffle=True, seed=3, **AUTO, **more) as loader:
        assert loader.stats().kind == ""
        iterator = iter(loader)
        assert loader.stats().kind == "process"
        assert processes_there(loader)
        pids = [worker.pid for worker in loader.stats().workers]
        first, fetching = [], [0.0]
        for batch in iterator:
            first.append(np.array(batch))
            fetching.append(loader.stats().epoch.fetching)
        assert loader.stats().kind == "thread", loader.stats().why_kind
        assert fetching == sorted(fetching), "what the processes did counts, too"
        assert not processes_there(loader)
        assert not [pid for pid in pids if os.path.exists(f"/proc/{pid}")]
        assert f"threads, because {loader.stats().why_kind}" in str(loader.stats())
        assert same(first, batches_of(fixed))
        assert same(batches_of(loader), batches_of(fixed))
        assert not processes_there(loader)
        assert loader._feed._lasting.division.never == (given is not PIECES), "threads join pieces, too"


def test_python_stays_in_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    seen_as(monkeypatch, "process")
    with DataLoader(Computing(), batch_size=4, persistent_workers=True, **AUTO) as loader:
        assert len(batches_of(loader)) == 32
        stats = loader.stats()
        assert stats.kind == "process"
        assert "holds the GIL" in stats.why_kind
        pids = {worker.pid for worker in stats.workers}
        next(iter(loader))
        assert {worker.pid for worker in loader.stats().workers} == pids, "they are kept"


class Opening(Plain):
    def __getitem__(self, index: int) -> Any:
        if self.opened is None:
            self.opened = open(__file__, "rb")
        return np.float32(self.opened.fileno() >= 0)


class OpeningInside(Plain):
    def __getitem__(self, index: int) -> Any:
        if not self.given:
            self.given.append(open(__file__, "rb"))
        return np.float32(index)


class Counting(Plain):
    def __getitem__(self, index: int) -> Any:
        self.given += 1
        return np.float32(index)


_latest = 0


class Noting(Plain):
    def __getitem__(self, index: int) -> Any:
        global _latest
        _latest = index + 1_000
        return np.float32(index)


@pytest.mark.parametrize(
    ("dataset", "why"),
    [
        (Opening(), "reading samples opens dataset.opened"),
        (Plain(given=Opening()), ""),
        (OpeningInside(given=[]), "reading samples opens dataset.given[0]"),
        (Counting(given=0), "reading samples changes dataset.given"),
        (Fetching(), "fetching.fetched draws from the global generator"),
        (Noting(), f"reading samples changes {__name__}._latest"),
    ],
    ids=["opens", "opens nothing", "opens in a list", "counts", "draws by a fetched function", "sets a global"],
)
def test_what_reading_does_to_the_dataset_is_seen_in_a_process_and_not_done_to_ours(dataset: Plain, why: str) -> None:
    before = vars(dataset).copy()
    with DataLoader(dataset, batch_size=2, **AUTO) as loader:
        for _ in loader:
            pass
        assert why in loader.stats().why_kind
        assert not why or loader.stats().kind == "process"
    assert vars(dataset) == before
    assert not dataset.opened


class Deadly(Waiting):
    """Kills each process that comes to certain samples, as soon as there is a file."""

    def __getitem__(self, index: int) -> Any:
        parent, told, deadly = self.given
        if index in deadly and os.getpid() != parent:
            while not told.exists():
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


@pytest.mark.filterwarnings("ignore:worker . .pid:UserWarning")
def test_where_a_process_dies_there_are_no_threads_to_take_this_one_along(tmp_path: Path) -> None:
    (tmp_path / "told").touch()
    dataset = Deadly(given=(os.getpid(), tmp_path / "told", range(8)))
    with DataLoader(dataset, batch_size=4, seed=1, max_deaths=1, **AUTO) as loader:
        iterator = iter(loader)
        for _ in range(2):  # what both of them begin with
            with pytest.raises(WorkerDied):
                next(iterator)
        found = batches_of(iterator)
        assert loader.stats().kind == "process"
        assert "has died" in loader.stats().why_kind
    assert same(found, batches_of(DataLoader(Quick(), batch_size=4, seed=1))[2:])


# The change-over, step by step


def test_tasks_of_the_next_epoch_are_taken_once_it_is_settled_who_makes_them() -> None:
    loader, choosing = DataLoader(Quick(), batch_size=4, **AUTO), Choosing()
    workers = ChoosingWorkers(
        _job(loader.options), partial(_workers_of, loader.options), choosing, loader.options.num_workers
    )
    taken = []
    for now in (UNDECIDED, Choice("thread", "so it is"), Choice("process", "so it is")):
        choosing.now = now
        taken.append(workers.takes_early)
    assert taken == [False, False, True]
    workers.release()


class Stepwise:
    """Workers that have chosen threads while task 5 is still in a process's hands."""

    def __init__(self, told: Path) -> None:
        loader = DataLoader(Deadly(given=(os.getpid(), told, range(20, 24))), batch_size=4, seed=1, **AUTO)
        tasks = loader._plan.tasks_from(Place(0))
        self.tasks = [next(tasks) for _ in range(6)]
        self.job = job = _job(loader.options)
        self.choosing = Choosing()
        self.choosing.now = Choice("thread", "so it is")
        self.workers = ChoosingWorkers(job, partial(_workers_of, loader.options), self.choosing, job.num_workers)
        self.workers.start()
        self.workers.submit(self.tasks[5])
        self.workers.submit(self.tasks[0])
        assert self.seqs(1) == [0]
        assert self.workers.processes()

    def seqs(self, count: int) -> list[int]:
        found: list[Any] = []
        while len(found) < count:
            come = self.workers.wait(600)
            assert come, "nothing comes any more"
            found += come
        return [event.seq if isinstance(event, Outcome) else -1 for event in found]


@pytest.fixture
def stepwise(tmp_path: Path) -> Iterator[Stepwise]:
    steps = Stepwise(tmp_path / "told")
    yield steps
    steps.workers.release()


def test_what_a_process_has_in_hand_is_waited_for(stepwise: Stepwise, tmp_path: Path) -> None:
    workers = stepwise.workers
    workers.submit(stepwise.tasks[1])
    workers.submit(stepwise.tasks[2])
    assert workers.wait(0) == [], "those are with threads, and come after what processes have"
    assert workers.processes()
    (tmp_path / "told").touch()
    (death,) = workers.wait(600)
    assert isinstance(death, Death)
    assert [task.seq for task in death.lost] == [5], "whoever gets that may fail it, or give it out again"
    assert sorted(stepwise.seqs(2)) == [1, 2]
    assert not workers.processes()


def test_a_task_that_a_process_has_lost_goes_to_a_process_again(stepwise: Stepwise, tmp_path: Path) -> None:
    workers = stepwise.workers
    (tmp_path / "told").touch()
    (death,) = workers.wait(600)
    assert isinstance(death, Death)
    workers.submit(death.lost[0], urgent=True)  # a thread that reads it would end the tests
    workers.revive(death.worker, elsewhere=False)
    (death,) = workers.wait(600)
    assert isinstance(death, Death)
    workers.submit(stepwise.tasks[1])
    assert stepwise.seqs(1) == [1]
    assert not workers.processes()
    workers.revive(death.worker, elsewhere=False)
    assert len(workers.standing()) == 2, "that place was a process's"


def test_what_is_sent_once_more_is_waited_for(stepwise: Stepwise) -> None:
    workers, choosing = stepwise.workers, stepwise.choosing
    workers.forget()
    workers.submit(stepwise.tasks[1])
    assert stepwise.seqs(1) == [1]
    choosing.now = UNDECIDED
    again = ChoosingWorkers(stepwise.job, workers._make, choosing, stepwise.job.num_workers)
    again.start()
    again.submit_first(stepwise.tasks[2:4])
    assert again._out == {2, 3}
    stepwise.workers = again
    assert sorted(stepwise.seqs(2)) == [2, 3]
    assert again._out == set()
    workers.release()


def test_a_piece_is_part_of_a_batch_and_one_in_vain_is_nothing() -> None:
    job = _job(DataLoader(Quick(), batch_size=8).options)
    piece = Task(-3, 0, 1, [1, 2], piece_of=4)
    assert _share(job, piece, Outcome(-3, None, 2)) == 0.25
    assert _share(job, piece, Outcome(-3, notice=Notice(apart=Apart.ONCE))) == 0.0
    assert _share(job, Task(4, 0, 1, [1, 2]), Outcome(4, None, 2)) == 1.0


def test_processes_that_are_being_replaced_take_nothing_early(stepwise: Stepwise) -> None:
    assert stepwise.workers.processes()
    assert not stepwise.workers.takes_early, "it would be lost with them"


def test_who_leaves_waits_for_nobody(stepwise: Stepwise) -> None:
    workers = stepwise.workers
    workers.forget()
    workers.submit(stepwise.tasks[3])
    assert stepwise.seqs(1) == [3]
    assert not workers.processes()


class Flowing(IterableDataset[Any]):
    def shard(self, index: int, count: int) -> Flowing:
        part = Flowing()
        part.mine = range(index, 128, count)
        return part

    mine = range(128)

    def __iter__(self) -> Iterator[Any]:
        for index in self.mine:
            time.sleep(0.004)
            yield np.float32(index)


@pytest.mark.parametrize("persistent", [False, True])
def test_a_stream_is_read_to_its_end_by_those_who_began(persistent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    seen_as(monkeypatch, "thread")
    with DataLoader(Flowing(), batch_size=4, persistent_workers=persistent, **AUTO) as loader:
        iterator = iter(loader)
        first = [next(iterator) for _ in range(31)]
        assert loader.stats().kind == "thread", loader.stats().why_kind
        assert processes_there(loader), "threads come with the next epoch"
        first += list(iterator)
        again = list(loader)
        assert not processes_there(loader)
    expected = batches_of(DataLoader(Flowing(), batch_size=4, num_workers=2, workers="thread"))
    assert same(first, expected)
    assert same(again, expected)


def test_a_dataset_that_does_not_travel_is_read_by_threads() -> None:
    dataset = Plain(given=(each for each in ()))
    with DataLoader(dataset, batch_size=8, **{**AUTO, "multiprocessing_context": "spawn"}) as loader:
        assert len(batches_of(loader)) == 16
        assert loader.stats().kind == "thread"
        assert "dataset.given" in loader.stats().why_kind


class Nested(Plain):
    def __getitem__(self, index: int) -> Any:
        loader = DataLoader(Plain(), batch_size=32, num_workers=1, workers="auto")
        return sum(float(batch.sum()) for batch in loader), loader.stats().why_kind


def test_a_worker_process_has_threads_of_its_own() -> None:
    total, why = next(iter(DataLoader(Nested(), batch_size=None, num_workers=1, multiprocessing_context="fork")))
    assert (total, why) == (sum(range(128)), "a worker process cannot start worker processes")


def test_a_loader_that_is_dropped_ends_its_workers() -> None:
    loader = DataLoader(Waiting(), batch_size=4, persistent_workers=True, **AUTO)
    iterator = iter(loader)
    next(iterator)
    gone = weakref.ref(loader)
    del loader, iterator
    assert gone() is None  # and conftest sees to it that no process or thread is left


def test_an_epoch_that_is_left_early_changes_nothing() -> None:
    with DataLoader(Waiting(), batch_size=4, seed=5, persistent_workers=True, **AUTO) as loader:
        for number in range(3):
            loader.set_epoch(7)
            iterator = iter(loader)
            fixed = DataLoader(Quick(), batch_size=4, seed=5)
            fixed.set_epoch(7)
            expecteds = iter(fixed)
            for _ in range(2 + 5 * number):
                assert np.array_equal(next(iterator), next(expecteds))


def test_the_option_is_checked() -> None:
    with pytest.raises(OptionError, match="workers"):
        DataLoader(Plain(), workers="automatic")
    with pytest.raises(OptionTypeError, match="'process' or 'thread' or 'auto'"):
        DataLoader(Plain(), workers=2)  # type: ignore[arg-type]
    assert DataLoader(Plain()).options.workers == "process"
    loader = DataLoader(Plain(), workers="auto", batch_size=128)
    assert len(batches_of(loader)) == 1
    assert loader.stats().kind == "", "there are no workers"


def test_what_was_asked_for_by_name_is_said_without_a_reason() -> None:
    loader = DataLoader(Plain(), batch_size=128, num_workers=1, workers="thread")
    batches_of(loader)
    assert (loader.stats().kind, loader.stats().why_kind) == ("thread", "")
    assert "because" not in str(loader.stats())
