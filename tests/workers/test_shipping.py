"""What travels to spawned workers, and what is said of what cannot."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import FORK, FORKSERVER, SPAWN, THREADS
from warm_host import host

from feedline import ArrayDataset, DataLoader, Dataset, ShippingError, register_collate
from feedline.arena.segment import Segment
from feedline.collate import default as collate
from feedline.loader import _job
from feedline.workers import warm
from feedline.workers.shipping import ship, without_main

SHIPPED = pytest.mark.parametrize("kind", [pytest.param(SPAWN, id="spawn"), pytest.param(FORKSERVER, id="forkserver")])


class Holder(Dataset[Any]):
    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return index


class Db:
    def __init__(self, path: str) -> None:
        self._conn = sqlite3.connect(path)


@SHIPPED
def test_lambdas_closures_and_local_classes_travel(kind: dict[str, Any]) -> None:
    factor = 3

    class Local(Dataset[int]):
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> int:
            return index * factor

    loader = DataLoader(Local(), batch_size=2, collate_fn=lambda samples: [-s for s in samples], **kind)
    assert list(loader) == [[0, -3], [-6, -9]]


@SHIPPED
def test_an_attribute_that_cannot_travel_is_named_by_its_path(kind: dict[str, Any], tmp_path: Path) -> None:
    db = Db(str(tmp_path / "x.db"))
    with pytest.raises(ShippingError, match=r"dataset\.thing\.db\._conn: sqlite3\.Connection") as caught:
        iter(DataLoader(Holder(Dict2(db=db)), **kind))
    assert "worker_init_fn" in str(caught.value)
    db._conn.close()


class Dict2:
    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)


@SHIPPED
@pytest.mark.parametrize(
    ("place", "path"),
    [
        (lambda lock: {"a": [0, lock]}, r"dataset\.thing\['a'\]\[1\]: _thread\.lock"),
        (lambda lock: partial(print, lock), r"dataset\.thing\.args\[0\]: _thread\.lock"),
        (lambda lock: lambda: lock, r"dataset\.thing's variable lock: _thread\.lock"),
    ],
)
def test_it_is_found_wherever_it_is(kind: dict[str, Any], place: Any, path: str) -> None:
    with pytest.raises(ShippingError, match=path):
        iter(DataLoader(Holder(place(threading.Lock())), **kind))


@SHIPPED
def test_a_collate_function_that_cannot_travel_is_named(kind: dict[str, Any]) -> None:
    lock = threading.Lock()
    with pytest.raises(ShippingError, match="collate_fn's variable lock"):
        iter(DataLoader(Holder(0), collate_fn=lambda samples: lock, **kind))


@pytest.mark.parametrize("kind", [FORK, THREADS])
def test_where_nothing_is_shipped_anything_goes(kind: dict[str, Any]) -> None:
    assert len(list(DataLoader(Holder(threading.Lock()), **kind))) == 4


class Unloadable:
    def __reduce__(self) -> Any:
        return _refuse, ()


def _refuse() -> Any:
    raise ImportError("no module of that name in the worker")


@SHIPPED
def test_what_cannot_be_rebuilt_in_the_worker_is_an_error_not_a_hang(kind: dict[str, Any]) -> None:
    with pytest.raises(ImportError, match="no module of that name") as caught:
        list(DataLoader(Holder(Unloadable()), **kind))
    assert "could not rebuild what was sent" in "".join(caught.value.__notes__)


class Rows(Dataset[Any]):
    """Large arrays and a way to see, from the worker, what they cost it and whether writing stays private."""

    def __init__(self) -> None:
        self.big = np.arange(8_000_000, dtype=np.int64)

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        before = int(self.big[index])
        self.big[index] = -1
        # Its own copies of pages. Pages of the shared file that no other worker has looked at yet count as private too.
        rollup = Path("/proc/self/smaps_rollup").read_text()
        private = 1024 * int(rollup.split("Anonymous:")[1].split()[0])
        return before, int(self.big.sum() > 0), private


@SHIPPED
def test_large_arrays_are_shared_by_all_workers_and_writing_to_them_stays_private(kind: dict[str, Any]) -> None:
    data = Rows()
    batches = list(DataLoader(data, batch_size=1, **kind))
    assert [int(before.item()) for before, _, _ in batches] == list(range(40))  # each index is read by one worker only
    assert data.big[5] == 5
    assert max(int(private.item()) for _, _, private in batches) < data.big.nbytes


@SHIPPED
def test_registered_leaf_types_travel(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collate, "_registered", {})
    register_collate(complex, lambda values, empty: ("complex", len(values)))

    class Waves(Holder):
        def __getitem__(self, index: int) -> complex:
            return complex(0, index)

    assert list(DataLoader(Waves(0), batch_size=4, **kind)) == [("complex", 4)]


@SHIPPED
def test_an_array_dataset_travels_whole(kind: dict[str, Any]) -> None:
    x = np.random.default_rng(0).random((1000, 50))
    assert (np.concatenate([b for (b,) in DataLoader(ArrayDataset(x), batch_size=64, **kind)]) == x).all()


RETURNED = """
import enum
from typing import NamedTuple
import numpy as np
from feedline import DataLoader, Dataset

