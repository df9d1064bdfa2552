"""A slot is never written while any array from it lives, and nothing but what is held is kept."""

from __future__ import annotations

import os
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from kinds import few
from warm_host import host

from feedline.arena import slots
from feedline.arena.packing import pack, unpack
from feedline.arena.segment import PAGE, Segment, mappings, to_page
from feedline.arena.slots import LocalMemory, Slot, SlotPool, Writer
from feedline.datasets import SMALL_LEAF
from feedline.errors import MemoryShortage

BYTE = np.dtype(np.uint8)
BIG = 3 * SMALL_LEAF + 17


@pytest.fixture
def pool() -> Iterator[SlotPool]:
    made = SlotPool()
    yield made
    made.close()


def held(fd: int) -> int:
    return os.fstat(fd).st_blocks * 512


def fill(slot: Slot, value: int, *sizes: int) -> list[np.ndarray]:
    """A leased batch, made in the slot."""
    writer = Writer(slot, leased=True)
    leaves = [writer.empty((size,), BYTE) for size in sizes]
    for leaf in leaves:
        leaf[:] = value
    return leaves


def deliver(pool: SlotPool, value: int, *sizes: int) -> list[np.ndarray]:
    slot = pool.take()
    leaves = fill(slot, value, *sizes)
    pool.put(slot)
    return leaves


def run_script(code: str) -> str:
    done = host("feedline").run(["-W", "error", "-c", textwrap.dedent(code)], timeout=1000)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


# One slot


def test_leaves_begin_on_pages_and_do_not_overlap(pool: SlotPool) -> None:
    first, second, third = fill(pool.take(), 0, SMALL_LEAF + 1, BIG, SMALL_LEAF)
    first[:], second[:], third[:] = 1, 2, 3
    assert all(leaf.ctypes.data % PAGE == 0 for leaf in (first, second, third))
    assert (first == 1).all()
    assert (second == 2).all()
    assert (third == 3).all()


