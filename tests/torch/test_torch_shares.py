"""feedline.torch: global_batch_size; the same global batches for any number of ranks, whatever each has seeded."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from global_batches import Augmented, alone, exact, first_draws, together, weighted_part
from kinds import FORK, INLINE, THREADS
from shared_streams import EXPECTED, Keeping, as_rank, part

import feedline.torch as ours
from feedline import DistributedSampler as ours_sampler
from feedline import OptionError, StateError

CHANGING = [(4, 1), (3, 2), (1, 1)]


def loader_of(data: Any = Augmented, length: int = 23, size: int = 6, **options: Any) -> Any:
    torch.manual_seed(torch.initial_seed() + 1)  # another on each rank, and in each run
    dataset = data(length)
    order = {} if isinstance(dataset, torchs.IterableDataset) or "sampler" in options else {"shuffle": True}
    return ours.DataLoader(dataset, global_batch_size=size, **order, **options)


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK])
@pytest.mark.parametrize("data", [Augmented, Keeping])
def test_global_batches_are_those_of_one_process(data: Any, kind: dict[str, Any]) -> None:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=EXPECTED)
        whole = alone(lambda: loader_of(data, **kind))
        assert len(whole) == 4
        assert exact(together(lambda: loader_of(data, **kind), CHANGING)) == exact(whole)


def test_the_order_follows_from_the_epoch_and_the_generators_seed_and_not_from_manual_seed() -> None:
    def epochs(**options: Any) -> list[Any]:
        with as_rank(1, 2):
            loader = loader_of(**options)
            return [[batch[0].tolist() for batch in loader] for _ in range(2)]

    first, second = epochs()
    assert first != second
    assert epochs() == [first, second]
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    assert epochs(generator=generators[0]) == epochs(generator=generators[1]) != [first, second]


SAMPLERS: dict[str, Any] = {
    "list": lambda: list(range(22, -1, -1)),
    "sequential": lambda: torchs.SequentialSampler(range(23)),
    "own generator": lambda: torchs.RandomSampler(range(23), generator=torch.Generator().manual_seed(2)),
    "weighted": lambda: torchs.WeightedRandomSampler(
        torch.arange(1, 24), 23, generator=torch.Generator().manual_seed(2)
    ),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_any_sampler_will_do_that_gives_all_ranks_one_order(name: str) -> None:
    def make() -> Any:
        return loader_of(sampler=SAMPLERS[name]())

    assert exact(together(make, CHANGING)) == exact(alone(make))


@pytest.mark.parametrize("kind", [INLINE, FORK])
@pytest.mark.parametrize("sampler", [torchs.RandomSampler, torchs.SubsetRandomSampler])
def test_an_order_drawn_from_the_ranks_own_generator_is_refused(sampler: Any, kind: dict[str, Any]) -> None:
    loader = loader_of(sampler=sampler(range(23)), **kind)
    assert len(part(loader, 0, 1)[0]) == 4
    loader = loader_of(sampler=sampler(range(23)), **kind)
    with (
        as_rank(0, 2),
        loader,
        pytest.raises(OptionError, match="a generator that belongs to the process"),
    ):
        list(loader)


def test_no_two_ranks_draw_the_same() -> None:
    draws: list[float] = []
    state: Any = None
    for ranks in (4, 3, 1, 2):
        shares = [weighted_part(loader_of(length=24), rank, ranks, state, 1) for rank in range(ranks)]
        draws += [draw for batches, _ in shares for draw in first_draws([batch for batch, _ in batches])]
        state = shares[0][1]
    assert len(set(draws)) == len(draws) == 10


@pytest.mark.parametrize("by_batches", [False, True])
def test_nor_do_those_of_torchs_distributed_sampler_when_all_are_seeded_alike(by_batches: bool) -> None:
    def epoch(ranks: int, rank: int) -> list[Any]:
        torch.manual_seed(1)
        sampler = torchs.DistributedSampler(range(24), ranks, rank)
        given: dict[str, Any] = {"batch_size": 4, "sampler": sampler}
        if by_batches:  # a class that feedline does not know
            given = {"batch_sampler": type("Own", (torchs.BatchSampler,), {})(sampler, 4, False)}
        return part(ours.DataLoader(Augmented(24), **given), 0, 1)[0]

    for ranks in (2, 3):
        batches = [batch for rank in range(ranks) for batch in epoch(ranks, rank)]
        draws = first_draws(batches)
        assert len(set(draws)) == len(draws) == 6
        samples = {number: draw for batch in batches for number, draw in zip(*batch[:2], strict=True)}
        if ranks == 2:
            before = samples
    assert samples.keys() == before.keys()


def test_the_augmentation_of_a_sample_is_the_same_for_any_number_of_torchs_ranks() -> None:
    def samples(ranks: int) -> dict[Any, Any]:
        found = {}
        for rank in range(ranks):
            torch.manual_seed(1)
            sampler = torchs.DistributedSampler(range(24), ranks, rank)
            for batch in part(ours.DataLoader(Augmented(24), 24 // ranks // 2, sampler=sampler), 0, 1)[0]:
                found |= dict(zip(*batch[:2], strict=True))
        return found

    assert samples(2) == samples(3) == samples(1)


class OrderedByWorker(torchs.IterableDataset[int]):
    """A stream that shuffles by its worker's seed, as many do."""

    def __iter__(self) -> Any:
        info = torchs.get_worker_info()
        assert info is not None
        return iter(torch.randperm(12, generator=torch.Generator().manual_seed(info.seed)).tolist())


