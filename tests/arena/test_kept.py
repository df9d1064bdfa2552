"""A loader's memory from one epoch to the next: used again, never while somebody holds it, and given back."""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

import numpy as np
import pytest
from kinds import FORK, INLINE

from feedline import DataLoader
from feedline.arena import kept, segment, slots
from feedline.arena.kept import KeptPool
from feedline.arena.limits import Room
from feedline.arena.slots import Slot, SlotPool
from feedline.errors import MemoryShortage

pytestmark = pytest.mark.usefixtures("everything_in_slots")
SIZE = 1 << 19  # bytes of a sample: a batch of two lies in a slot
kinds = pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])


class Large:
    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        return np.full(SIZE, index, np.uint8)


def loader_of(kind: dict[str, Any]) -> DataLoader[Any]:
    return DataLoader(Large(), batch_size=2, **kind)


def firsts(batches: Any) -> list[list[int]]:
    return [batch[:, 0].tolist() for batch in batches]


WHOLE = [[first, first + 1] for first in range(0, 12, 2)]


def pool_of(loader: DataLoader[Any]) -> SlotPool | None:
    pools = loader._session._pool._pools
    return pools[0] if pools else None


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@kinds
def test_the_next_epoch_gets_the_memory_of_the_last(kind: dict[str, Any]) -> None:
    with loader_of(kind) as loader:
        assert firsts(loader) == WHOLE
        pool = pool_of(loader)
        assert pool is not None
        assert pool.segment.used() >= 2 * SIZE
        for _ in range(3):
            assert firsts(loader) == WHOLE
            assert pool_of(loader) is pool
        # Timing decides how many batches are out at once, but it does not add up from epoch to epoch.
        assert pool.segment.used() <= 2 * SIZE * 10


@kinds
def test_what_the_user_still_holds_is_not_written_again(kind: dict[str, Any]) -> None:
    with loader_of(kind) as loader:
        held = list(loader)
        assert firsts(loader) == WHOLE
        more = list(loader)
        for batches in (held, more):
            assert firsts(batches) == WHOLE
            assert all((batch == batch[:, :1]).all() for batch in batches)


@kinds
def test_after_a_loop_that_was_left_the_next_epoch_is_right(kind: dict[str, Any]) -> None:
    with loader_of(kind) as loader:
        for stop in (1, 3, 5):
            held = []
            for number, batch in enumerate(loader, 1):
                held.append(batch)
                if number == stop:
                    break
            assert firsts(loader) == WHOLE
            assert firsts(held) == WHOLE[:stop]


@kinds
def test_two_loops_over_one_loader_have_memory_of_their_own(kind: dict[str, Any]) -> None:
    with loader_of(kind) as loader:
        list(loader)
        outer = []
        for batch in loader:
            outer.append(batch)
            assert firsts(loader) == WHOLE
        assert firsts(outer) == WHOLE


@kinds
def test_closing_gives_it_back_and_so_does_the_loaders_end(kind: dict[str, Any]) -> None:
    gc.collect()
    firsts(loader_of(kind))  # what is opened once for a process is open now
    before = descriptors()
    loader = loader_of(kind)
    firsts(loader)
    assert descriptors() > before
    loader.close()
    assert (pool_of(loader), descriptors()) == (None, before)
    assert firsts(loader) == WHOLE  # it may be used again
    del loader
    gc.collect()
    assert descriptors() == before
    assert not kept._resting


def test_a_slot_that_is_put_back_after_its_epoch_is_not_used_again() -> None:
    pool = SlotPool()
    late, other = pool.take(), pool.take()
    late.room(SIZE)
    other.room(SIZE)
    pool.put(other)
    assert pool.rest(1 << 30)
    again = pool.take()
    assert again is other
    pool.put(late)  # a worker's answer that was on its way
    assert pool.take() not in (late, other)
    pool.close()


STEPS = ("take", "put", "_put", "_collect", "_new", "_sweep", "_parted", "rest", "give_back_small")