def test_a_slot_grows_generously_but_not_where_memory_is_short(pool: SlotPool, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = pool.take()
    slot.room(100 * PAGE)
    slot.room(100 * PAGE + 1)
    assert slot.capacity == 125 * PAGE
    real = Segment.allocate

    def scarce(segment: Segment, number: int, start: int, stop: int, keep: bool) -> None:
        if stop - start > PAGE:
            raise MemoryShortage("no")
        real(segment, number, start, stop)

    monkeypatch.setattr(Segment, "allocate", scarce)
    slot.room(125 * PAGE + 1)
    assert slot.capacity == 126 * PAGE
    with pytest.raises(MemoryShortage):
        slot.room(128 * PAGE)
    assert slot.capacity == 126 * PAGE


def test_a_slot_that_grows_under_a_batch_keeps_what_was_written(pool: SlotPool) -> None:
    slot = pool.take()
    writer = Writer(slot, leased=True)
    leaves = []
    for number in range(12):
        leaf = writer.empty((SMALL_LEAF << (number // 3), 1), BYTE)
        leaf[:] = number
        leaves.append(leaf)
    assert all((leaf == number).all() for number, leaf in enumerate(leaves))
    again = slot.mapped(slot.capacity)
    everything = np.frombuffer(again.view(0, again.size), np.uint8)
    assert set(np.unique(everything)) >= set(range(12))  # the old views and the new mapping are one memory
    pool.put(slot)


def test_small_leaves_and_objects_are_ordinary_arrays(pool: SlotPool) -> None:
    slot = pool.take()
    writer = Writer(slot, leased=True)
    assert writer.empty((SMALL_LEAF - 1,), BYTE).flags.owndata
    assert writer.empty((SMALL_LEAF,), np.dtype(object)).flags.owndata
    assert writer.empty((0, 10**9), BYTE).size == 0
    assert not slot.leases
    assert writer.end == 0


@pytest.mark.parametrize("dtype", [np.float32, "f4", np.dtype("<f4"), [("x", "f4"), ("y", "i8")], "M8[s]", "U7", bool])
@pytest.mark.parametrize("leased", [True, False])
def test_a_leaf_may_have_any_dtype_said_in_any_way(pool: SlotPool, dtype: Any, leased: bool) -> None:
    leaf = Writer(pool.take(), leased).empty((300, 301), dtype)
    assert leaf.dtype == np.dtype(dtype)
    assert leaf.shape == (300, 301)
    assert leaf.flags.c_contiguous
    assert leaf.flags.writeable
    assert leaf.flags.aligned
    leaf[...] = np.zeros((300, 301), dtype)
    assert (leaf == np.zeros((300, 301), dtype)).all()


def test_a_failed_growth_leaves_the_slot_as_it_was(pool: SlotPool, monkeypatch: pytest.MonkeyPatch) -> None:
    slot = pool.take()
    (leaf,) = fill(slot, 5, BIG)
    capacity = slot.capacity

    def refuse(fd: int, start: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(MemoryShortage):
        slot.room(capacity + 1)
    assert slot.capacity == capacity
    monkeypatch.undo()
    slot.room(capacity + 1)
    assert (leaf == 5).all()
    assert slot.capacity > capacity


def test_what_another_process_grew_is_seen_here(pool: SlotPool) -> None:
    slot = pool.take()
    slot.room(100)
    before = np.frombuffer(slot.lease(0, 100), np.uint8)
    before[:] = 1
    pid = os.fork()
    if pid == 0:
        there = Slot(Segment(os.dup(pool.segment.fd)), slot.id)
        there.capacity = slot.capacity
        writer = Writer(there, leased=False)
        writer.reserve(100)
        writer.empty((BIG,), BYTE)[:] = 7
        os._exit(0 if there.capacity > slot.capacity else 1)
    assert os.waitpid(pid, 0)[1] == 0
    after = np.frombuffer(slot.lease(PAGE, BIG), np.uint8)
    assert (after == 7).all()
    assert (before == 1).all()
    pool.put(slot)


# Leases

DERIVED: dict[str, Callable[[np.ndarray], Any]] = {
    "itself": lambda a: a,
    "slice": lambda a: a[1:5],
    "strided slice": lambda a: a[::-3],
    "one element": lambda a: a[7:8],
    "empty slice": lambda a: a[5:5],
    "transposed": lambda a: a[: SMALL_LEAF // 2 * 2].reshape(2, -1).T,
    "other dtype": lambda a: a[:SMALL_LEAF].view(np.float64),
    "view of a view of a view": lambda a: a[2:].view()[3:].reshape(-1, 1)[4:].view(np.int8),
    "memoryview": memoryview,
    "slice of a memoryview": lambda a: memoryview(a)[10:20],
    "cast memoryview": lambda a: memoryview(a)[:SMALL_LEAF].cast("d"),
    "frombuffer": lambda a: np.frombuffer(a, np.uint8),
    "frombuffer of a memoryview": lambda a: np.frombuffer(memoryview(a)[8:16], np.int64),
    "asarray": lambda a: np.asarray(memoryview(a)),
    "broadcast": lambda a: np.broadcast_to(a[:1], (5, 5)),
    "iterator": lambda a: a.flat,
    "sliding window": lambda a: np.lib.stride_tricks.sliding_window_view(a, 3),
    "subclass": lambda a: a.view(np.recarray),
    "masked": lambda a: np.ma.masked_array(a, copy=False),
    "record": lambda a: a[:SMALL_LEAF].view([("x", "u1"), ("y", "u1")])[5],
    "dlpack": lambda a: np.from_dlpack(a),
    "base": lambda a: a.base,
}


@pytest.mark.parametrize("derive", DERIVED.values(), ids=DERIVED.keys())
def test_a_slot_is_taken_again_only_when_nothing_from_it_lives(pool: SlotPool, derive: Callable) -> None:
    (array,) = deliver(pool, 42, BIG)
    kept = derive(array)
    del array
    first = pool.take()
    fill(first, 13, BIG, BIG)
    pool.put(first)
    if isinstance(kept, (memoryview, np.ndarray)):
        assert kept.tobytes().strip(b"*") == b""
    del kept
    second = pool.take()
    third = pool.take()
    assert {second.id, third.id} == {1, 2}  # both used slots are free again: no third was needed
    assert first.id == 2


def test_each_of_several_leaves_holds_the_slot(pool: SlotPool) -> None:
    leaves = deliver(pool, 1, BIG, BIG, BIG)
    while leaves:
        del leaves[len(leaves) // 2]
        number = pool.take()
        assert (number.id == 1) == (not leaves)
        pool.put(number)


def test_a_slot_freed_last_is_taken_first(pool: SlotPool) -> None:
    one, two, three = pool.take(), pool.take(), pool.take()
    for slot in (one, three, two):
        pool.put(slot)
    assert [pool.take() for _ in range(3)] == [two, three, one]


def test_keeping_a_batch_that_is_part_of_a_cycle_is_noticed_too(pool: SlotPool) -> None:
    import gc

    (array,) = deliver(pool, 1, BIG)
    circle: list[Any] = [array]
    circle.append(circle)
    del array
    gc.collect()
    assert pool.take().id == 2
    del circle
    gc.collect()
    assert pool.take().id == 1


# Many batches kept


def test_keeping_everything_gives_new_slots_and_costs_what_is_kept(pool: SlotPool) -> None:
    kept = [deliver(pool, number % 251, BIG, SMALL_LEAF) for number in range(300)]
    assert all((leaf == number % 251).all() for number, leaves in enumerate(kept) for leaf in leaves)
    exact = 300 * (to_page(BIG) + to_page(SMALL_LEAF))
    assert exact <= held(pool.segment.fd) <= 1.1 * exact
    kept.clear()
    assert held(pool.segment.fd) <= 0.1 * exact


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_kept_leaf_keeps_itself_and_not_its_batch(pool: SlotPool, which: int) -> None:
    sizes = [2 * BIG, 2 * BIG, 2 * BIG]
    sizes[which] = SMALL_LEAF
    kept = [deliver(pool, number % 251, *sizes)[which] for number in range(200)]
    whole = 200 * sum(map(to_page, sizes))
    assert held(pool.segment.fd) <= 200 * SMALL_LEAF + (slots.MAX_LEASED + 2) / 200 * whole * 1.25
    assert all((leaf == number % 251).all() for number, leaf in enumerate(kept))


def test_a_leaf_dropped_after_its_slot_was_retired_is_given_back_alone(pool: SlotPool) -> None:
    kept = [deliver(pool, number, BIG, BIG, BIG) for number in range(40)]
    before = held(pool.segment.fd)
    for leaves in kept[:20]:
        del leaves[1]
    assert before - held(pool.segment.fd) == 20 * to_page(BIG)
    assert all((leaf == number).all() for number, leaves in enumerate(kept) for leaf in leaves)


def test_numbers_of_retired_slots_are_used_again(pool: SlotPool) -> None:
    kept: dict[int, list[np.ndarray]] = {}
    for number in range(1500):
        kept[number] = deliver(pool, number % 251, SMALL_LEAF + number % 5)
        for old in (number - 20, number - 33):
            if old % 7:
                kept.pop(old, None)
        if number % 100 == 0:
            assert all((leaf == n % 251).all() for n, leaves in kept.items() for leaf in leaves)
    assert all((leaf == n % 251).all() for n, leaves in kept.items() for leaf in leaves)
    # as many as are alive, twice (the list is swept when it has doubled), and not one for every batch
    assert max(slot.id for slot in (*pool._retired, *pool._leased, *pool._free)) <= 2 * len(kept) + 100


def test_a_loop_that_keeps_nothing_needs_two_slots(pool: SlotPool) -> None:
    batch = None
    seen = set()
    for number in range(100):
        batch = deliver(pool, number, BIG)
        seen |= {slot.id for slot in (*pool._leased, *pool._free)}
    assert seen == {1, 2}
    assert held(pool.segment.fd) <= 2 * to_page(BIG) * 1.25
    assert batch is not None


# Closing


def test_pieces_of_batches_have_slots_of_their_own_that_can_be_given_back(pool: SlotPool) -> None:
    small = pool.take(small=True)
    leaves = fill(small, 1, BIG)
    pool.put(small)
    assert pool.occupancy() == (1, 0, 0)  # it waits for others, and is not the user's
    whole = pool.take()
    assert whole is not small
    del leaves
    pool.put(whole)
    assert pool.take() is whole
    assert pool.take(small=True) is small
    pool.put(small)
    before = held(pool.segment.fd)
    pool.give_back_small()
    assert held(pool.segment.fd) <= before - BIG
    again = pool.take(small=True)
    assert again is not small
    assert fill(again, 2, BIG)[0].tolist() == [2] * BIG
    pool.put(again)
    pool.put(whole)


def test_slots_of_pieces_that_wait_are_not_retired(pool: SlotPool) -> None:
    kept, made = [], []
    for _ in range(3 * slots.MAX_LEASED):
        slot = pool.take(small=True)
        kept.append(fill(slot, 1, BIG))
        made.append(slot)
        pool.put(slot)
    assert not any(slot.retired for slot in made)


def test_after_close_only_what_is_held_stays(pool: SlotPool) -> None:
    kept = [deliver(pool, number, BIG, SMALL_LEAF)[number % 2] for number in range(30)]
    deliver(pool, 99, 10 * BIG)
    out = pool.take()
    (unfinished,) = fill(out, 77, BIG)
    grown_elsewhere = Slot(pool.segment, pool.take().id)
    grown_elsewhere.room(20 * BIG)  # by a worker that this process has not heard from
    watch = os.dup(pool.segment.fd)
    pool.close()
    pool.close()
    assert held(watch) == sum(to_page(leaf.nbytes) for leaf in kept) + to_page(BIG)
    assert all((leaf == number).all() for number, leaf in enumerate(kept))
    assert (unfinished == 77).all()
    pool.put(out)
    assert (unfinished == 77).all()
    del unfinished
    assert held(watch) == sum(to_page(leaf.nbytes) for leaf in kept)
    while kept:
        kept.pop()
        assert held(watch) == sum(to_page(leaf.nbytes) for leaf in kept)
    os.close(watch)


def test_closing_takes_one_descriptor_and_every_idle_mapping_along(pool: SlotPool) -> None:
    assert pool.segment.fd >= 0  # made when first needed
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        deliver(pool, number, BIG)
    (kept,) = deliver(pool, 5, BIG)
    pool.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert len(mappings) == 1
    del kept
    assert not mappings


# Very many mappings


def test_all_loaders_mappings_count(pool: SlotPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MAX_MAPPED", 12)
    kept = [deliver(pool, 1, BIG) for _ in range(12)]
    other = SlotPool()
    assert other.crowded
    other.close()
    pool.close()
    assert SlotPool.crowded.fget(other)  # type: ignore[attr-defined]
    kept.clear()
    assert not pool.crowded


def test_leaves_of_growing_slots_do_not_exhaust_the_mappings(pool: SlotPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "MAX_MAPPED", 40)
    memory = LocalMemory(pool)
    kept = []
    for number in range(60):
        kept.append([memory((SMALL_LEAF * (1 + part),), BYTE) for part in range(8)])
        memory.finish()
        for leaf in kept[-1]:
            leaf[:] = number
    assert len(mappings) <= 40 + 8
    assert all((leaf == number).all() for number, leaves in enumerate(kept) for leaf in leaves)
    kept.clear()
    assert not memory((BIG,), BYTE).flags.owndata  # and slots are used again once there are few
    memory.finish()


def test_local_memory_takes_a_slot_only_for_a_large_leaf(pool: SlotPool) -> None:
    memory = LocalMemory(pool)
    assert memory((10,), np.dtype("f8")).flags.owndata
    memory.finish()
    assert not pool._leased
    assert not pool._free
    large, small = memory((BIG,), BYTE), memory((10,), BYTE)
    memory.finish()
    memory.finish()
    assert not large.flags.owndata
    assert small.flags.owndata
    assert len(pool._leased) == 1
    assert LocalMemory(None)((BIG,), BYTE).flags.owndata


# Threads and forks


def test_arrays_dropped_in_other_threads_while_slots_are_taken(pool: SlotPool) -> None:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    wrong: list[int] = []

    def work(seed: int) -> None:
        draw = np.random.default_rng(seed)
        kept: list[tuple[int, list[np.ndarray]]] = []
        for _ in range(250):
            value = int(draw.integers(256))
            kept.append((value, deliver(pool, value, SMALL_LEAF, SMALL_LEAF)))
            if len(kept) > 12:
                value, leaves = kept.pop(int(draw.integers(len(kept))))
                wrong.extend(value for leaf in leaves if not (leaf == value).all())
        wrong.extend(value for value, leaves in kept for leaf in leaves if not (leaf == value).all())

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


FORK = """
    import gc, os, sys
    import numpy as np
    from feedline.arena.slots import SlotPool, Writer, LocalMemory
    def deliver(value):
        slot = pool.take()
        leaf = Writer(slot, leased=True).empty((100_000,), np.dtype(np.uint8))
        leaf[:] = value
        pool.put(slot)
        return leaf
    def fork(work):
        pid = os.fork()
        if pid == 0:
            work()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    pool = SlotPool()
    kept = [deliver(i) for i in range(30)]  # most in retired slots, the last in leased ones
    def check(kept, first=0):
        assert all((leaf == i + first).all() for i, leaf in enumerate(kept))
"""


def test_a_forked_child_that_drops_its_copies_takes_nothing_from_the_parent() -> None:
    run_script(
        FORK
        + """
    def child():
        check(kept)
        kept.clear()
        gc.collect()
    fork(child)
    check(kept)
    more = [deliver(i + 30) for i in range(30)]
    check(kept)
    check(more, 30)
    """
    )


def test_a_forked_child_that_closes_or_exits_takes_nothing_from_the_parent() -> None:
    run_script(
        FORK
        + """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(writing)
        os.read(reading, 1)  # until the parent has used its slots again
        kept.clear()
        pool.close()
        sys.exit(0)
    del kept[20:]
    more = [deliver(i + 30) for i in range(30)]
    os.close(writing)
    assert os.waitpid(pid, 0)[1] == 0
    check(kept)
    check(more, 30)
    """
    )


def test_forked_children_that_go_on_making_batches_do_not_share_memory() -> None:
    run_script(
        FORK
        + """
    memory = LocalMemory(pool)
    del kept[25:]  # leaves free slots
    def child():
        mine = []
        for i in range(20):
            mine.append(memory((100_000,), np.dtype(np.uint8)))
            mine[-1][:] = 200
            memory.finish()
        fork(grandchild)
        assert all((leaf == 200).all() for leaf in mine)
    def grandchild():
        for i in range(20):
            memory((100_000,), np.dtype(np.uint8))[:] = 201
            memory.finish()
    fork(child)
    check(kept)
    """
    )


def test_a_forked_child_does_not_wait_for_a_lock_nobody_will_release() -> None:
    run_script(
        FORK
        + """
    def child():
        pool.close()
    with pool._lock:  # as a worker thread may at that moment
        fork(child)
    check(kept)
    """
    )


# Everything at once


class Kept:
    """Something the user holds, and what was written there."""

    def __init__(self, view: Any, leaf: np.ndarray) -> None:
        self.view = view
        self.expected = memoryview(view).tobytes()
        self.leaf_bytes = to_page(leaf.nbytes)

    def intact(self) -> bool:
        return memoryview(self.view).tobytes() == self.expected


VIEWS = [
    lambda leaf: leaf,
    lambda leaf: leaf[100:200],
    lambda leaf: leaf[: SMALL_LEAF // 2 * 2].reshape(2, -1).T[5:9],
    lambda leaf: memoryview(leaf)[3:99],
    lambda leaf: np.frombuffer(memoryview(leaf)[8:800], np.uint16)[::2],
]


class Arena(RuleBasedStateMachine):
    """take / write / keep / drop / put / close in any order, with few slots so that they are soon retired."""

    def __init__(self) -> None:
        super().__init__()
        self.most = slots.MAX_LEASED
        slots.MAX_LEASED = 2
        self.open()
        self.out: list[tuple[Slot, list[np.ndarray]]] = []
        self.kept: list[Kept] = []
        self.written = 0

    def open(self) -> None:
        self.pool = SlotPool()
        self.watch = os.dup(self.pool.segment.fd)
        self.closed = False

    def content(self, size: int) -> np.ndarray:
        self.written += 1
        return np.random.default_rng(self.written).integers(0, 256, size, np.uint8)

    @precondition(lambda self: not self.closed and len(self.out) < 4)
    @rule()
    def take(self) -> None:
        slot = self.pool.take()
        assert all(slot.id != other.id for other, _ in self.out)
        assert not slot.leases
        self.out.append((slot, []))

    @precondition(lambda self: not self.closed and self.out)
    @rule(place=st.integers(0, 3), sizes=st.lists(st.integers(SMALL_LEAF, 3 * SMALL_LEAF), max_size=3))
    def write_here(self, place: int, sizes: list[int]) -> None:
        slot, leaves = self.out[place % len(self.out)]
        if not leaves:
            writer = Writer(slot, leased=True)
            for size in sizes:
                leaf = writer.empty((size,), BYTE)
                leaf[:] = self.content(size)
                leaves.append(leaf)

    @precondition(lambda self: not self.closed and self.out)
    @rule(place=st.integers(0, 3), sizes=st.lists(st.integers(SMALL_LEAF, 3 * SMALL_LEAF), min_size=1, max_size=3))
    def write_elsewhere(self, place: int, sizes: list[int]) -> None:
        slot, leaves = self.out[place % len(self.out)]
        if not leaves:
            there = Slot(Segment(self.pool.segment.fd), slot.id)
            there.capacity = slot.capacity
            packed = pack([self.content(size) for size in sizes], there, Writer(there, leased=False))
            leaves.extend(unpack(packed, slot, self.pool))

    @precondition(lambda self: self.out)
    @rule(place=st.integers(0, 3), keep=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(VIEWS)), max_size=3))
    def put(self, place: int, keep: list[tuple[int, Callable]]) -> None:
        slot, leaves = self.out.pop(place % len(self.out))
        for which, view in keep:
            if which < len(leaves):
                self.kept.append(Kept(view(leaves[which]), leaves[which]))
        self.pool.put(slot)

    @precondition(lambda self: self.kept)
    @rule(place=st.integers(0, 50))
    def drop(self, place: int) -> None:
        del self.kept[place % len(self.kept)]

    @precondition(lambda self: not self.closed and self.written > 10)
    @rule()
    def close(self) -> None:
        self.pool.close()
        self.closed = True

    @precondition(lambda self: self.closed and not self.out and not self.kept)
    @rule()
    def open_again(self) -> None:
        assert held(self.watch) == 0
        os.close(self.watch)
        self.open()

    @invariant()
    def what_is_kept_is_as_it_was_written(self) -> None:
        assert all(kept.intact() for kept in self.kept)

    @invariant()
    def after_closing_only_what_is_kept_costs(self) -> None:
        if self.closed and not self.out:
            assert held(self.watch) <= sum(kept.leaf_bytes for kept in self.kept)

    def teardown(self) -> None:
        slots.MAX_LEASED = self.most
        self.pool.close()
        self.out.clear()
        assert all(kept.intact() for kept in self.kept)
        self.kept.clear()
        assert held(self.watch) == 0
        os.close(self.watch)


class TestArena(Arena.TestCase):
    settings = settings(max_examples=few(100), stateful_step_count=60)