class Batch:
    seen = 0
    def __init__(self, *values): self.values = values

class Colour(enum.Enum):
    RED = 1

class Pair(NamedTuple):
    first: int
    second: np.ndarray

class Broken(Exception):
    def __init__(self, index, why):
        super().__init__(f"{index}: {why}")
        self.index, self.why = index, why
    def __reduce__(self): return Broken, (self.index, self.why)

class Key:
    def __init__(self, number): self.number = number

class Typed(Dataset):
    def __len__(self): return 4
    def __getitem__(self, key):
        if key.number == 3: raise Broken(3, "bad")
        return Batch(Pair(key.number, np.zeros(50_000)), Colour.RED, Batch, double, key)

def double(x): return 2 * x

def main():
    keys = [Key(number) for number in range(4)]
    told = []
    loader = DataLoader(Typed(), batch_size=None, sampler=keys, num_workers=2, multiprocessing_context="spawn",
                        collate_fn=lambda sample: sample)
    with loader:
        batches = iter(loader)
        for number in range(3):
            Batch.seen += 1
            batch = next(batches)
            pair, colour, kind, function, key = batch.values
            told.append(type(batch) is Batch and kind is Batch and colour is Colour.RED and function is double)
            told.append(type(pair) is Pair and pair.first == number and pair.second.shape == (50_000,))
            told.append(type(key) is Key and key.number == number)
        try:
            next(batches)
        except Broken as error:
            told.append(type(error) is Broken and (error.index, error.why) == (3, "bad"))
    print(told, Batch.seen)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("where", ["prompt", "script"])
def test_what_travels_out_travels_back(tmp_path: Path, where: str) -> None:
    """As what it was: a copy of a class is another class. As in a notebook, a prompt's __main__ has no file that a
    spawned worker could import; in the script it is the lambda that pickle cannot send."""
    if where == "prompt":
        command = [sys.executable, "-"]
        out = subprocess.run(command, input=RETURNED, text=True, capture_output=True, check=True, timeout=300)
    else:
        (tmp_path / "script.py").write_text(RETURNED)
        out = host("feedline").run([str(tmp_path / "script.py")], check=True, timeout=300)
    assert out.stdout.strip() == f"{[True] * 10} 3"
    assert out.stderr == ""


