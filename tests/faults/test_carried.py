"""Files, connections, locks and threads carried over a fork: what they do there, and what is said of it."""

# ruff: noqa: SIM115

from __future__ import annotations

import concurrent.futures
import gzip
import logging
import mmap
import multiprocessing
import multiprocessing.pool
import os
import queue
import socket
import sqlite3
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import FORK, FORKSERVER, SPAWN, THREADS, every_kind, thorough

from feedline import DataLoader, Dataset, Subset
from feedline.loader import _job
from feedline.supervise.walking import MOST, walk
from feedline.workers.carried import warnings_about


class Holder(Dataset[Any]):
    def __init__(self, thing: Any = None, **more: Any) -> None:
        self.thing = thing
        vars(self).update(more)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return index


def told(dataset: Any, workers: str = "process", context: str = "fork", **options: Any) -> list[str]:
    loader = DataLoader(dataset, num_workers=2, **options)
    return list(warnings_about(_job(loader.options), workers, context))


def path_of(dataset: Any) -> str:
    (message,) = told(dataset)
    return message.split(" ")[0]


# What really happens


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    path.write_bytes(b"sample-0sample-1")
    return path


class Seeking(Holder):
    """Two workers at once: each goes to its place in the file, then one after the other reads there."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.both = multiprocessing.get_context("fork").Barrier(2)
        self.file: Any = None

    def open(self) -> Seeking:
        self.file = open(self.path, "rb", buffering=0)
        return self

    def __getitem__(self, index: int) -> bytes:
        if self.file is None:
            self.open()
        self.file.seek(8 * index)
        self.both.wait(300)
        if index == 0:  # the second reads first: in the other order the bytes may be right by luck
            self.both.wait(300)
        found = bytes(self.file.read(8))
        if index == 1:
            self.both.wait(300)
        return found


def test_workers_that_share_an_open_file_read_each_others_bytes(lines: Path) -> None:
    data = Seeking(lines).open()
    with pytest.warns(UserWarning, match=r"dataset\.file is an open file") as told:
        batches = list(DataLoader(data, batch_size=None, **FORK))
    data.file.close()
    assert batches != [b"sample-0", b"sample-1"]
    assert len(told) == 1
    assert told[0].filename == __file__
    assert "worker_init_fn" in str(told[0].message)
    assert "multiprocessing_context='spawn'" in str(told[0].message)


def test_a_file_that_is_opened_in_the_worker_is_read_rightly_and_without_a_word(lines: Path) -> None:
    assert list(DataLoader(Seeking(lines), batch_size=None, **FORK)) == [b"sample-0", b"sample-1"]


class Writing(Holder):
    def __getitem__(self, index: int) -> bool:
        return bool(self.thing.in_transaction)


def test_a_forked_database_connection_believes_in_a_transaction_that_is_the_parents(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("BEGIN IMMEDIATE")
    with pytest.warns(UserWarning, match=r"dataset\.thing is an open database connection"):
        batches = list(DataLoader(Writing(connection), batch_size=None, **FORK))
    connection.close()
    assert batches == [True, True]


class Locking(Holder):
    def __getitem__(self, index: int) -> bool:
        return bool(self.thing.acquire(blocking=False))


def test_a_lock_held_at_the_fork_stays_held_in_the_worker_for_ever() -> None:
    lock = threading.Lock()
    with lock, pytest.warns(UserWarning, match=r"dataset\.thing is a lock that is held right now"):
        batches = iter(DataLoader(Locking(lock), batch_size=None, **FORK))
    assert not lock.locked()  # here it is free again
    assert list(batches) == [False, False]


@contextmanager
def held_by_another_thread(lock: Any) -> Iterator[None]:
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            holding.set()
            done.wait(300)

    thread = threading.Thread(target=hold)
    thread.start()
    holding.wait(300)
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock, threading.Condition])
def test_a_lock_that_another_thread_holds_is_warned_of_before_the_fork(make: Callable[[], Any]) -> None:
    lock = make()
    with held_by_another_thread(lock), pytest.warns(UserWarning, match=r"dataset\.thing is a lock that is held"):
        batches = list(DataLoader(Locking(lock), batch_size=None, **FORK))
    assert batches == [False, False]


class Submitting(Holder):
    def __getitem__(self, index: int) -> str:
        try:
            return str(self.thing.submit(str, index).result(timeout=0.2))
        except concurrent.futures.TimeoutError:
            return "nobody there"


def test_a_pool_of_threads_that_was_started_before_the_fork_does_nothing_in_the_worker() -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        with pytest.warns(UserWarning, match=r"dataset\.thing has running threads"):
            batches = list(DataLoader(Submitting(pool), batch_size=None, **FORK))
    assert batches == ["nobody there", "nobody there"]


# How it is said


@pytest.mark.parametrize("persistent", [False, True])
def test_it_is_said_once_per_loader_and_not_in_every_epoch(lines: Path, persistent: bool) -> None:
    with open(lines) as file, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            with DataLoader(Holder(file), persistent_workers=persistent, **FORK) as loader:
                for _ in range(3):
                    list(loader)
    assert len(told) == 2


def test_several_of_a_kind_are_one_warning(lines: Path) -> None:
    with ExitStack() as stack:
        files = [stack.enter_context(open(lines)) for _ in range(5)]
        (message,) = told(Holder(files))
    assert message.startswith("dataset.thing[0] (and 4 more like it) is an open file")


class LeavingOut(Holder):
    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "thing": None}


@pytest.mark.parametrize("kind", [SPAWN, pytest.param(FORKSERVER, marks=thorough), THREADS, {}])
def test_where_nothing_is_forked_nothing_is_said(kind: dict[str, Any], lines: Path) -> None:
    with open(lines) as file:
        assert len(list(DataLoader(LeavingOut(file), **kind))) == 2


def test_it_is_looked_for_when_fork_is_only_the_default(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing.get_context(), "get_start_method", lambda: "fork")
    loader = DataLoader(Holder(), num_workers=2)
    with open(lines) as file:
        loader.dataset.thing = file
        assert len(list(warnings_about(_job(loader.options), "process", None))) == 1


# What is found


class Slotted:
    __slots__ = ("file", "unset")


def in_slot(file: Any) -> Slotted:
    slotted = Slotted()
    slotted.file = file
    return slotted


def in_thread_local(file: Any) -> Any:
    local = threading.local()
    local.file = file
    return local


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (lambda file: Holder(file), "dataset.thing"),
        (lambda file: Subset(Holder(file), [0, 1]), "dataset.dataset.thing"),
        (lambda file: Holder({"a": [0, (file,)]}), "dataset.thing['a'][1][0]"),
        (lambda file: Holder({(1, 2): {file}}), "dataset.thing[…][0]"),
        (lambda file: Holder(types.SimpleNamespace(db=types.SimpleNamespace(_file=file))), "dataset.thing.db._file"),
        (lambda file: Holder(in_slot(file)), "dataset.thing.file"),
        (lambda file: Holder(in_thread_local(file)), "dataset.thing.file"),
        (lambda file: Holder(partial(print, file=file)), "dataset.thing.keywords['file']"),
        (lambda file: Holder(Holder(file).__getitem__), "dataset.thing.__self__.thing"),
        (lambda file: type("OnClass", (Holder,), {"file": file})(), "dataset.file"),
        (lambda file: [file, file], "dataset[0]"),
    ],
)
def test_it_is_found_wherever_it_is(place: Callable[[Any], Any], path: str, lines: Path) -> None:
    with open(lines) as file:
        assert path_of(place(file)) == path


def test_it_is_found_in_a_closure(lines: Path) -> None:
    with open(lines) as file:
        (message,) = told(Holder(lambda: file))
    assert message.startswith("dataset.thing's variable file is an open file")


@contextmanager
def pipe() -> Iterator[Any]:
    reading, writing = os.pipe()
    os.close(writing)
    with open(reading) as file:
        yield file


@contextmanager
def running_thread() -> Iterator[Any]:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    yield thread
    done.set()
    thread.join()


@contextmanager
def busy_executor() -> Iterator[Any]:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        yield pool


@contextmanager
def sqlite(path: str = ":memory:") -> Iterator[Any]:
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


@contextmanager
def held(lock: Any) -> Iterator[Any]:
    with lock:
        yield lock


@pytest.mark.parametrize(
    ("opened", "what"),
    [
        (lambda path: open(path), "is an open file"),
        (lambda path: open(path, "rb"), "is an open file"),
        (lambda path: open(path, "r+b", buffering=0), "is an open file"),
        (lambda path: open(path, "w"), "is an open file"),
        (lambda path: gzip.open(path), "is an open file"),
        (lambda path: gzip.open(path, "rt"), "is an open file"),
        (lambda path: tempfile.NamedTemporaryFile(), "is an open file"),
        (lambda path: pipe(), "is an open pipe"),
        (lambda path: socket.socket(), "is an open socket"),
        (lambda path: sqlite(), "is an open database connection"),
        (lambda path: held(threading.Lock()), "is a lock that is held"),
        (lambda path: running_thread(), "has running threads"),
        (lambda path: busy_executor(), "has running threads"),
        (lambda path: multiprocessing.pool.ThreadPool(1), "has running threads"),
    ],
)
def test_each_kind_of_thing_is_known(opened: Callable[[Path], Any], what: str, lines: Path) -> None:
    with opened(lines) as thing:
        (message,) = told(Holder(thing))
        if isinstance(thing, multiprocessing.pool.ThreadPool):
            thing.close()
            thing.join()
    assert message.startswith("dataset.thing")
    assert what in message


PACKAGES = """
class Connection:
    def __init__(self, closed): self.closed = closed
    def cursor(self): ...
    def commit(self): ...
    def rollback(self): ...

