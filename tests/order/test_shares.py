"""global_batch_size: the same global batches for any number of ranks, also if it changes on the way."""

from __future__ import annotations

import os
import random
import warnings
from typing import Any

import numpy as np
import pytest
from global_batches import DATA, Augmented, Ranks, alone, exact, first_draws, together, weighted_part
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, QUICK, THREADS, few
from shared_streams import EXPECTED, Asking, Keeping, Shardable, Stream, as_rank, part

import feedline
from feedline import (
    DataLoader,
    DistributedSampler,
    IterableDataset,
    OptionError,
    RandomSampler,
    StateError,
    StratifiedBatchSampler,
    WeightedRandomSampler,
    accumulate,
)

pytestmark = pytest.mark.filterwarnings(f"ignore:{EXPECTED}")


def loader_of(data: Any = Augmented, length: int = 23, size: int = 6, **options: Any) -> DataLoader:
    dataset = data(length)
    order = {} if isinstance(dataset, IterableDataset) else {"shuffle": True}
    return DataLoader(dataset, global_batch_size=size, **order, **options)


@st.composite
def runs(draw: Any, steps: int) -> Ranks:
    found: Ranks = []
    while steps:
        taken = draw(st.integers(1, steps))
        found.append((draw(st.integers(1, 5)), taken))
        steps -= taken
    return found


@settings(max_examples=few(200))
@given(st.data(), st.sampled_from(DATA), st.integers(1, 40), st.integers(5, 9), st.booleans())
def test_global_batches_are_those_of_one_process(data: Any, kind: Any, length: int, size: int, drop: bool) -> None:
    def make() -> DataLoader:
        return loader_of(kind, length, size, drop_last=drop)

    whole = alone(make)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=EXPECTED)
        assert exact(together(make, data.draw(runs(len(whole))))) == exact(whole)


@pytest.mark.parametrize("kind", QUICK[1:])
@pytest.mark.parametrize("data", [Augmented, Keeping])
def test_workers_change_nothing(data: Any, kind: dict[str, Any]) -> None:
    changing = [(4, 1), (3, 2), (1, 1)]
    # A stream's elements are in one part for each worker: with as many, the batches are the same.
    whole = alone(lambda: loader_of(data, **kind))
    assert exact(together(lambda: loader_of(data, **kind), changing)) == exact(whole)
    if data is Augmented:
        assert together(lambda: loader_of(data, **kind), changing) == together(lambda: loader_of(data), changing)


def test_samplers_that_repeat_draw_the_same_for_any_number_of_ranks() -> None:
    def make() -> DataLoader:
        sampler = WeightedRandomSampler(np.arange(1, 9), 40, seed=3)
        return DataLoader(Augmented(8), global_batch_size=7, sampler=sampler)

    whole = exact(alone(make))
    assert exact(together(make, [(3, 2), (4, 4)])) == whole
    assert len({draw for batch in whole for draw in batch[1]}) == 40


@pytest.mark.parametrize("data", DATA[:2])
def test_no_two_ranks_draw_the_same_whatever_their_number_was_before(data: Any) -> None:
    collated: list[float] = []

    def collate(samples: list[Any]) -> Any:
        collated.append(random.random())
        return [np.array(leaf) for leaf in zip(*samples, strict=True)]

    changing = [(4, 2), (3, 2), (1, 2), (2, 2)]
    draws = []
    state: Any = None
    for ranks, steps in changing:
        shares = [
            weighted_part(loader_of(data, 48, 6, collate_fn=collate), rank, ranks, state, steps)
            for rank in range(ranks)
        ]
        draws += [draw for batches, _ in shares for draw in first_draws([batch for batch, _ in batches])]
        state = shares[0][1]
    assert len(set(draws)) == len(draws) == 4 * 2 + 3 * 2 + 2 + 2 * 2
    assert len(set(collated)) == len(collated) == len(draws)


def test_one_rank_is_a_plain_loader() -> None:
    plain = part(DataLoader(Augmented(23), batch_size=6, shuffle=True, seed=0), 0, 1)[0]
    assert alone(loader_of) == plain
    assert [batch[2] for batch in alone(loader_of)] == [batch[2] for batch in plain]


