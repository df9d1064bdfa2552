"""Several workers fill one slot: every row where it belongs, nothing copied, and nobody else's before all are done."""

from __future__ import annotations

import contextlib
import multiprocessing
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from bitwise import same
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kinds import FORK, SPAWN, THREADS, few

from feedline import DataLoader
from feedline.arena.joint import Joint, LayoutsDiffer, RowMemory, Rows
from feedline.arena.packing import pack, unpack
from feedline.arena.slots import Slot, SlotPool, Writer
from feedline.collate.pieces import join
from feedline.datasets import SMALL_LEAF
from feedline.engine.division import bounds
from feedline.errors import MemoryShortage
from feedline.workers.processes import ProcessWorkers

ONE_LARGE = SMALL_LEAF // 4
"""Float32 numbers in a sample that is large by itself."""
WAIT = 600
"""Seconds until a test that waits for another worker gives up."""


@pytest.fixture
def pool() -> Iterator[SlotPool]:
    made = SlotPool()
    yield made
    made.close()


def parts_of(size: int, pieces: int) -> list[Rows]:
    return [Rows(start, stop, size, size // pieces) for start, stop in bounds(size, pieces)]


def from_a_process(joint: Joint, rows: Rows, pool: SlotPool, leaves: list[Any]) -> list[Any]:
    """What arrives of a part that is made in another process, with slots of its own over the same memory."""
    there, own = Slot(pool.segment, joint.slot.id), pool.take(small=True)
    there.capacity = joint.slot.capacity
    writer = Writer(own, leased=False)
    memory = RowMemory(rows, there.room, writer.empty)
    made = []
    for leaf in leaves:
        out = memory.empty(leaf[rows.start : rows.stop].shape, leaf.dtype)
        out[...] = leaf[rows.start : rows.stop]
        made.append(out)
    packed = pack(made, own, writer, elsewhere=memory)
    joint.slot.capacity = max(joint.slot.capacity, there.capacity)
    arrived: list[Any] = unpack(packed, own, pool, joint)
    pool.put(own)
    return arrived


@settings(max_examples=few(200), deadline=None)
@given(
    st.integers(1, 24),
    st.integers(1, 24),
    st.lists(
        st.tuples(st.sampled_from(["f4", "u1", ">i8", "i4,f4"]), st.sampled_from([0, 1, 3, 9_999, 40_000, 70_001])),
        max_size=4,
    ),
    st.randoms(use_true_random=False),
)
@example(3, 2, [("u1", 40_000)], random.Random(0))  # one part of it is large, the other is not
def test_leaves_are_whole_however_they_are_divided(size: int, pieces: int, kinds: list[Any], order: Any) -> None:
    pool = SlotPool()
    leaves = [
        np.frombuffer(np.random.default_rng(i).bytes(size * width * np.dtype(dtype).itemsize), dtype).reshape(size, -1)
        for i, (dtype, width) in enumerate(kinds)
        if width
    ]
    joint = Joint(pool)
    parts = parts_of(size, min(size, pieces))
    made: dict[int, Any] = {}
    for rows in order.sample(parts, len(parts)):
        made[rows.start] = from_a_process(joint, rows, pool, leaves)
    batch = join([made[start] for start in sorted(made)], np.empty, joint.whole)
    assert same(batch, [leaf.copy() for leaf in leaves])
    least = size // len(parts)
    assert len(joint.slot.leases) == sum(leaf.nbytes // size * least >= SMALL_LEAF for leaf in leaves)
    del made, batch
    pool.close()


def test_a_part_that_lies_elsewhere_is_seen(pool: SlotPool) -> None:
    joint = Joint(pool)
    parts = parts_of(4, 2)
    wide, narrow = np.zeros((4, 2 * ONE_LARGE), "f4"), np.ones((4, ONE_LARGE), "f4")
    one = dict(zip("ab", from_a_process(joint, parts[0], pool, [wide, narrow]), strict=True))
    other = dict(zip("ba", from_a_process(joint, parts[1], pool, [narrow, wide]), strict=True))
    with pytest.raises(LayoutsDiffer):
        join([one, other], np.empty, joint.whole)


def test_a_part_made_in_no_slot_does_not_fit_one_that_was(pool: SlotPool) -> None:
    joint = Joint(pool)
    parts, leaf = parts_of(4, 2), np.zeros((4, ONE_LARGE), "f4")
    (one,) = from_a_process(joint, parts[0], pool, [leaf])
    for pieces in ([one, leaf[2:]], [leaf[:2], one]):
        with pytest.raises(LayoutsDiffer):
            join(pieces, np.empty, joint.whole)


def test_nobody_else_gets_the_slot_before_the_last_who_fills_it_is_done(pool: SlotPool) -> None:
    joint = Joint(pool)
    number, writer = joint.slot.id, joint
    del joint
    assert number not in {pool.take().id for _ in range(3)}
    del writer
    assert number in {pool.take().id for _ in range(3)}


def test_nor_while_the_user_has_the_batch(pool: SlotPool) -> None:
    joint = Joint(pool)
    (rows,) = parts_of(2, 1)
    batch = join(from_a_process(joint, rows, pool, [np.ones((2, ONE_LARGE), "f4")]), np.empty, joint.whole)
    number = joint.slot.id
    del joint
    others = [pool.take() for _ in range(3)]
    assert number not in {slot.id for slot in others}
    for slot in others:
        slot.room(1 << 20).view(0, 1 << 20)[:] = bytes(1 << 20)
    assert (batch == 1).all()
    del batch
    assert pool.take().id == number


def test_too_little_memory_for_one_takes_nothing_from_another(pool: SlotPool, monkeypatch: pytest.MonkeyPatch) -> None:
    joint = Joint(pool)
    size = 40 << 20
    joint.room(size).view(0, size)[:1] = b"x"
    seen = []

    def scarce(slot: int, start: int, stop: int) -> None:
        seen.append(start)
        if start:
            raise MemoryShortage("no")

    monkeypatch.setattr("feedline.arena.segment._check_room", scarce)
    with pytest.raises(MemoryShortage):
        Slot(pool.segment, joint.slot.id).room(size, shared=True)
    assert len(seen) == 2
    assert bytes(joint.room(size).view(0, 1)) == b"x"


class Images:
    """Samples that are large by themselves; every third with its keys in the other order."""

    def __init__(self, keys: str = "ab") -> None:
        self.keys = keys

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> Any:
        sample = {"a": np.full(ONE_LARGE, index, np.float32), "b": np.full(3 * ONE_LARGE, -index, np.float32)}
        return {key: sample[key] for key in (self.keys if index % 3 else self.keys[::-1])}


@pytest.mark.parametrize("kind", [FORK, SPAWN, THREADS], ids=["fork", "spawn", "threads"])
def test_a_split_batch_is_not_copied(kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    real = Joint.whole

    def whole(joint: Joint, parts: Any) -> Any:
        found.append(real(joint, parts))
        return found[-1]

    monkeypatch.setattr(Joint, "whole", whole)
    with DataLoader(Images("aa"), batch_size=6, **kind) as loader:
        batches = list(loader)
    assert found
    assert all(leaf is not None for leaf in found)
    assert same(batches, list(DataLoader(Images("aa"), batch_size=6)))


@pytest.mark.parametrize("kind", [FORK, THREADS], ids=["fork", "threads"])
def test_batches_are_right_where_workers_lay_them_out_differently(kind: dict[str, Any]) -> None:
    for batch_size in (2, 4, 6):
        with DataLoader(Images(), batch_size=batch_size, **kind) as loader:
            assert same(list(loader), list(DataLoader(Images(), batch_size=batch_size)))


def taken_for_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the slots that are taken, but for those of pieces."""
    numbers = []
    real = SlotPool.take

    def take(pool: SlotPool, small: bool = False) -> Slot:
        slot = real(pool, small)
        if not small:
            numbers.append(slot.id)
        return slot

    monkeypatch.setattr(SlotPool, "take", take)
    return numbers


@pytest.mark.parametrize("at_once", [False, True])
def test_a_batch_that_is_made_once_more_gets_the_memory_it_had(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    real, came = ProcessWorkers.receive, []

    def receive(workers: ProcessWorkers, timeout: float | None) -> Any:
        """All parts that are out, one by one or at once."""
        while len(came) < len(workers._ledger.out):
            came.extend(real(workers, None))
        found = came[:] if at_once else came[:1]
        del came[: len(found)]
        return found

    monkeypatch.setattr(ProcessWorkers, "receive", receive)
    alone = list(DataLoader(Images(), batch_size=8, sampler=range(8)))
    numbers = taken_for_batches(monkeypatch)
    with DataLoader(Images(), batch_size=8, sampler=range(8), **FORK) as loader:
        assert same(list(loader), alone)
    assert len(numbers) == 2
    assert len(set(numbers)) == 1


def test_memory_for_a_batch_is_taken_when_somebody_comes_to_it(pool: SlotPool) -> None:
    joints = [Joint(pool) for _ in range(3)]
    assert pool.occupancy() == (0, 0, 0)
    joints[1].room(1)
    assert pool.occupancy() == (1, 0, 0)
    del joints
    assert pool.occupancy() == (0, 0, 1)


class Held:
    """Sample 2 waits, the first time, and is wrong then. Later, three of them are read at the same time."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("fork")
        self.stuck, self.go_on = context.Event(), context.Event()
        self.barrier = context.Barrier(3)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        threading.Event().wait(0.01)  # so long that batches are divided
        if index == 2 and not self.stuck.is_set():
            self.stuck.set()
            assert self.go_on.wait(WAIT)
            return np.full(ONE_LARGE, 999, np.float32)
        if index != 3 and self.go_on.is_set():
            with contextlib.suppress(threading.BrokenBarrierError):  # on a busy machine two of them may share it
                self.barrier.wait(5)
        return np.full(ONE_LARGE, index, np.float32)


@pytest.mark.parametrize("kind", [FORK, THREADS], ids=["fork", "threads"])
def test_who_comes_late_from_an_epoch_that_was_left_writes_into_no_batch_of_the_next(kind: dict[str, Any]) -> None:
    dataset = Held()
    options: dict[str, Any] = {"batch_size": 4, "persistent_workers": True, "prefetch_next_epoch": False}
    with DataLoader(dataset, **options, **{**kind, "num_workers": 3}) as loader:
        left = iter(loader)
        left.fill()
        assert dataset.stuck.wait(WAIT)
        kept = list(loader)  # by the two that are left
        dataset.go_on.set()
        kept += list(loader)  # by all three: the late one is done with what it had
        for batch in kept:
            assert batch[:, 0].tolist() == [0, 1, 2, 3]


def test_memory_is_used_again_epoch_after_epoch() -> None:
    options: dict[str, Any] = {"batch_size": 6, "persistent_workers": True, "prefetch_next_epoch": False, **FORK}
    with DataLoader(Images("aa"), **options) as loader:
        for _ in range(8):
            for batch in loader:
                assert batch["a"].shape == (6, ONE_LARGE)
            del batch
        kept = loader._session.kept
        assert kept is not None
        pool = kept.workers.traits.pool
        assert pool is not None
        out, held, free = pool.occupancy()
        assert (out, held) == (0, 0)
        assert free <= 24
