"""Samplers: which indices an epoch has, that they follow from seed and epoch alone, and what is refused."""

from __future__ import annotations

import itertools
import math
import pickle
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, THREADS, few, thorough
from made_datasets import Numbers, elements

from feedline import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    DistributedSampler,
    OptionError,
    OptionTypeError,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    weights_from_labels,
)
from feedline.order import index_shuffle as shuffling
from feedline.order.permutation import Order, Permutation

RANDOM: dict[str, Callable[[int | None], Sampler]] = {
    "shuffle": lambda seed: RandomSampler(500, seed=seed),
    "shorter": lambda seed: RandomSampler(500, num_samples=77, seed=seed),
    "longer": lambda seed: RandomSampler(500, num_samples=1700, seed=seed),
    "draws": lambda seed: RandomSampler(500, replacement=True, seed=seed),
    "more draws": lambda seed: RandomSampler(50, replacement=True, num_samples=20_000, seed=seed),
    "subset": lambda seed: SubsetRandomSampler(range(100, 900, 3), seed=seed),
    "weighted": lambda seed: WeightedRandomSampler(np.arange(100), 300, seed=seed),
    "weighted, once": lambda seed: WeightedRandomSampler(np.arange(100), 99, replacement=False, seed=seed),
}
ALL: dict[str, Callable[[int | None], Sampler]] = {**RANDOM, "sequential": lambda _: SequentialSampler(500)}


def indices(order: Order) -> list[int]:
    return [int(index) for index in order[0 : len(order)]]


# --- what every sampler promises ---


@pytest.mark.parametrize("name", ALL)
def test_length_is_the_number_of_indices(name: str) -> None:
    sampler = ALL[name](7)
    assert len(sampler) == len(sampler.order(1, 2)) == len(indices(sampler.order(1, 2))) == len(list(sampler))


@pytest.mark.parametrize("name", RANDOM)
def test_order_is_a_function_of_seed_and_epoch(name: str) -> None:
    one, other = RANDOM[name](None), RANDOM[name](None)
    list(other)  # having been used must not matter
    orders = {pair: indices(one.order(*pair)) for pair in itertools.product((0, 1, 2**64 - 1), (0, 1, 1000))}
    for pair, order in orders.items():
        assert indices(other.order(*pair)) == order
    assert len({tuple(order) for order in orders.values()}) == len(orders)


@pytest.mark.parametrize("name", ALL)
@settings(max_examples=few(15))
@given(start=st.integers(0, 21_000), size=st.integers(0, 9000), seed=st.integers(0, 2**63 - 1))
def test_any_part_of_an_order_is_read_without_what_precedes(name: str, start: int, size: int, seed: int) -> None:
    sampler = ALL[name](None)
    part = sampler.order(seed, 3)[start : start + size]
    assert part.dtype == np.int64
    assert part.tolist() == indices(sampler.order(seed, 3))[start : start + size]


@pytest.mark.parametrize("name", ALL)
def test_repeats_is_true_where_an_index_may_come_twice(name: str) -> None:
    sampler = ALL[name](7)
    assert sampler.repeats == (max(Counter(sampler).values()) > 1)


@pytest.mark.parametrize("name", RANDOM)
def test_each_pass_by_hand_is_the_next_epoch(name: str) -> None:
    sampler = RANDOM[name](7)
    passes = [list(sampler) for _ in range(3)]
    assert passes == [indices(sampler.order(7, epoch)) for epoch in range(3)]
    assert all(type(index) is int for index in passes[0])
    sampler.set_epoch(1)
    assert [list(sampler), list(sampler)] == passes[1:]


def test_a_pass_is_counted_when_it_starts() -> None:
    sampler = RandomSampler(50, seed=7)
    first, second = iter(sampler), iter(sampler)
    assert list(second) == indices(sampler.order(7, 1))
    assert list(first) == indices(sampler.order(7, 0))


def test_without_a_seed_one_is_drawn_once_and_kept_to_itself() -> None:
    sampler = RandomSampler(1000)
    first = list(sampler)
    sampler.set_epoch(0)
    assert list(sampler) == first
    assert list(RandomSampler(1000)) != first
    assert sampler.seed is None  # so that a loader still uses its own


