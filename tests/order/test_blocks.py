"""BlockSampler: every index once, blocks together, a function of seed and epoch."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from feedline import BlockSampler, DataLoader, DistributedSampler, OptionError, StateError

sizes = st.lists(st.integers(0, 7), max_size=9)


@given(sizes, st.integers(1, 5), st.integers(0, 3))
def test_every_index_once_and_a_window_at_a_time(sizes: list[int], window: int, epoch: int) -> None:
    sampler = BlockSampler(sizes, window)
    order = sampler.order(5, epoch)[:]
    assert len(sampler) == len(order) == sum(sizes)
    assert sorted(order.tolist()) == list(range(sum(sizes)))
    blocks = np.repeat(np.arange(len(sizes)), sizes)[order]
    at, seen = 0, set()
    while at < len(order):  # the blocks of a window are all used up before another begins
        here: set[int] = set()
        while at < len(order) and (blocks[at] in here or sum(sizes[block] > 0 for block in here) < window):
            here.add(int(blocks[at]))
            at += 1
            if at == sum(sizes[block] for block in seen | here):
                break
        assert len(here) <= window
        assert not here & seen
        seen |= here


@given(sizes, st.integers(1, 5), st.integers(0, 60), st.integers(0, 60))
def test_any_slice_is_what_stands_there(sizes: list[int], window: int, start: int, stop: int) -> None:
    sampler = BlockSampler(sizes, window)
    assert sampler.order(1, 2)[start:stop].tolist() == sampler.order(1, 2)[:].tolist()[start:stop]


def test_another_epoch_another_order() -> None:
    sampler = BlockSampler([10] * 10, 3, seed=1)
    first, second = list(sampler), list(sampler)
    assert first != second
    assert first == BlockSampler([10] * 10, 3).order(1, 0)[:].tolist()
    assert {index // 10 for index in first[:30]} != {index // 10 for index in second[:30]}
    assert first[:30] != sorted(first[:30])


def test_windows_are_shuffled_each_in_its_own_way() -> None:
    order = np.array(list(BlockSampler([10] * 4, window=1, seed=1))).reshape(4, 10)
    assert len({tuple(window % 10) for window in order}) == 4


def test_the_samples_of_a_window_are_mixed() -> None:
    order = np.array(list(BlockSampler([1000] * 4, window=2, seed=1)))
    blocks = order[:2000] // 1000
    changes = int((blocks[1:] != blocks[:-1]).sum())
    assert 900 < changes < 1100
    assert sorted(DistributedSampler(BlockSampler([5, 5], 1), 2, 0)) != []


def test_another_window_is_another_order_and_a_state_says_so() -> None:
    def loader(window: int) -> DataLoader:
        return DataLoader(range(20), 2, sampler=BlockSampler([5] * 4, window), seed=1)

    one = loader(2)
    next(iter(one))
    with pytest.raises(StateError, match="window=2"):
        loader(3).load_state_dict(one.state_dict())


def test_a_state_says_so_of_blocks_of_other_sizes() -> None:
    with DataLoader(range(12), batch_size=3, sampler=BlockSampler([4, 8], window=1), seed=1) as loader:
        next(iter(loader))
        state = loader.state_dict()
    with DataLoader(range(12), batch_size=3, sampler=BlockSampler([8, 4], window=1), seed=1) as other:
        with pytest.raises(StateError, match="2 blocks of sizes"):
            other.load_state_dict(state)


def test_sizes_that_are_none() -> None:
    with pytest.raises(TypeError, match="sizes"):
        BlockSampler([0.5])
    with pytest.raises(OptionError, match="block 1 has -3"):
        BlockSampler([1, -3])
    with pytest.raises(OptionError, match="window"):
        BlockSampler([1], window=0)
