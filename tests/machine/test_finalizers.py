"""What the garbage collector runs waits for no lock that its thread may hold, and does not swallow Ctrl-C."""

from __future__ import annotations

import ast
import contextlib
import signal
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import THREADS, every_kind, every_process, thorough
from leaving import children
from warm_host import host

import feedline
from feedline import DataLoader
from feedline.arena import segment, slots
from feedline.arena.joint import Joint
from feedline.arena.slots import SlotPool
from feedline.diagnose.deadline import TooLong, within
from feedline.engine.ledger import Ledger
from feedline.machine.finalizers import undisturbed
from feedline.sources.samples import memory_by_name, pack_memory
from feedline.supervise import shutdown, watchdog
from feedline.supervise.interrupt import Interrupt, TimeIsUp
from feedline.supervise.last_words import ASK
from feedline.workers.crew import Crew

LONG = 600
"""Seconds: a limit that only keeps a test from hanging."""

SCRIPT = """
import gc, sys, threading, queue, _thread, asyncio, concurrent.futures.thread
import numpy as np
from feedline import DataLoader
from feedline.arena.slots import SlotPool
from feedline.randomness.redirection import switch
gc.disable()

class Data:
    def __len__(self): return 100
    def __getitem__(self, index): return np.full(100_000, index)

class Async(Data):
    async def __getitem__(self, index): return np.full(100_000, index)

def as_garbage(iterator):
    cycle = [iterator]
    cycle.append(cycle)

def held(*locks):
    # By this thread, as it is when the collector interrupts it there.
    for lock in locks: lock.acquire()
    gc.collect()
    for lock in locks: lock.release()
    print("collected")

THREADINGS = [
    lock for module, name in (
        (threading, "_shutdown_locks_lock"), (threading, "_active_limbo_lock"),
        (concurrent.futures.thread, "_global_shutdown_lock"),
    ) if (lock := getattr(module, name, None)) is not None
]
"""