@pytest.mark.parametrize("name", ALL)
def test_a_sampler_survives_pickling(name: str) -> None:
    sampler = ALL[name](7)
    list(sampler)
    assert list(pickle.loads(pickle.dumps(sampler))) == list(sampler)


def test_shuffled_arrays_never_change() -> None:
    """NumPy may change its shuffle in a new version; then this fails, and saved runs must be told."""
    assert indices(RandomSampler(10).order(7, 0)) == [1, 2, 6, 5, 0, 4, 7, 3, 9, 8]
    assert indices(SubsetRandomSampler(range(10)).order(7, 0)) == [2, 7, 6, 9, 3, 4, 5, 1, 8, 0]
    assert indices(WeightedRandomSampler(range(10), 5, replacement=False).order(7, 0)) == [9, 7, 8, 3, 6]


# --- writing one's own ---


class Evens(Sampler):
    def __init__(self) -> None:
        pass  # as people do: no super().__init__()

    def order(self, seed: int, epoch: int) -> Order:
        return np.arange(epoch, 10, 2)


def test_order_is_all_a_sampler_needs() -> None:
    sampler = Evens()
    assert (len(sampler), list(sampler), list(sampler)) == (5, [0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
    assert sampler.seed is None
    assert not sampler.repeats


class Given(Sampler):
    def __init__(self, order: Any, length: int | None = None) -> None:
        self.given = order
        self.length = len(order) if length is None else length

    def __len__(self) -> int:
        return self.length

    def order(self, seed: int, epoch: int) -> Any:
        return self.given


WAYS: dict[str, Callable[[Sampler], Any]] = {
    "by hand": list,
    "loader": lambda sampler: [int(each) for batch in DataLoader(np.arange(10), 2, sampler=sampler) for each in batch],
    "one by one": lambda sampler: [int(each) for each in DataLoader(np.arange(10), None, sampler=sampler)],
    "batches": lambda sampler: list(itertools.chain(*BatchSampler(sampler, 2))),
    "rank": lambda sampler: list(DistributedSampler(sampler, 1, 0)),
}
every_way = pytest.mark.parametrize("way", WAYS)


@every_way
@pytest.mark.parametrize("order", [[3, 1, 2], range(1, 4), np.array([3, 1, 2], np.uint8), (0, 9), []], ids=str)
def test_an_order_may_be_anything_that_is_sliced(way: str, order: Any) -> None:
    assert WAYS[way](Given(order)) == list(order)


@every_way
@pytest.mark.parametrize(
    "order", [np.arange(10) > 6, np.array([3.7, 1.2]), ["1", "2"], np.ones((2, 2), int), [None, 1]], ids=str
)
def test_an_order_of_something_else_is_refused(way: str, order: Any) -> None:
    """A mask would be read as the indices 0 and 1, and 3.7 as 3."""
    with pytest.raises(
        OptionTypeError, match=r"order\(seed, epoch\) must give one-dimensional integers, but from 0 on"
    ):
        WAYS[way](Given(order))
    with pytest.raises(OptionTypeError, match=r"np\.flatnonzero"):
        WAYS[way](Given(np.arange(10) > 6))


@every_way
@pytest.mark.parametrize("length", [2, 4])
def test_a_length_that_is_not_the_orders_is_refused(way: str, length: int) -> None:
    with pytest.raises(OptionError, match=rf"Given has a length of {length}, but order\(seed, epoch=0\) has 3"):
        WAYS[way](Given([3, 1, 2], length))


def test_a_sampler_written_for_torch_works_by_iteration() -> None:
    class Odd(Sampler[int]):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            return iter([1, 3])

    assert list(Odd()) == [1, 3]
    with pytest.raises(TypeError, match="Odd has no length"):
        len(Odd())
    with pytest.raises(NotImplementedError, match="Odd must define order"):
        Odd().order(0, 0)


class Backwards(SequentialSampler):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9, -1, -1))


class Classic(Sampler):
    """As every tutorial for torch writes one."""

    def __init__(self) -> None:
        pass

    def __len__(self) -> int:
        return 10

    def __iter__(self) -> Iterator[int]:
        return iter(range(9, -1, -1))


class Narrow(Sampler):
    def order(self, seed: int, epoch: int) -> Any:
        return np.arange(9, -1, -1, dtype=np.int32)