@SHIPPED
def test_what_was_made_in_a_function_travels_back(kind: dict[str, Any]) -> None:
    class Wrong(Exception):
        pass

    class Sample:
        def __init__(self, index: int) -> None:
            self.index = index

    class Local(Dataset[Any]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> Any:
            if index == 4:
                raise Wrong(index)
            return Sample(index)

    with DataLoader(Local(), 2, collate_fn=list, **kind) as loader:
        batches = iter(loader)
        first = [sample for _ in range(2) for sample in next(batches)]
        assert [type(sample) for sample in first] == [Sample] * 4
        assert [sample.index for sample in first] == [0, 1, 2, 3]
        with pytest.raises(Wrong, match="4") as raised:
            next(batches)
        assert type(raised.value) is Wrong


def test_a_spawned_worker_that_needs_only_numpy_loads_no_framework() -> None:
    loaded = next(iter(DataLoader(Modules(), batch_size=None, num_workers=1, multiprocessing_context="spawn")))
    assert loaded == []


class Origins(Dataset[Any]):
    """Which process a worker was forked from, and whether that had imported `wave`."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return os.getppid(), "wave" in sys.modules


@pytest.mark.parametrize(("method", "preloads"), [("forkserver", True), ("spawn", False)])
def test_forkserver_means_our_server_with_what_the_user_wants_preloaded(
    method: str, preloads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def origins() -> set[Any]:
        return set(DataLoader(Origins(), batch_size=None, num_workers=2, multiprocessing_context=method))

    plain = origins()
    monkeypatch.setattr(forkserver._forkserver, "_preload_modules", ["wave"])  # as set_forkserver_preload does
    wanted = origins()
    servers = {server._forkserver_pid for server in warm._servers.values()}  # type: ignore[attr-defined]
    assert {pid for pid, _ in plain | wanted} <= servers
    assert {imported for _, imported in plain} == {False}
    assert {imported for _, imported in wanted} == {preloads}


class Modules(Dataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return [name for name in ("torch", "jax", "cloudpickle", "PIL") if name in sys.modules]


class Shared(Dataset[int]):
    """Holds what multiprocessing hands over only to a process that is being started."""

    def __init__(self, method: str, deadly: bool = False) -> None:
        context = multiprocessing.get_context(method)
        self.count = context.Value("i", 0)
        self.raw = context.RawArray("i", 2)
        self.lock = self.again = context.Lock()
        self.event = context.Event()
        self.queue = context.SimpleQueue()
        self.reader, self.writer = context.Pipe(duplex=False)
        self.big = np.arange(100_000)
        self.scale = lambda x: x * 10
        self.deadly = deadly

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        assert self.lock is self.again
        if self.deadly and self.raw[0] == 0:
            self.raw[0] = 1
            os.kill(os.getpid(), signal.SIGKILL)
        with self.lock, self.count:
            self.count.value += 1
            self.raw[1] += 1
        self.event.set()
        self.queue.put(index)
        self.writer.send_bytes(b"x")
        return self.scale(int(self.big[index]))

    def close(self) -> None:
        self.reader.close()
        self.writer.close()
        self.queue.close()


@SHIPPED
@pytest.mark.filterwarnings("ignore:worker .* was killed:UserWarning")
@pytest.mark.parametrize("deadly", [False, True], ids=["", "a worker dies"])
def test_locks_values_queues_and_pipes_are_handed_over(kind: dict[str, Any], deadly: bool) -> None:
    dataset = Shared(kind["multiprocessing_context"], deadly)
    try:
        # With a collate_fn no batch is made in pieces, of which a death has those read once more that were finished.
        # In turn, nobody can have read a task that is then given out again.
        batches = DataLoader(dataset, batch_size=2, collate_fn=np.array, assignment="in_turn", **kind)
        assert [batch.tolist() for batch in batches] == [[0, 10], [20, 30], [40, 50]]
        assert dataset.count.value == 6
        assert list(dataset.raw) == [int(deadly), 6]
        assert dataset.event.is_set()
        assert sorted(dataset.queue.get() for _ in range(6)) == list(range(6))
        assert dataset.reader.recv_bytes() == b"x"
    finally:
        dataset.close()


@pytest.mark.skipif(
    not any("fork_ctx" in name for name in vars(multiprocessing.get_context("fork").Lock())),
    reason="this Python does not say for whom a lock was made: 3.10, and 3.11.2 of Debian 12",
)
def test_a_lock_made_for_forked_processes_is_named_and_one_made_for_others_is_not() -> None:
    good = multiprocessing.get_context("spawn").Lock()
    bad = multiprocessing.get_context("fork").Lock()
    with pytest.raises(ShippingError, match=r"dataset\.thing\[1\]: multiprocessing.synchronize.Lock .*fork context"):
        iter(DataLoader(Holder([good, bad]), **SPAWN))
    with pytest.raises(ShippingError, match=r"dataset\.thing\[1\]: _thread\.lock"):
        iter(DataLoader(Holder([good, threading.Lock()]), **SPAWN))


def test_the_main_script_is_in_sight_again_when_workers_have_been_started() -> None:
    main = sys.modules["__main__"]
    before = dict(vars(main))
    with without_main():
        assert not hasattr(main, "__file__")
        assert main.__spec__ is None
    assert vars(main) == before


def test_what_pickle_can_send_is_sent_without_cloudpickle():
    """A class of an importable module goes by name: a worker's is the same as everybody's."""
    segment = Segment()
    parcel = ship(_job(DataLoader(ArrayDataset(np.arange(3))).options), segment)
    assert not parcel.sent.in_use
    segment.close()