@pytest.mark.parametrize("by_batches", [False, True])
def test_ranks_of_a_distributed_sampler_draw_apart_too(by_batches: bool) -> None:
    def options(ranks: int, rank: int) -> dict[str, Any]:
        if by_batches:
            whole = StratifiedBatchSampler(np.arange(48) % 2, batch_size=4)
            return {"batch_sampler": DistributedSampler(whole, ranks, rank)}
        return {"sampler": DistributedSampler(RandomSampler(48), ranks, rank), "batch_size": 4}

    def epoch(ranks: int) -> list[list[Any]]:
        return [part(DataLoader(Augmented(48), seed=1, **options(ranks, rank)), 0, 1)[0] for rank in range(ranks)]

    for ranks in (2, 3):
        draws = first_draws([batch for share in epoch(ranks) for batch in share])
        assert len(set(draws)) == len(draws) == 12
    if by_batches:  # whole batches are shared out: all that is drawn is the same for any number of ranks
        steps = [batch for step in zip(*epoch(3), strict=True) for batch in step]
        assert steps == epoch(1)[0]


def test_a_weighted_mean_over_ranks_is_the_mean_of_the_batch() -> None:
    whole = alone(loader_of)
    for ranks in range(1, 7):
        shares = [weighted_part(loader_of(), rank, ranks, None, len(whole))[0] for rank in range(ranks)]
        for batch, step in zip(whole, zip(*shares, strict=True), strict=True):
            means = [np.mean(share[0]) * weight for share, weight in step]
            assert np.isclose(np.mean(means), np.mean(batch[0]))


@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
def test_groups_of_batches_are_weighted_by_their_samples_over_all_ranks(ranks: int) -> None:
    sums = np.zeros(2)
    for rank in range(ranks):
        with as_rank(rank, ranks):
            group = 0
            for micro in accumulate(loader_of(size=6), steps=3):
                sums[group] += np.mean(micro.batch[0]) / micro.divisor / ranks
                group += micro.is_last
    with as_rank(0, 1):
        numbers = [number for batch in loader_of(size=6) for number in batch[0].tolist()]
    assert np.allclose(sums, [np.mean(numbers[:18]), np.mean(numbers[18:])])


def test_groups_are_the_same_under_a_progress_bar_and_in_endless_loading(capsys: Any) -> None:
    with as_rank(3, 4):
        loader, endless = loader_of(), loader_of().forever(4)
        groups = [
            [(micro.divisor, micro.is_last) for micro in accumulate(each, steps=3)]
            for each in (loader, loader_of().progress(), endless, endless.progress())
        ]
    assert groups[1:] == groups[:1] * 3
    assert groups[0][0][0] == 18 / 4


def test_the_number_of_ranks_may_change_between_two_epochs_of_one_loader() -> None:
    loader = loader_of(persistent_workers=True, **THREADS)
    assert len(loader) == 4
    with loader, as_rank(0, 1):
        epochs = [[batch[0].tolist() for batch in loader] for _ in range(2)]
    loader = loader_of(persistent_workers=True, **THREADS)
    with loader:
        with as_rank(1, 2):
            assert [batch[0].tolist() for batch in loader] == [batch[1::2] for batch in epochs[0]]
            assert loader.weight == 2 / 5 * 2
        with as_rank(2, 3):
            assert [batch[0].tolist() for batch in loader] == [batch[2::3] for batch in epochs[1]]
    assert len(loader) == 4


@pytest.mark.parametrize("kind", [THREADS, pytest.param(FORK, marks=pytest.mark.thorough)])
def test_persistent_workers_of_a_stream_follow_the_number_of_ranks(kind: dict[str, Any]) -> None:
    with loader_of(Keeping, persistent_workers=True, **kind) as loader:
        with as_rank(0, 1):
            whole = [batch[0].tolist() for batch in loader]
        for ranks in (2, 2, 3):
            with as_rank(1, ranks):
                assert [batch[0].tolist() for batch in loader] == [batch[1::ranks] for batch in whole]
    with DataLoader(Stream(12), 2, ranks="shard", persistent_workers=True, **kind) as loader:
        for rank, ranks in ((0, 1), (3, 4)):
            with as_rank(rank, ranks):
                found = [batch[0].tolist() for batch in loader]
        assert found == [[6, 7], [8, 9]]  # the last step has two batches, and the others get its first one


def test_a_state_says_the_size_and_is_the_same_on_every_rank() -> None:
    _, state = weighted_part(loader_of(), 2, 3, None, 2)
    assert state == weighted_part(loader_of(), 0, 3, None, 2)[1]
    assert state["global_batch_size"] == 6
    _, streamed = weighted_part(loader_of(Keeping), 2, 3, None, 2)
    assert streamed == weighted_part(loader_of(Keeping), 0, 3, None, 2)[1]
    assert streamed["samples"] == 12
    with pytest.raises(StateError, match=r"saved with global_batch_size=6, and now it is 8.* keep global_batch_size=6"):
        loader_of(size=8).load_state_dict(state)
    with pytest.raises(StateError, match=r"this loader has none.* Set global_batch_size=6"):
        DataLoader(Augmented(23), 6, shuffle=True).load_state_dict(state)
    on_purpose = {**state, "global_batch_size": 8}
    whole = [number for batch in alone(loader_of) for number in batch[0]]
    share, _ = weighted_part(loader_of(size=8), 1, 2, on_purpose, 1)
    assert share[0][0][0] == whole[12:20][1::2]