@pytest.mark.parametrize("kind", [{}, THREADS, FORK])
@pytest.mark.parametrize("sampler", [Backwards(range(10)), Classic(), Narrow()])
def test_a_sampler_may_be_written_either_way(kind: dict[str, Any], sampler: Any) -> None:
    assert elements(DataLoader(Numbers(), 4, sampler=sampler, **kind)) == list(range(9, -1, -1))


# --- sequential and random ---


def test_data_may_be_a_length_or_anything_that_has_one() -> None:
    for source in (4, np.int32(4), "abcd", [1, 2, 3, 4], np.zeros((4, 2))):
        assert list(SequentialSampler(source)) == [0, 1, 2, 3]
        assert sorted(RandomSampler(source)) == [0, 1, 2, 3]


def test_data_that_grows_is_followed() -> None:
    data = [1, 2]
    in_order, shuffled = SequentialSampler(data), RandomSampler(data)
    data.append(3)
    assert (len(in_order), len(shuffled)) == (3, 3)
    assert sorted(shuffled) == list(in_order) == [0, 1, 2]


@pytest.mark.parametrize("replacement", [False, True])
def test_empty_data_has_no_indices(replacement: bool) -> None:
    for sampler in (SequentialSampler([]), RandomSampler([], replacement), SubsetRandomSampler([])):
        assert (len(sampler), list(sampler), sampler.order(1, 2)[0:10].tolist()) == (0, [], [])
        assert not sampler.repeats or replacement
        assert list(BatchSampler(sampler, 4, drop_last=False)) == []


@given(n=st.integers(1, 300), samples=st.integers(1, 1000), seed=st.integers(0, 2**63 - 1))
def test_without_replacement_whole_shuffles_come_one_after_the_other(n: int, samples: int, seed: int) -> None:
    sampler = RandomSampler(n, num_samples=samples)
    order = indices(sampler.order(seed, 0))
    assert len(order) == samples
    assert sampler.repeats == (samples > n)
    for start in range(0, samples, n):
        turn = order[start : start + n]
        assert len(set(turn)) == len(turn)
        assert set(turn) <= set(range(n))


def test_the_shuffles_of_one_epoch_differ() -> None:
    order = indices(RandomSampler(100, num_samples=300).order(7, 0))
    assert len({tuple(order[start : start + 100]) for start in (0, 100, 200)}) == 3


def test_all_shuffles_are_equally_likely() -> None:
    seen = Counter(tuple(indices(RandomSampler(4).order(7, epoch))) for epoch in range(2400))
    assert len(seen) == 24
    assert sum((count - 100) ** 2 / 100 for count in seen.values()) < 60  # chi-square, 23 degrees: mean 23


def test_with_replacement_each_index_is_equally_likely() -> None:
    counts = np.bincount(list(RandomSampler(50, replacement=True, num_samples=50_000, seed=7)), minlength=50)
    assert counts.size == 50
    assert ((counts - 1000) ** 2 / 1000).sum() < 110  # chi-square, 49 degrees: mean 49


def test_long_shuffles_are_computed_and_short_ones_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isinstance(RandomSampler(100_000).order(7, 0), Permutation)
    monkeypatch.setattr(shuffling, "COMPUTED_FROM", 1000)
    assert isinstance(RandomSampler(999).order(7, 0), np.ndarray)
    for sampler in (
        RandomSampler(1000),
        RandomSampler(1000, num_samples=2000),
        SubsetRandomSampler(range(1000)),
    ):
        assert sorted(indices(sampler.order(7, 0))[:1000]) == list(range(1000))
        assert indices(sampler.order(7, 0)) != indices(sampler.order(7, 1))


def test_a_billion_items_need_no_memory() -> None:
    billion = 1_000_000_000
    assert SequentialSampler(billion).order(0, 0)[billion - 2 : billion + 5].tolist() == [
        billion - 2,
        billion - 1,
    ]
    for sampler in (RandomSampler(billion), RandomSampler(billion, replacement=True)):
        part = sampler.order(7, 0)[billion - 1000 :]
        assert len(part) == 1000
        assert 0 <= part.min() <= part.max() < billion


# --- subset ---