def said_by(body: str, *modules: str) -> str:
    """In a process of its own: one that waits for itself would wait in the collector, and never collect again."""
    done = host("feedline", *modules).run(["-c", SCRIPT + textwrap.dedent(body)], timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@every_kind
@pytest.mark.parametrize(
    ("dataset", "persistent"),
    [
        ("Data()", True),
        ("Async()", False),
        pytest.param("Data()", False, marks=thorough),
        pytest.param("Async()", True, marks=thorough),
    ],
)
def test_a_loop_is_collected_where_pythons_locks_are_held(kind: dict[str, Any], persistent: bool, dataset: str) -> None:
    further = {"persistent_workers": True} if persistent and kind else {}
    loader = f"DataLoader({dataset}, batch_size=2, fetch_threads=2, **{kind | further})"
    if dataset == "Async()":
        loader = loader.replace(" fetch_threads=2,", "")
    assert said_by(f"iterator = iter({loader}); next(iterator); as_garbage(iterator); del iterator; held(*THREADINGS)")


def test_a_loop_is_collected_where_an_event_loop_runs() -> None:
    assert said_by(
        """
        async def main():
            iterator = iter(DataLoader(Async(), batch_size=2))
            next(iterator)
            as_garbage(iterator)
            del iterator
            held(*THREADINGS)
        asyncio.run(main())
        """
    )


@pytest.mark.parametrize("kind", [{}, THREADS], ids=["inline", "threads"])
def test_a_loop_is_collected_where_locks_of_its_loader_are_held(kind: dict[str, Any], tmp_path: Path) -> None:
    assert said_by(
        f"""
        loader = DataLoader(Data(), batch_size=2, fetch_threads=2, **{kind})
        session = loader._session
        loader.report({str(tmp_path / "page.html")!r})
        iterator = iter(loader)
        next(iterator)
        as_garbage(iterator)
        del iterator
        held(session._lock, session.bad_samples._lock, session._collated._lock, switch._lock)
        """
    )


def test_a_loop_is_collected_in_its_worker_that_takes_a_slot() -> None:
    said = said_by(
        """
        dropped, collected = queue.SimpleQueue(), queue.SimpleQueue()
        plainly = SlotPool._collect

        def collecting(pool):
            if dropped.get():
                gc.collect()  # in the worker's thread, which holds the pool's lock
                collected.put(True)
            plainly(pool)

        SlotPool._collect = collecting
        dropped.put(False)
        iterator = iter(DataLoader(Data(), batch_size=2, num_workers=1, workers="thread"))
        next(iterator)
        pool = iterator._crew.workers.traits.pool
        as_garbage(iterator)
        del iterator
        dropped.put(True)
        print(collected.get(timeout=50), pool._closed)
        """
    )
    assert said == "True True\n"


def test_a_generators_stream_is_collected_in_its_thread() -> None:
    said = said_by(
        """
        from feedline.sources import GeneratorStream
        dropped, collected = queue.SimpleQueue(), queue.SimpleQueue()

        def make():
            yield 1
            dropped.get()
            yield 2
            gc.collect()
            collected.put(True)

        def collecting(queue, item):
            gc.collect()  # where the lock of such a queue is held
            queue.queue.append(item)

        stream = iter(GeneratorStream(make, buffer=8))
        next(stream)
        queue.Queue._put = collecting
        as_garbage(stream)
        del stream
        dropped.put(True)
        print(collected.get(timeout=50))
        """
    )
    assert said == "True\n"


def test_a_segment_that_is_closed_where_it_is_being_made_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    mine, plainly = segment.Segment(), segment._create

    def collecting() -> int:
        mine.close()
        return plainly()

    monkeypatch.setattr(segment, "_create", collecting)
    assert mine.fd == -1


class InterruptedOnce:
    """Ctrl-C, as it comes inside of a function: before it or after it."""

    def __init__(self, plainly: Callable[..., Any], after: bool = False) -> None:
        self.plainly, self.after, self.left = plainly, after, 1

    def __call__(self, *args: Any) -> Any:
        if self.after:
            self.plainly(*args)
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return None if self.after else self.plainly(*args)


def interrupted(what: Callable[[], Any]) -> None:
    """Do it, and have Ctrl-C afterwards; it ends a wait, too."""
    swallowed: list[Any] = []
    before, sys.unraisablehook = sys.unraisablehook, swallowed.append
    finished = False
    try:
        try:
            what()
            finished = True
            threading.Event().wait(LONG)
            pytest.fail("Ctrl-C did not come")
        except KeyboardInterrupt:
            pass
    finally:
        sys.unraisablehook = before
    assert not swallowed
    assert finished


def test_ctrl_c_in_a_finalizer_comes_after_it() -> None:
    done: list[int] = []

    class Thing:
        @undisturbed
        def __del__(self) -> None:
            done.append(1)
            if len(done) == 1:
                raise KeyboardInterrupt

    interrupted(Thing)
    assert done == [1, 1]
    gone: list[Any] = []
    interrupted(weakref.finalize(Thing, undisturbed(InterruptedOnce(gone.append)), "thing"))
    assert gone == ["thing"]


def test_ctrl_c_in_a_finalizer_inside_of_another_comes_after_both() -> None:
    done: list[str] = []

    @undisturbed
    def inner() -> None:
        done.append("inner")
        if done == ["outer", "inner"]:
            raise KeyboardInterrupt

    @undisturbed
    def outer() -> None:
        done.append("outer")
        inner()
        for _ in range(100):  # Ctrl-C is about to come, and waits until this has ended
            threading.Event().wait(0.001)
        done.append("end")

    interrupted(outer)
    assert done == ["outer", "inner", "inner", "end"]


def test_a_mapping_is_unmapped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mappings(set[int]):
        pass

    mine = segment.Segment()
    mine.allocate(1, 0, segment.PAGE)
    mapping = mine.map(1, segment.PAGE)
    there = Mappings()
    Mappings.discard = InterruptedOnce(lambda address: set.discard(there, address))  # type: ignore[assignment]
    there.add(mapping.address)
    monkeypatch.setattr(segment, "mappings", there)
    kept = [mapping]
    del mapping
    interrupted(kept.clear)
    assert not there
    mine.close()  # and tests/conftest.py looks whether it is still mapped


def test_a_lease_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SlotPool()
    slot = pool.take()
    slot.room(segment.PAGE)
    kept = [slot.lease(0, segment.PAGE)]
    live = slots._live

    class Live(set[Any]):
        discard = InterruptedOnce(live.discard)  # type: ignore[assignment]

    monkeypatch.setattr(slots, "_live", Live())
    interrupted(kept.clear)
    assert not slot.leases
    pool.put(slot)
    assert pool.occupancy() == (0, 0, 1)
    pool.close()


def test_ctrl_c_while_the_watchdog_makes_way_for_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    rested: list[int] = []
    monkeypatch.setattr(watchdog, "_thread", threading.main_thread())
    monkeypatch.setattr(watchdog, "rest", InterruptedOnce(lambda: rested.append(1)))
    monkeypatch.setattr(watchdog, "resting", False)
    interrupted(watchdog._before_fork)
    assert rested == [1]


def test_a_batch_whose_time_is_up_is_not_interrupted_in_a_finalizer() -> None:
    done: list[int] = []

    @undisturbed
    def work() -> None:
        signal.raise_signal(ASK)
        done.append(1)

    interrupt = Interrupt()
    interrupt.open()
    try:
        work()
        assert done == [1]
        with pytest.raises(TimeIsUp):
            signal.raise_signal(ASK)  # it is sent again
    finally:
        interrupt.close()


@every_kind
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_workers_end_with_a_loop_that_is_dropped(
    kind: dict[str, Any], after: bool, persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    further = {"persistent_workers": True} if persistent and kind else {}
    loader = DataLoader(np.arange(1000), batch_size=4, **kind, **further)
    iterator = iter(loader)
    next(iterator)
    kept = [loader, iterator] if further else [iterator]
    del iterator, loader
    close = InterruptedOnce(SlotPool.close, after)
    monkeypatch.setattr(SlotPool, "close", lambda pool: close(pool))
    interrupted(kept.clear)
    assert not children()


@every_kind
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("persistent", [False, True])
def test_ctrl_c_while_a_loop_is_closed_is_raised_there_and_workers_end(
    kind: dict[str, Any], after: bool, persistent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    further = {"persistent_workers": True} if persistent and kind else {}
    loader = DataLoader(np.arange(1000), batch_size=4, **kind, **further)
    iterator = iter(loader)
    next(iterator)
    close = InterruptedOnce(SlotPool.close, after)
    monkeypatch.setattr(SlotPool, "close", lambda pool: close(pool))
    with pytest.raises(KeyboardInterrupt):
        loader.close()
    assert not children()


def test_what_workers_have_spent_is_known_after_their_end() -> None:
    with DataLoader(np.arange(1000), batch_size=4, num_workers=1) as loader:
        iterator: Any = iter(loader)
        list(iterator)
        assert sum(iterator._crew.spent()) > 0


FINALIZERS = ("_end", "undisturbed(kept.stop)", "undisturbed(self._pool.close)", "left", "_forget")
"""What weak references call, by the names in the source; each is looked at below."""


def test_every_finalizer_is_undisturbed() -> None:
    """`__del__` is marked where it is defined; functions that weak references call, as well."""
    not_marked = []
    for path in Path(feedline.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "__del__":
                marks = [ast.unparse(mark) for mark in node.decorator_list]
                not_marked += [] if "undisturbed" in marks else [f"{path.name}:{node.lineno}"]
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "weakref.finalize":
                known = ast.unparse(node.args[1]) in FINALIZERS
                not_marked += [] if known else [f"{path.name}:{node.lineno}"]
    assert not not_marked
    marked = (Joint.__del__, Ledger.__del__, slots._ended, watchdog._forget, feedline.engine.loop._end)
    marked += (memory_by_name.left, pack_memory._forget)
    assert all(hasattr(each, "__wrapped__") for each in marked)


def ringing_in_the_middle(done: list[int], let_in: bool) -> None:
    with within(3600), shutdown.uninterrupted() as let_through:
        with let_through() if let_in else contextlib.nullcontext():
            signal.raise_signal(signal.SIGALRM)
        done.append(1)


@pytest.mark.parametrize("let_in", [False, True])
def test_an_alarm_comes_after_what_must_not_be_interrupted(let_in: bool) -> None:
    done: list[int] = []
    with pytest.raises(TooLong):
        ringing_in_the_middle(done, let_in)
    assert done == ([] if let_in else [1])
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def interrupted_in_the_middle() -> None:
    with shutdown.uninterrupted():
        signal.raise_signal(signal.SIGINT)


def test_ctrl_c_leaves_the_alarms_handler_as_it_was() -> None:
    with within(3600):
        at_alarm = signal.getsignal(signal.SIGALRM)
        with pytest.raises(KeyboardInterrupt):
            interrupted_in_the_middle()
        assert signal.getsignal(signal.SIGALRM) is at_alarm
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@every_process
@pytest.mark.parametrize("where", ["_wait_for", "end"])
def test_an_alarm_while_workers_are_ended_leaves_none_behind(
    kind: dict[str, Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place: Any = shutdown if where == "_wait_for" else Crew
    plainly = getattr(place, where)

    def ring(*args: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)  # in the middle, and a step before
        return plainly(*args)

    monkeypatch.setattr(place, where, ring)
    loader = DataLoader(np.arange(1000), batch_size=4, **kind)
    iterator = iter(loader)
    next(iterator)
    with within(3600):
        loader.close()
        with pytest.raises(TooLong):
            signal.raise_signal(signal.SIGALRM)  # it rings again
    assert not children()