class Identifier:
    __slots__ = ("id",)

class File:
    def __init__(self, closed):
        self._id = Identifier()
        self._id.id = 0 if closed else 5

class Environment: ...

class Asking(Connection):
    def __init__(self): self.asked = []
    closed = property(lambda self: self.asked.append(1))
"""


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Stand-ins, installed like the real ones, which the tests do without."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    for name in ("psycopg", "h5py", "lmdb"):
        (folder / f"{name}.py").write_text(PACKAGES)
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield __import__
    for name in ("psycopg", "h5py", "lmdb"):
        sys.modules.pop(name, None)


def test_connections_of_other_packages_are_known_without_importing_them(packages: Any) -> None:
    for thing in (packages("psycopg").Connection(False), packages("h5py").File(False), packages("lmdb").Environment()):
        (message,) = told(Holder(thing))
        assert message.startswith("dataset.thing is an open database connection")


def test_a_connection_is_not_asked_for_what_it_would_have_to_compute(packages: Any) -> None:
    connection = packages("psycopg").Asking()
    assert len(told(Holder(connection))) == 1
    assert connection.asked == []


def test_their_closed_ones_are_not_warned_of(packages: Any) -> None:
    assert told(Holder([packages("psycopg").Connection(True), packages("h5py").File(True)])) == []


# What is harmless


class LazyDatabase:
    """A class of the user's: whether it has a connection is seen by looking into it."""

    def __init__(self) -> None:
        self._connection: Any = None

    def cursor(self) -> Any:
        self._connection = self._connection or sqlite3.connect(":memory:")
        return self._connection.cursor()

    def commit(self) -> None: ...
    def rollback(self) -> None: ...