def test_a_run_of_one_process_goes_on_with_several() -> None:
    plain = DataLoader(Augmented(23), batch_size=6, shuffle=True, seed=0)
    first, state = part(plain, 0, 1, None, 2)
    rest, _ = weighted_part(loader_of(), 1, 2, state, 2)
    assert [batch[0] for batch, _ in rest] == [batch[0][1::2] for batch in alone(loader_of)[2:]]
    assert [batch[0] for batch in first] == [batch[0] for batch in alone(loader_of)[:2]]


@pytest.mark.parametrize("kind", [INLINE, THREADS])
def test_weights_are_those_of_the_batch_that_was_given(kind: dict[str, Any]) -> None:
    state = part(DataLoader(Augmented(22), batch_size=6, shuffle=True, seed=0), 0, 1, None, 2)[1]
    ahead = {**state, "ahead": [3], "batch_size": 6}  # as with in_order=False; that batch has fewer samples
    assert [weight for _, weight in weighted_part(loader_of(length=22, **kind), 0, 4, ahead, 1)[0]] == [2 / 1.5]


class Drawing:
    """A sampler whose order belongs to its process."""

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Any:
        return iter(np.random.permutation(12).tolist())


@pytest.mark.parametrize("kind", [INLINE, THREADS])
def test_an_order_drawn_from_a_global_generator_is_refused(kind: dict[str, Any]) -> None:
    with as_rank(0, 1), DataLoader(range(12), global_batch_size=4, sampler=Drawing(), **kind) as loader:
        assert len([*loader]) == 3
    with as_rank(1, 2), DataLoader(range(12), global_batch_size=4, sampler=Drawing(), **kind) as loader:
        with pytest.raises(OptionError, match=r"belongs to the process \(numpy.random\).* pass one of feedline's"):
            next(iter(loader))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"batch_size": 4}, "batch_size=4 and global_batch_size=6 exclude each other"),
    ({"batch_size": None}, "batch_size=None and global_batch_size=6 exclude each other"),
    ({"batch_sampler": [[1]]}, "leave out global_batch_size=6"),
    ({"sampler": DistributedSampler(range(9), 2, 0)}, r"shared out twice.*Trainer\(use_distributed_sampler=False\)"),
    ({"on_error": "skip"}, "set on_error='replace'"),
    ({"in_order": False, "num_workers": 1}, "in_order=False lets each rank have another batch"),
]


@pytest.mark.parametrize(("options", "says"), REFUSED, ids=[next(iter(options)) for options, _ in REFUSED])
def test_what_does_not_fit_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        DataLoader(range(9), global_batch_size=6, **options)


def test_fewer_samples_than_ranks_and_streams_that_share_themselves_are_refused() -> None:
    with (
        as_rank(3, 4),
        pytest.raises(OptionError, match="global_batch_size=3 is less than a sample for each of 4 ranks"),
    ):
        iter(loader_of(size=3))
    with pytest.raises(OptionError, match="ranks='shard' and global_batch_size=6 exclude each other"):
        DataLoader(Stream(9), global_batch_size=6, ranks="shard")

    class Ranked(IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(range(int(os.environ["RANK"]), 9, int(os.environ["WORLD_SIZE"])))

    with as_rank(0, 2), pytest.raises(OptionError, match=r"global_batch_size divides the .*asks for the number"):
        list(DataLoader(Ranked(), global_batch_size=6))


@pytest.mark.parametrize("data", [Shardable, Asking])
def test_streams_that_share_themselves_over_workers_do_so_on_every_rank_alike(data: Any) -> None:
    whole = alone(lambda: loader_of(data, **THREADS))
    assert exact(together(lambda: loader_of(data, **THREADS), [(3, len(whole))])) == exact(whole)


@pytest.mark.parametrize("kind", [INLINE, FORK])
def test_a_sample_that_fails_is_replaced_and_the_ranks_stay_in_step(kind: dict[str, Any]) -> None:
    class Damaged(Augmented):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index) if index != 5 else int("?")

    assert len(together(lambda: loader_of(Damaged, on_error="replace", **kind), [(3, 2), (2, 2)])) == 4


def test_endless_loading_has_weights_too() -> None:
    with as_rank(2, 4):
        endless = loader_of().forever(batches_per_epoch=6)
        weights = [endless.weight for _ in endless]
    assert weights == [4 / 6, 4 / 6, 4 / 6, 4 / 5, 4 / 6, 4 / 6]
    assert feedline.DataLoader(range(3)).weight == 1