@pytest.mark.parametrize("after", range(1, 250, 4))
def test_ctrl_c_at_any_step_gives_no_slot_to_two_batches(after: int) -> None:
    """It comes at some step inside of the pool, in one epoch; all batches of the next ones are kept."""
    left = [after]

    def step(frame: Any, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename != slots.__file__ or frame.f_code.co_name not in STEPS:
            return None
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return step

    with loader_of({}) as loader:
        firsts(loader)
        before = sys.gettrace()
        sys.settrace(step)
        try:
            firsts(loader)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        held = [list(loader) for _ in range(2)]
        assert [firsts(each) for each in held] == [WHOLE, WHOLE]


def test_an_epoch_that_an_error_ended_leaves_no_memory_to_others() -> None:
    with loader_of({}) as loader:
        firsts(loader)
        pool = pool_of(loader)
        batches = iter(loader)
        next(batches)
        batches._abandon(KeyboardInterrupt())  # type: ignore[attr-defined]
        assert pool is not None
        assert pool_of(loader) is not pool
        assert firsts(loader) == WHOLE


def test_what_the_user_has_held_at_the_end_keeps_at_most_two_batches() -> None:
    with loader_of({}) as loader:
        held = []
        for batch in loader:
            held.append(batch)
        del batch
        pool = pool_of(loader)
        assert pool is not None
        assert pool.segment.used() <= len(WHOLE) * 2 * SIZE
        held = [batch[:1, :1].copy() for batch in held]  # nothing of them is held any more
        assert pool.segment.used() <= slots.LATEST * 2 * SIZE + (1 << 16)
        assert firsts(held) == [[first] for first in range(0, 12, 2)]


def test_more_than_the_most_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST", SIZE)
    with loader_of({}) as loader:
        list(loader)
        assert pool_of(loader) is None


def test_small_batches_keep_nothing() -> None:
    before = descriptors()
    loader = DataLoader(np.arange(10.0), batch_size=2)
    list(loader)
    pool = pool_of(loader)
    assert pool is not None
    assert (pool.segment.used(), descriptors(), loader._session._pool in kept._resting) == (0, before, False)


def test_a_loader_that_rests_gives_way_when_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    with loader_of({}) as first, loader_of({}) as second:
        monkeypatch.setattr(kept, "IDLE_SECONDS", 1e9)
        firsts(first)
        firsts(second)
        assert pool_of(first) is not None  # it has not rested for long
        monkeypatch.setattr(kept, "IDLE_SECONDS", -1.0)
        firsts(second)
        assert pool_of(first) is None
        assert pool_of(second) is not None


@pytest.mark.parametrize(("free", "stays"), [(1 << 40, True), (1 << 20, False)])
def test_where_little_is_free_a_loader_gives_way_at_once(
    free: int, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "IDLE_SECONDS", 1e9)
    with loader_of({}) as first, loader_of({}) as second:
        firsts(first)
        monkeypatch.setattr(kept, "room", lambda: Room(free, 1 << 40, "container"))
        firsts(second)
        assert (pool_of(first) is not None) == stays


@pytest.mark.parametrize("there", [False, True])
def test_memory_that_is_there_already_needs_no_room(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = SlotPool()
    slot = pool.take()
    slot.room(8 * SIZE).view(0, 8 * SIZE)[:] = bytes(8 * SIZE)  # what was never written does not count
    monkeypatch.setattr(segment, "room", lambda: Room(0, 1 << 40, "container"))
    monkeypatch.setattr(segment, "LOOK", 1)
    again = Slot(pool.segment, slot.id)  # as a new worker has it
    if there:
        again.room(8 * SIZE).view(0, 1)[0] = 7
        assert bytes(slot.mapped(1).view(0, 1)) == bytes([7])
    else:
        with pytest.raises(MemoryShortage):
            again.room(9 * SIZE)
    pool.close()


@pytest.mark.parametrize("by", ["limit", "system"])
def test_memory_that_runs_short_is_taken_from_loaders_that_rest(by: str, monkeypatch: pytest.MonkeyPatch) -> None:
    allocate = os.posix_fallocate
    with loader_of({}) as first, loader_of({}) as second:
        firsts(first)
        resting = pool_of(first)
        assert resting is not None

        def room() -> Room:
            return Room(0 if pool_of(first) is resting else 1 << 40, 1 << 40, "container")

        def refused(*args: int) -> None:
            if pool_of(first) is resting:
                raise OSError(28, "No space left on device")
            allocate(*args)

        if by == "limit":
            monkeypatch.setattr(segment, "room", room)
            monkeypatch.setattr(segment, "LOOK", 1)
        else:
            monkeypatch.setattr(os, "posix_fallocate", refused)
        assert firsts(second) == WHOLE
        assert pool_of(first) is None


def test_where_nobody_rests_lack_of_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment, "room", lambda: Room(0, 1 << 40, "container"))
    monkeypatch.setattr(segment, "LOOK", 1)
    with loader_of({}) as loader, pytest.raises(MemoryShortage):
        list(loader)


def test_a_pool_that_is_given_late_is_closed() -> None:
    keeper, pool = KeptPool(), SlotPool()
    slot = pool.take()
    slot.room(SIZE)
    pool.put(slot)
    keeper.close()
    keeper.give(pool)
    assert pool.segment.used() == 0
    assert keeper.take() is not pool