def closed(thing: Any) -> Any:
    thing.close()
    return thing


def finished_thread() -> threading.Thread:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    return thread


def shut_executor() -> Any:
    with busy_executor() as pool:
        return pool


HARMLESS: dict[str, Callable[[Path], Any]] = {
    "standard streams": lambda path: [sys.stdout, sys.stderr, sys.stdin, sys.__stdout__, sys.__stderr__],
    "closed file": lambda path: closed(open(path)),
    "closed socket": lambda path: closed(socket.socket()),
    "closed connection": lambda path: closed(sqlite3.connect(":memory:")),
    "bytes in memory": lambda path: __import__("io").TextIOWrapper(__import__("io").BytesIO(b"abc")),
    "mapped array": lambda path: np.memmap(path, mode="r"),
    "free locks": lambda path: [threading.Lock(), threading.RLock(), threading.Condition(), threading.Semaphore(0)],
    "things to wait for": lambda path: [threading.Event(), threading.Barrier(2), queue.Queue(), queue.SimpleQueue()],
    "logger": lambda path: logging.getLogger("feedline.test"),
    "thread to be": lambda path: threading.Thread(target=int),
    "finished thread": lambda path: finished_thread(),
    "executor to be": lambda path: concurrent.futures.ThreadPoolExecutor(1),
    "executor that was": lambda path: shut_executor(),
    "lazy database": lambda path: LazyDatabase(),
    "another loader": lambda path: DataLoader([1, 2]),
    "shared on purpose": lambda path: [multiprocessing.Lock(), multiprocessing.Value("i"), multiprocessing.Event()],
}


@pytest.mark.parametrize("name", HARMLESS)
def test_nothing_is_said_of(name: str, lines: Path) -> None:
    assert told(Holder(HARMLESS[name](lines))) == []