def test_subset_gives_exactly_its_indices() -> None:
    assert sorted(SubsetRandomSampler([5, 9, 2])) == [2, 5, 9]
    assert sorted(SubsetRandomSampler(np.array([5, 9, 2], np.uint8))) == [2, 5, 9]
    twice = SubsetRandomSampler((5, 5, 2))
    assert sorted(twice) == [2, 5, 5]
    assert twice.repeats


def test_changing_the_list_later_changes_nothing() -> None:
    chosen = np.array([5, 9, 2])
    sampler = SubsetRandomSampler(chosen)
    chosen[:] = 0
    assert sorted(sampler) == [2, 5, 9]


# --- weighted ---


@pytest.mark.parametrize("scale", [1e-320, 1.0, 1e307])
def test_weighted_draws_follow_the_weights_at_any_scale(scale: float) -> None:
    weights = np.array([1, 0, 2, 16, 8, 0])
    counts = np.bincount(list(WeightedRandomSampler(weights * scale, 27_000, seed=7)), minlength=6)
    assert counts[[1, 5]].tolist() == [0, 0]
    expected = np.array([1000, 2000, 16_000, 8000])
    assert ((counts[[0, 2, 3, 4]] - expected) ** 2 / expected).sum() < 20  # chi-square, 3 degrees


def test_weighted_without_replacement_is_successive_drawing() -> None:
    weights = [1.0, 2.0, 0.0, 5.0]
    draws = 8000
    sampler = WeightedRandomSampler(weights, 2, replacement=False)
    seen = Counter(tuple(indices(sampler.order(7, epoch))) for epoch in range(draws))
    chances = {(a, b): weights[a] / 8 * weights[b] / (8 - weights[a]) for a, b in itertools.permutations((0, 1, 3), 2)}
    assert set(seen) == set(chances)
    score = sum((seen[pair] - draws * chance) ** 2 / (draws * chance) for pair, chance in chances.items())
    assert score < 25  # chi-square, 5 degrees


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_weighted_without_replacement_has_the_exact_inclusion_probabilities(count: int) -> None:
    weights, draws = [1.0, 2.0, 0.0, 5.0, 8.0], 3000
    chances = np.zeros(5)
    for drawn in itertools.permutations([0, 1, 3, 4], count):  # one after the other, in proportion to what is left
        left, chance = 16.0, 1.0
        for index in drawn:
            chance *= weights[index] / left
            left -= weights[index]
        chances[list(drawn)] += chance
    sampler = WeightedRandomSampler(weights, count, replacement=False)
    together = itertools.chain(*(indices(sampler.order(7, epoch)) for epoch in range(draws)))
    shares = np.bincount(list(together), minlength=5) / draws
    assert shares[2] == 0
    assert np.abs(shares - chances).max() < 4.5 * math.sqrt(0.25 / draws)


def test_a_weighted_draw_keeps_no_table_of_the_epoch() -> None:
    order = WeightedRandomSampler(np.arange(1, 1001), num_samples=10**12, seed=7).order(7, 0)
    deep = order[10**12 - 5000 :]
    assert len(deep) == 5000
    assert abs(deep.mean() - 666) < 12  # the mean of i over weights i; its deviation is 236 / √5000


def test_weights_far_apart_are_still_ordered() -> None:
    sampler = WeightedRandomSampler([5e-324, 1e300, 1e-150], 3, replacement=False)
    assert all(indices(sampler.order(7, epoch)) == [1, 2, 0] for epoch in range(20))


def test_without_replacement_the_heavy_come_first() -> None:
    weights = np.ones(5000)
    weights[[4321, 77, 2500]] = [1e20, 1e15, 1e10]
    sampler = WeightedRandomSampler(weights, 2500, replacement=False)
    for epoch in range(10):
        assert indices(sampler.order(7, epoch))[:3] == [4321, 77, 2500]


@pytest.mark.parametrize("replacement", [True, False])
def test_other_weights_are_followed_and_never_ignored(replacement: bool) -> None:
    """torch's sampler follows its weights; one that has made a table of them must not go by the old ones."""
    sampler = WeightedRandomSampler(np.ones(6), 3, replacement, seed=1)
    for each in (sampler, pickle.loads(pickle.dumps(sampler))):
        with pytest.raises(ValueError, match="read-only"):
            each.weights[0] = 0
        each.weights = np.array([0, 0, 0, 1, 1, 1])
        assert {index for _ in range(10) for index in each} == {3, 4, 5}
        with pytest.raises(OptionError, match=r"weights\[1\] is -1"):
            each.weights = [1, -1]
        assert each.weights.tolist() == [0, 0, 0, 1, 1, 1]
    if not replacement:
        with pytest.raises(OptionError, match="more than the 2 weights that are not zero"):
            sampler.weights = [0, 1, 2]


