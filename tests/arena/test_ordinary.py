"""Large leaves in ordinary memory: only where the loop makes the batches, and too little memory is an error."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS

from feedline import ArrayDataset, DataLoader
from feedline.arena import ordinary, segment, slots
from feedline.arena.limits import Room
from feedline.arena.ordinary import LARGEST, LOOK
from feedline.arena.slots import LocalMemory, SlotPool
from feedline.datasets import SMALL_LEAF, is_ordinary
from feedline.errors import MemoryShortage

MB = 1 << 20
BYTE = np.dtype(np.uint8)


@pytest.fixture(autouse=True)
def _begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordinary, "_given", 0)
    monkeypatch.setattr(ordinary, "_checked", 0)


class Large:
    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return np.full(self.size, index, np.uint8)


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
@pytest.mark.parametrize("size", [SMALL_LEAF // 2, SMALL_LEAF, LARGEST // 2, LARGEST // 2 + 1])
def test_where_a_leaf_lies(kind: dict[str, Any], size: int) -> None:
    loader = DataLoader(Large(size), batch_size=2, **kind)
    batch = next(iter(loader))
    is_small, is_inline = 2 * size < SMALL_LEAF, kind is INLINE
    assert _is_numpys_own(batch) == (is_small or (is_inline and 2 * size <= LARGEST))
    assert batch[:, 0].tolist() == [0, 1]
    loader.close()


def _is_numpys_own(array: Any) -> bool:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return bool(array.base is None and array.flags.owndata)


def test_one_batch_may_have_leaves_in_both() -> None:
    pool = SlotPool()
    memory = LocalMemory(pool, prefers_ordinary=True)
    small, large, largest = (memory((size,), BYTE) for size in (10, MB, LARGEST + 1))
    assert (small.flags.owndata, large.flags.owndata, largest.flags.owndata) == (True, True, False)
    memory.finish()
    del largest
    pool.close()


@given(st.integers(0, 2 * LARGEST))
def test_the_answer_is_what_it_does(size: int) -> None:
    memory = LocalMemory(None, prefers_ordinary=True)
    assert is_ordinary(memory, size) == (size <= LARGEST)
    assert is_ordinary(np.empty, size) == is_ordinary(LocalMemory(None), size) == (size < SMALL_LEAF)


@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
@pytest.mark.parametrize(
    "options", [{}, {"collate_fn": np.stack}, {"batch_size": None}], ids=["default", "own", "single"]
)
def test_a_user_who_keeps_every_batch_gets_an_error(
    options: dict[str, Any], kind: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The room is what is free at the beginning, less what the process has grown by."""
    before, limit = ordinary._resident(), 400 * MB

    def room() -> Room:
        return Room(max(0, 100 * MB - (ordinary._resident() - before)), limit, "machine")

    monkeypatch.setattr(segment, "room", room)
    loader = DataLoader(Large(MB), **{"batch_size": 1, **options}, **kind)
    kept: list[Any] = []
    with pytest.raises(MemoryShortage, match="keep fewer batches"):
        _keep_all(loader, kept)
    grown = ordinary._resident() - before  # the first batches may be in memory that others have freed
    assert grown <= 100 * MB
    assert [batch.flat[0] for batch in kept[:16]] == [*range(8)] * 2
    kept.clear()
    assert len(list(loader)) == 8  # the loader goes on
    loader.close()


def test_all_columns_of_a_batch_count(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(ordinary, "_look", looks.append)
    data = ArrayDataset(*(np.zeros((4, MB), np.uint8) for _ in range(6)))
    batches = iter(DataLoader(data, batch_size=2))
    next(batches)
    assert looks == [12 * MB]
    next(batches)
    assert len(looks) == 2


def test_memory_that_the_system_refuses_is_our_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> Any:
        raise MemoryError

    memory = LocalMemory(None, prefers_ordinary=True)
    monkeypatch.setattr(slots.np, "empty", refuse)
    with pytest.raises(MemoryShortage, match="the system refused 1,048,576 bytes"):
        memory((MB,), BYTE)


def _keep_all(loader: DataLoader[Any], kept: list[Any]) -> None:
    while len(kept) < 2000:
        kept.extend(loader)


def test_memory_that_is_used_again_is_not_checked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = []
    monkeypatch.setattr(segment, "room", lambda: looks.append(ordinary._resident()))
    loader = DataLoader(Large(MB), batch_size=1)
    for _ in loader:
        pass
    for _ in range(20):
        for _ in loader:
            pass
    assert len(looks) < 5  # 168 MB were given out


def test_where_nothing_says_how_large_a_process_is_the_limits_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(ordinary, "_resident", lambda: 0)
    monkeypatch.setattr(segment, "room", lambda: looks.append(1))
    for _ in range(4):
        assert ordinary.may_give(LOOK)
    assert len(looks) == 4