def test_nothing_is_said_of_a_file_kept_open_for_its_mapping(lines: Path) -> None:
    with open(lines, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapping:
        assert told(Holder(types.SimpleNamespace(file=file, mapping=mapping))) == []
        assert len(told(Holder(types.SimpleNamespace(file=file), other=mapping))) == 1


def test_nothing_is_said_of_a_log_that_is_appended_to_nor_of_one_that_goes_nowhere(lines: Path) -> None:
    with open(lines, "a") as log, open(os.devnull, "w") as nowhere:
        assert told(Holder([log, nowhere])) == []


def test_nothing_is_said_of_a_lock_that_the_forking_thread_holds_and_may_take_again() -> None:
    with (lock := threading.RLock()):
        assert list(DataLoader(Locking(lock), batch_size=None, **FORK)) == [True, True]


def test_nothing_is_said_of_a_redirected_standard_stream(lines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open(lines, "w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        assert told(Holder(sys.stdout)) == []


class OwnCondition(threading.Condition):
    pass


@pytest.mark.parametrize("make", [threading.Condition, OwnCondition])
def test_nothing_is_said_of_a_queue_that_a_thread_waits_at(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "Condition", make)
    waiting: queue.Queue[None] = queue.Queue()
    thread = threading.Thread(target=waiting.get)
    thread.start()
    while not waiting.not_empty._waiters:  # type: ignore[attr-defined]
        os.sched_yield()
    try:
        assert told(Holder(waiting)) == []
    finally:
        waiting.put(None)
        thread.join()


def test_nothing_is_said_of_another_loader_at_work() -> None:
    with DataLoader([1, 2], persistent_workers=True, **THREADS) as inner:
        assert len(list(inner)) == 2
        assert told(Holder(inner)) == []


# How it is looked for


class Touchy:
    """Remembers whatever code of its own is run."""

    called: list[str] = []  # noqa: RUF012

    def __init__(self) -> None:
        self.inner = [1]
        self.named = {Key(): 1}

    def __getattribute__(self, name: str) -> Any:
        Touchy.called.append(name)
        return object.__getattribute__(self, name)

    def _called(self, *args: Any) -> Any:
        Touchy.called.append("a method")
        raise RuntimeError

    __getattr__ = __iter__ = __len__ = __getitem__ = __eq__ = __hash__ = __bool__ = __repr__ = __reduce__ = _called
    closed = cursor = commit = rollback = fileno = device = buffer = locked = property(_called)


class Key:
    def __repr__(self) -> str:
        Touchy.called.append("repr of a key")
        return ""


class TouchyDict(dict[Any, Any]):
    __iter__ = items = keys = values = __getitem__ = Touchy._called


class TouchyList(list[Any]):
    __iter__ = __getitem__ = __len__ = __bool__ = Touchy._called


@pytest.mark.parametrize("workers", ["process", "thread"])
def test_no_code_of_the_datasets_is_run(workers: str, lines: Path) -> None:
    things = [Touchy(), TouchyDict(a=Touchy()), TouchyList([Touchy()])]
    Touchy.called.clear()
    assert told(Holder(things), workers=workers) == []
    assert Touchy.called == []
    with open(lines) as file:  # and yet it is looked into
        assert path_of(Holder(TouchyDict(a=TouchyList([file])))) == "dataset.thing['a'][0]"


def test_cycles_and_depth_and_breadth_have_an_end() -> None:
    deep: Any = None
    for _ in range(100_000):
        deep = [deep]
    around = Holder()
    around.thing = [around, {"again": around}]
    wide = {i: [[j] for j in range(100)] for i in range(1000)}
    looked_at = 0

    def count(kind: type) -> Any:
        def check(value: Any) -> None:
            nonlocal looked_at
            looked_at += 1

        return check

    tree = [[[[[[] for _ in range(8)] for _ in range(8)] for _ in range(8)] for _ in range(8)] for _ in range(8)]
    assert walk(Holder([deep, around, wide, tree]), "dataset", count) == []
    assert 100 < looked_at <= MOST
    while deep is not None:  # or its end would be as deep
        deep = deep[0]


def test_the_nearest_is_found_first_however_much_else_there_is(lines: Path) -> None:
    heaps = [[[[[] for _ in range(8)] for _ in range(8)] for _ in range(8)] for _ in range(8)]
    with open(lines) as file:
        assert path_of(Holder(heaps, near=types.SimpleNamespace(file=file))) == "dataset.near.file"


@every_kind
def test_an_ordinary_dataset_is_loaded_without_a_word(kind: dict[str, Any]) -> None:
    assert len(list(DataLoader(Holder(np.zeros(3), names=["a"] * 1000), **kind))) == 2