@given(st.lists(st.sampled_from("abc"), min_size=1))
def test_every_class_has_the_same_weight_in_all(labels: list[str]) -> None:
    weights = weights_from_labels(labels)
    assert weights.dtype == np.float64
    sums = [weights[[label == each for each in labels]].sum() for label in set(labels)]
    assert sums == pytest.approx([1] * len(sums))


def test_weights_of_labels_balance_the_classes() -> None:
    labels = np.repeat([0, 1, 2], [9000, 900, 100])
    drawn = labels[list(WeightedRandomSampler(weights_from_labels(labels), 30_000, seed=7))]
    assert ((np.bincount(drawn) - 10_000) ** 2 / 10_000).sum() < 15  # chi-square, 2 degrees


def weights_of_two_among_more_than_two_to_the_24() -> np.ndarray:
    weights = np.zeros(2**24 + 1000, np.float32)
    weights[[3, -1]] = 1
    return weights


def test_more_than_two_to_the_24_weights() -> None:
    weights = weights_of_two_among_more_than_two_to_the_24()
    assert sorted(WeightedRandomSampler(weights, 2, replacement=False)) == [3, len(weights) - 1]


@thorough  # a table of 16 million sums
def test_more_than_two_to_the_24_weights_with_replacement() -> None:
    weights = weights_of_two_among_more_than_two_to_the_24()
    counts = Counter(WeightedRandomSampler(weights, 1000, seed=7))
    assert set(counts) == {3, len(weights) - 1}
    assert abs(counts[3] - 500) < 5 * math.sqrt(250)


# --- batches ---