def test_a_stream_that_is_ordered_by_its_workers_seed_is_the_same_on_all_ranks() -> None:
    found: list[list[int]] = [[], []]
    for rank in range(2):
        torch.manual_seed(rank)
        with as_rank(rank, 2), ours.DataLoader(OrderedByWorker(), global_batch_size=4, num_workers=1) as loader:
            for epoch in range(2):
                found[epoch] += [int(number) for batch in loader for number in batch]
    assert [sorted(numbers) for numbers in found] == [list(range(12))] * 2
    assert found[0] != found[1]


def test_a_state_is_for_this_size_and_travels_as_the_loader_does() -> None:
    _, state = weighted_part(loader_of(), 2, 3, None, 2)
    with pytest.raises(StateError, match="saved with global_batch_size=6, and now it is 8"):
        loader_of(size=8).load_state_dict(state)
    with pytest.raises(StateError, match="this loader has none"):
        ours.DataLoader(Augmented(23), 6, sampler=loader_of().batch_sampler.sampler).load_state_dict(state)
    expected, _ = weighted_part(loader_of(), 1, 2, state, 2)
    for again in (
        pickle.loads(pickle.dumps(loader_of())),
        ours.with_feedline(loader_of(), num_workers=1, workers="thread"),
    ):
        assert again.global_batch_size == 6
        assert weighted_part(again, 1, 2, state, 2)[0] == expected


def test_the_next_epochs_first_batches_are_made_early_and_are_right() -> None:
    def epochs(**options: Any) -> list[Any]:
        with as_rank(1, 3), loader_of(persistent_workers=bool(options), **options) as loader:
            return [[(batch[0].tolist(), batch[1].tolist()) for batch in loader] for _ in range(3)]

    assert epochs(**THREADS) == epochs()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(OptionError, match="batch_size=4 and global_batch_size=6 exclude each other"):
        ours.DataLoader(range(9), 4, global_batch_size=6)
    with pytest.raises(OptionError, match="shared out twice"):
        ours.DataLoader(range(9), global_batch_size=6, sampler=torchs.DistributedSampler(range(9), 2, 0))
    with as_rank(0, 2), pytest.raises(OptionError, match="somebody else takes the batches"):
        list(torchs.DataLoader(range(9), batch_sampler=ours.DataLoader(range(9), global_batch_size=6).batch_sampler))


@pytest.mark.parametrize("kind", [torchs.DistributedSampler, ours_sampler])
def test_a_distributed_sampler_whose_steps_have_another_size_is_told_what_that_means(kind: Any) -> None:
    def loader(ranks: int, size: int) -> Any:
        return ours.DataLoader(Augmented(48), size, sampler=kind(range(48), ranks, 0))

    batches = iter(saved := loader(4, 3))
    next(batches)
    state = saved.state_dict()
    with pytest.warns(UserWarning, match=r"1 step of 12 samples .* now a step has 9 \(3 on 3 ranks\).*_size=12"):
        loader(3, 3).load_state_dict(state)
    loader(3, 4).load_state_dict(state)  # the same steps: nothing is said