@given(n=st.integers(0, 200), size=st.integers(1, 50), drop_last=st.booleans())
def test_batches_are_the_indices_in_groups(n: int, size: int, drop_last: bool) -> None:
    sampler = BatchSampler(RandomSampler(n, seed=7), size, drop_last)
    batches = list(sampler)
    assert len(batches) == len(sampler) == (n // size if drop_last else -(-n // size))
    assert all(len(batch) == size for batch in batches[: n // size])
    flat = [index for batch in batches for index in batch]
    assert flat == indices(RandomSampler(n).order(7, 0))[: len(flat)]
    assert len(flat) == (n // size * size if drop_last else n)


def test_batches_of_something_that_raises_come_up_to_there() -> None:
    def broken() -> Iterator[int]:
        yield from range(5)
        raise RuntimeError("disk")

    batches = iter(BatchSampler(broken(), 2, drop_last=False))
    assert [next(batches), next(batches)] == [[0, 1], [2, 3]]
    with pytest.raises(RuntimeError, match="disk"):
        next(batches)


def test_batches_of_something_without_length_have_none() -> None:
    with pytest.raises(TypeError, match="generator has no length"):
        len(BatchSampler((i for i in range(3)), 2, drop_last=False))


# --- what is refused, and how ---

BAD: list[tuple[Callable[..., Any], tuple[Any, ...], type[Exception], str]] = [
    (SequentialSampler, (-1,), ValueError, "data_source must be at least 0; got -1"),
    (SequentialSampler, (True,), TypeError, "data_source must be .* got True"),
    (SequentialSampler, (iter("abc"),), TypeError, r"data_source must have a len\(\) or be a length"),
    (RandomSampler, (2.5,), TypeError, r"data_source must have a len\(\) or be a length, got float"),
    (RandomSampler, (5, 1), TypeError, "replacement must be True or False; got 1"),
    (RandomSampler, (5, False, 0), ValueError, "num_samples must be at least 1; got 0"),
    (RandomSampler, (5, False, -3), ValueError, "num_samples must be at least 1; got -3"),
    (RandomSampler, (5, False, 2.0), TypeError, "num_samples must be a whole number of at least 1; got 2.0"),
    (RandomSampler, (5, False, True), TypeError, "num_samples must be a whole number of at least 1; got True"),
    (RandomSampler, ([], False, 3), ValueError, "num_samples=3 cannot be drawn from an empty data_source"),
    (RandomSampler, (5, False, None, -1), ValueError, "seed must be at least 0 and below .*; got -1"),
    (RandomSampler, (5, False, None, 2**63), ValueError, "seed must be below 2"),
    (RandomSampler, (5, False, None, "7"), TypeError, "seed must be .* got '7'"),
    (SubsetRandomSampler, ([1.0, 2.0],), TypeError, "indices must be a one-dimensional sequence of integers"),
    (SubsetRandomSampler, ([[1, 2]],), TypeError, "indices must be one-dimensional|one-dimensional sequence"),
    (SubsetRandomSampler, (3,), TypeError, "indices must be a one-dimensional sequence of integers"),
    (SubsetRandomSampler, ([True, False],), TypeError, "np.flatnonzero"),
    (WeightedRandomSampler, ([[1.0]], 1), ValueError, r"weights must be one-dimensional, got shape \(1, 1\)"),
    (
        WeightedRandomSampler,
        ([1, math.nan], 1),
        ValueError,
        r"finite and at least 0, but weights\[1\] is nan",
    ),
    (WeightedRandomSampler, ([1, math.inf], 1), ValueError, r"weights\[1\] is inf"),
    (WeightedRandomSampler, ([1, -2], 1), ValueError, r"weights\[1\] is -2"),
    (WeightedRandomSampler, ([0, 0], 1), ValueError, "weights must have a positive sum"),
    (WeightedRandomSampler, ([], 1), ValueError, "weights must have a positive sum"),
    (WeightedRandomSampler, (["1"], 1), TypeError, "weights must be a one-dimensional sequence of numbers"),
    (
        WeightedRandomSampler,
        ([[1], [1, 2]], 1),
        TypeError,
        r"weights must be one value for each sample, but weights\[0\] is a list",
    ),
    (WeightedRandomSampler, (["a"], 1), TypeError, "weights must be a one-dimensional sequence of numbers"),
    (WeightedRandomSampler, ([1, 2], 0), ValueError, "num_samples must be at least 1; got 0"),
    (WeightedRandomSampler, ([1, 0, 2], 3, False), ValueError, "more than the 2 weights that are not zero"),
    (WeightedRandomSampler, ([1, 2], 1, None), TypeError, "replacement must be True or False; got None"),
    (BatchSampler, (range(5), 0, False), ValueError, "batch_size must be at least 1; got 0"),
    (BatchSampler, (range(5), True, False), TypeError, "batch_size must be a whole number of at least 1; got True"),
    (BatchSampler, (range(5), 2.0, False), TypeError, "batch_size must be a whole number of at least 1; got 2.0"),
    (BatchSampler, (range(5), 2, 1), TypeError, "drop_last must be True or False; got 1"),
    (DistributedSampler, (BatchSampler(range(10), 2), 2, 0), TypeError, r"BatchSampler\(DistributedSampler\(sampler\)"),
    (BatchSampler, (5, 2, False), TypeError, "sampler must be an iterable of indices, got int"),
]


@pytest.mark.parametrize(("make", "arguments", "error", "message"), BAD)
def test_bad_arguments_are_named(
    make: Callable[..., Any], arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make(*arguments)


def test_bad_epochs_are_named() -> None:
    with pytest.raises(ValueError, match="epoch must be at least 0; got -1"):
        RandomSampler(5).set_epoch(-1)
    with pytest.raises(TypeError, match="epoch must be"):
        RandomSampler(5).set_epoch(1.5)  # type: ignore[arg-type]


def test_what_gives_no_indices_is_not_shared_out() -> None:
    class Batches:
        def __len__(self) -> int:
            return 1

        def __iter__(self) -> Iterator[list[int]]:
            return iter([[1, 2]])

    with pytest.raises(OptionTypeError, match="Batches must give indices, to be divided among ranks: 'list' object"):
        list(DistributedSampler(Batches(), 2, 0))


@pytest.mark.parametrize("index", [2.7, "2"])
def test_an_index_that_is_none_is_refused(index: Any) -> None:
    with pytest.raises(TypeError):
        list(DataLoader(ArrayDataset(np.arange(5)), sampler=[index]))
