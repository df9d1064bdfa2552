"""Samplers that make whole batches: what the batches hold, that they follow from seed and epoch, ranks and resuming."""

from __future__ import annotations

import itertools
import json
import pickle
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few, thorough

import feedline
from feedline import (
    BatchOrderSampler,
    BatchSampler,
    BucketBatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    OptionError,
    StateError,
    StratifiedBatchSampler,
    WeightedRandomSampler,
)

LABELS = ["common"] * 40 + ["some"] * 11 + ["rare"] * 2
LENGTHS = np.random.default_rng(0).lognormal(3, 1, 53).astype(int)
MAKERS: dict[str, Callable[[int | None], BatchOrderSampler]] = {
    "proportional": lambda seed: StratifiedBatchSampler(LABELS, 7, seed=seed),
    "at least one": lambda seed: StratifiedBatchSampler(LABELS, 7, share="at_least_one", seed=seed),
    "equal": lambda seed: StratifiedBatchSampler(LABELS, 7, share="equal", seed=seed),
    "full batches": lambda seed: StratifiedBatchSampler(LABELS, 7, drop_last=True, seed=seed),
    "buckets": lambda seed: BucketBatchSampler(LENGTHS, 5, max_padding=0.4, seed=seed),
    "budget": lambda seed: BucketBatchSampler(LENGTHS, max_tokens=int(LENGTHS.max()) * 2, max_padding=0.4, seed=seed),
}
every_maker = pytest.mark.parametrize("name", MAKERS)


def lists(batches: Any) -> list[list[int]]:
    return [batches[number].tolist() for number in range(len(batches))]


def flat(batches: Any) -> list[int]:
    return list(itertools.chain(*batches))


# --- what all of them promise ---


@every_maker
def test_batches_are_a_function_of_seed_and_epoch(name: str) -> None:
    one, other = MAKERS[name](None), MAKERS[name](None)
    list(other)  # having been used must not matter
    epochs = {pair: lists(one.batches(*pair)) for pair in itertools.product((0, 1, 2**64 - 1), (0, 1, 1000))}
    for pair, batches in epochs.items():
        assert lists(other.batches(*pair)) == batches
        assert len(batches) == len(one) == len(other)
    assert len({str(batches) for batches in epochs.values()}) == len(epochs)


@every_maker
def test_any_batch_is_made_without_those_before(name: str) -> None:
    whole = lists(MAKERS[name](None).batches(5, 2))
    for number in reversed(range(len(whole))):
        batch = MAKERS[name](None).batches(5, 2)[number]
        assert batch.dtype == np.int64
        assert batch.tolist() == whole[number]


@every_maker
def test_each_pass_by_hand_is_the_next_epoch(name: str) -> None:
    sampler = MAKERS[name](7)
    passes = [list(sampler) for _ in range(3)]
    assert passes == [lists(sampler.batches(7, epoch)) for epoch in range(3)]
    assert all(type(index) is int for index in flat(passes[0]))
    sampler.set_epoch(1)
    assert list(pickle.loads(pickle.dumps(sampler))) == passes[1]
    assert [list(sampler), list(sampler)] == passes[1:]


@every_maker
def test_repeats_is_true_where_an_index_comes_twice(name: str) -> None:
    sampler = MAKERS[name](7)
    twice = any(max(Counter(flat(sampler)).values()) > 1 for _ in range(3))
    assert sampler.repeats == twice


@every_maker
def test_a_seed_of_its_own_comes_before_the_loaders(name: str) -> None:
    for own, seed in ((3, 3), (None, 8)):
        loader = DataLoader(np.arange(len(LABELS)), batch_sampler=MAKERS[name](own), seed=8)
        assert [batch.tolist() for batch in loader] == lists(MAKERS[name](None).batches(seed, 0))


class Thirds(BatchOrderSampler):
    def __init__(self) -> None:
        pass  # as people do: no super().__init__()

    def batches(self, seed: int, epoch: int) -> Any:
        return [[0, 3, epoch], (1, 4), np.array([2], np.uint8)]


def test_batches_is_all_a_sampler_of_batches_needs() -> None:
    sampler = Thirds()
    assert (len(sampler), list(sampler), next(iter(sampler))) == (3, [[0, 3, 0], [1, 4], [2]], [0, 3, 1])
    loader = DataLoader(np.arange(10), batch_sampler=Thirds())
    assert [batch.tolist() for batch in loader] == [[0, 3, 0], [1, 4], [2]]
    assert next(batch.tolist() for batch in loader) == [0, 3, 1]
    assert len(loader) == 3


def test_a_sampler_of_batches_that_makes_none_says_so() -> None:
    with pytest.raises(NotImplementedError, match="BatchOrderSampler must define batches"):
        BatchOrderSampler().batches(0, 0)
    with pytest.raises(TypeError, match="defines neither batches"):
        len(BatchOrderSampler())
    with pytest.raises(TypeError, match="makes whole batches"):
        Thirds().order(0, 0)


@pytest.mark.parametrize("wrong", [[[0.5]], [[[1, 2]]], [["a"]]])
def test_batches_of_something_else_are_named(wrong: Any) -> None:
    class Wrong(BatchOrderSampler):
        def batches(self, seed: int, epoch: int) -> Any:
            return wrong

    with pytest.raises(TypeError, match="batch 0 is"):
        list(Wrong())


@pytest.mark.parametrize("way", [list, lambda sampler: list(DataLoader(np.arange(9), batch_sampler=sampler))])
def test_an_empty_batch_and_another_number_of_them_are_refused(way: Any) -> None:
    class Own(BatchOrderSampler):
        def __init__(self, batches: Any, length: int) -> None:
            self.given, self.length = batches, length

        def __len__(self) -> int:
            return self.length

        def batches(self, seed: int, epoch: int) -> Any:
            return self.given

    with pytest.raises(OptionError, match="at least one index to each batch, but batch 1 is empty"):
        way(Own([[1], [], [2]], 3))
    with pytest.raises(OptionError, match=r"Own has a length of 2, but batches\(seed, epoch=0\) has 1"):
        way(Own([[1]], 2))
    with pytest.raises(OptionError, match=r"Own has a length of 2, but batches\(seed, epoch=0\) has 1"):
        way(DistributedSampler(Own([[1]], 2), 1, 0))


@pytest.mark.parametrize(
    "make", [lambda: StratifiedBatchSampler([0, 1] * 3, 2), lambda: BucketBatchSampler([5] * 6, 2)]
)
def test_labels_and_lengths_must_be_those_of_the_dataset(make: Callable[[], Any]) -> None:
    """With fewer of them, samples would never come, and nobody would notice."""
    for sampler in (make(), DistributedSampler(make(), 2, 0)):
        for size in (5, 7):
            with pytest.raises(OptionError, match=f"made for 6 samples, but the dataset has {size}"):
                DataLoader(np.arange(size), batch_sampler=sampler)
        assert len(list(DataLoader(np.arange(6), batch_sampler=sampler))) == len(sampler)
    some = feedline.Subset(np.arange(9), [8, 7, 6, 5, 4, 3])
    assert sorted(flat(batch.tolist() for batch in DataLoader(some, batch_sampler=make()))) == [3, 4, 5, 6, 7, 8]

    class Endless:
        def __getitem__(self, index: int) -> int:
            return index

    assert len(list(DataLoader(Endless(), batch_sampler=make()))) == 3  # one that has no length is not asked


def test_a_sampler_of_batches_is_no_sampler_of_indices() -> None:
    for sampler in (Thirds(), DistributedSampler(Thirds(), 2, 0)):
        with pytest.raises(OptionError, match="pass it as batch_sampler"):
            DataLoader(np.arange(10), sampler=sampler, batch_size=2)
        with pytest.raises(OptionError, match="pass it as batch_sampler"):
            BatchSampler(sampler, 2)
    with pytest.raises(TypeError, match="gives single indices"):
        DistributedSampler(range(10), 2, 0).batches(0, 0)


def test_one_with_an_iter_of_its_own_is_iterated() -> None:
    class Own(Thirds):
        def __iter__(self) -> Any:
            return iter([[9], [8, 7]])

    assert [batch.tolist() for batch in DataLoader(np.arange(10), batch_sampler=Own())] == [[9], [8, 7]]


# --- stratified ---

CLASS_SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=6)


def labels_of(sizes: list[int]) -> Any:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(len(sizes)) * 10, sizes))


@settings(max_examples=few(200))
@given(CLASS_SIZES, st.integers(0, 12), st.sampled_from(["proportional", "at_least_one", "equal"]), st.booleans())
def test_every_batch_holds_every_class(sizes: list[int], more: int, share: str, drop: bool) -> None:
    labels, room = labels_of(sizes), len(sizes) + more
    sampler = StratifiedBatchSampler(labels, room, share=share, drop_last=drop, seed=3)
    batches = list(sampler)
    counts = np.array([[(labels[batch] == 10 * at).sum() for at in range(len(sizes))] for batch in batches])
    assert len(batches) == len(sampler)
    assert (counts > 0).all()
    of_batches = {len(batch) for batch in batches}
    if share == "equal":
        assert of_batches <= {room}
        assert len(batches) == (sum(sizes) // room if drop else -(-sum(sizes) // room))
        assert not batches or counts.max() - counts.min() <= 1
    elif drop:
        assert of_batches <= {room}
    else:
        assert max(of_batches) <= room
        assert max(of_batches) - min(of_batches) <= 1
    if share != "at_least_one" and batches:
        assert (counts.max(0) - counts.min(0) <= 1).all()


@settings(max_examples=few(200))
@given(CLASS_SIZES, st.integers(0, 12), st.sampled_from(["proportional", "at_least_one"]), st.booleans())
def test_every_sample_comes_at_least_once(sizes: list[int], more: int, share: str, drop: bool) -> None:
    labels, room = labels_of(sizes), len(sizes) + more
    sampler = StratifiedBatchSampler(labels, room, share=share, drop_last=drop)
    times = np.bincount(flat(lists(sampler.batches(1, 2))), minlength=len(labels))
    without_drop = StratifiedBatchSampler(labels, room, share=share)
    for at, size in enumerate(sizes):
        own = times[labels == 10 * at]
        assert own.max() - own.min() <= 1  # turns: each once before any comes again
        assert own.sum() >= len(sampler)
        assert own.sum() <= max(size, len(sampler))
        if not drop:
            assert own.sum() == max(size, len(sampler))
    assert sampler.repeats == any(size < len(sampler) for size in sizes)
    if drop:
        assert len(labels) - np.count_nonzero(times) < room
        assert len(without_drop) - len(sampler) in (0, 1)
    else:
        # No smaller number of batches would have had room.
        fewer = len(sampler) - 1
        assert fewer * room < sum(max(size, fewer) for size in sizes)


@settings(max_examples=few(100))
@given(CLASS_SIZES, st.integers(0, 12), st.integers(1, 5))
def test_equal_shares_go_on_over_the_epochs(sizes: list[int], more: int, epochs: int) -> None:
    labels = labels_of(sizes)
    sampler = StratifiedBatchSampler(labels, len(sizes) + more, share="equal")
    together = flat(flat(lists(sampler.batches(1, epoch))) for epoch in range(epochs))
    times = np.bincount(together, minlength=len(labels))
    for at, size in enumerate(sizes):
        own = times[labels == 10 * at]
        if own.sum() // epochs < size:  # an epoch takes but a part of it
            assert own.max() - own.min() <= 1
        else:
            assert own.min() >= epochs


@settings(max_examples=few(100), deadline=None)
@given(CLASS_SIZES, st.integers(0, 12), st.integers(0, 99), st.booleans())
def test_equal_shares_hold_no_sample_twice_where_there_are_enough(
    sizes: list[int], more: int, seed: int, drop: bool
) -> None:
    labels = labels_of(sizes)
    size = len(sizes) + more
    sampler = StratifiedBatchSampler(labels, size, share="equal", drop_last=drop, seed=seed)
    enough = [label * 10 for label, count in enumerate(sizes) if count >= 2 * -(-size // len(sizes)) - 1]
    for epoch in range(4):
        for batch in lists(sampler.batches(seed, epoch)):
            own = [index for index in batch if labels[index] in enough]
            assert len(set(own)) == len(own)


def test_a_class_that_goes_on_over_epochs_has_all_its_samples_before_any_comes_again() -> None:
    """What keeps a sample from coming twice in a batch must be the same in the next epoch, which goes on there."""
    sampler = StratifiedBatchSampler([0] * 13 + [1] * 15, 14, share="equal")  # 7 of 15, 14 in an epoch
    for seed in range(15):
        counts = np.zeros(15, int)
        for batch in itertools.chain(*(lists(sampler.batches(seed, epoch)) for epoch in range(20))):
            own = np.array(batch)[np.array(batch) >= 13] - 13
            counts[own] += 1
            assert len(set(own)) == 7
            assert counts.max() - counts.min() <= 1


def test_at_the_seam_of_two_turns_every_sample_is_still_as_likely() -> None:
    """Of 5 samples 3 come in each batch: 2 of the first turn and 1 of the next, which is none of these two."""
    pairs: Counter[Any] = Counter()
    sampler = StratifiedBatchSampler([0] * 5, 3, share="equal")
    for epoch in range(1500):
        first, second = lists(sampler.batches(7, epoch))
        assert set(first) | set(second) == set(range(5))
        pairs[tuple(sorted(second))] += 1
    expected = 1500 / 10
    assert len(pairs) == 10
    assert sum((count - expected) ** 2 / expected for count in pairs.values()) < 27.9  # chi-square, 9 degrees, 0.1 %


def test_every_turn_and_every_class_is_shuffled_by_itself() -> None:
    # Of 40 batches of two common samples and one of each rare class, the rare ones come in four turns of ten.
    sampler = StratifiedBatchSampler(np.repeat([0, 1, 2], [80, 10, 10]), 4)
    order = flat(lists(sampler.batches(1, 0)))
    rare = [[index - first for index in order if first <= index < first + 10] for first in (80, 90)]
    turns = [tuple(one[start : start + 10]) for one in rare for start in range(0, 40, 10)]
    assert all(sorted(turn) == list(range(10)) for turn in turns)
    assert len(set(turns)) == 8


def test_what_goes_on_over_epochs_may_repeat() -> None:
    sampler = StratifiedBatchSampler([0] * 7 + [1] * 8, 2, share="equal", drop_last=True)
    counts = [Counter(flat(lists(sampler.batches(seed, 1)))) for seed in range(20)]
    assert any(max(count.values()) > 1 for count in counts)
    assert sampler.repeats


def test_at_least_one_is_otherwise_a_plain_shuffle() -> None:
    labels = np.repeat([0, 1, 2], [600, 300, 60])

    def counts(share: str) -> Any:
        batches = lists(StratifiedBatchSampler(labels, 32, share=share).batches(7, 0))
        return np.array([np.bincount(labels[batch], minlength=3) for batch in batches])

    by_chance, even = counts("at_least_one"), counts("proportional")
    assert by_chance.shape == even.shape == (30, 3)
    assert by_chance.sum(0).tolist() == even.sum(0).tolist() == [600, 300, 60]
    # Beside the three, 29 of the 870 others: hypergeometric, so their variance is known.
    chance = np.array([570, 270, 30]) / 870
    expected = 29 * chance * (1 - chance) * (870 - 29) / 869
    assert (np.abs(by_chance.var(0) / expected - 1) < 0.6).all()
    assert (even.var(0) < 0.3).all()


def test_classes_are_mixed_inside_a_batch() -> None:
    labels = np.repeat([0, 1], 400)
    for share in ("proportional", "at_least_one", "equal"):
        batches = lists(StratifiedBatchSampler(labels, 8, share=share).batches(7, 0))
        ones = np.array([labels[batch] for batch in batches]).sum(0)  # at each of the eight places, of 100
        assert (np.abs(ones - 50) < 25).all()
        assert len({tuple(labels[batch]) for batch in batches}) > 20


def test_every_order_of_a_class_comes() -> None:
    sampler = StratifiedBatchSampler([0, 0, 0, 1], 2, share="proportional")
    seen = Counter(
        tuple(index for batch in lists(sampler.batches(7, epoch)) for index in batch if index < 3)
        for epoch in range(600)
    )
    assert len(seen) == 6
    assert sum((count - 100) ** 2 / 100 for count in seen.values()) < 25  # chi-square, 5 degrees


def test_more_classes_than_places_is_an_error() -> None:
    with pytest.raises(OptionError, match="batch_size=2 is too small for a sample of each of the 3 classes: raise it"):
        StratifiedBatchSampler(LABELS, 2)
    assert {len(batch) for batch in StratifiedBatchSampler(LABELS, 3, share="equal")} == {3}


def test_no_samples_no_batches() -> None:
    assert list(StratifiedBatchSampler([], 4)) == []
    assert list(StratifiedBatchSampler([1, 1], 4, drop_last=True)) == []
    assert list(BucketBatchSampler([], 4)) == []
    assert list(BucketBatchSampler([1, 1], 4, drop_last=True)) == []


# --- buckets ---


@settings(max_examples=few(200))
@given(
    st.lists(st.integers(0, 60), max_size=150),
    st.integers(1, 12) | st.none(),
    st.integers(60, 400) | st.none(),
    st.sampled_from([0, 0.1, 0.5, 0.99]),
    st.booleans(),
)
def test_every_sample_once_and_no_batch_above_the_budget(
    lengths: list[int], size: int | None, budget: int | None, padding: float, drop: bool
) -> None:
    if size is None and budget is None:
        return
    sampler = BucketBatchSampler(lengths, size, budget, max_padding=padding, drop_last=drop, seed=3)
    for batches in (list(sampler), list(sampler)):
        assert len(batches) == len(sampler)
        assert all(0 < len(batch) <= (size or len(lengths)) for batch in batches)
        if budget is not None:
            assert all(max(lengths[index] for index in batch) * len(batch) <= budget for batch in batches)
        times = Counter(flat(batches))
        assert not times or max(times.values()) == 1
        if not drop:
            assert len(times) == len(lengths)
        elif size is not None and budget is None:
            assert {len(batch) for batch in batches} <= {size}
            assert len(lengths) - len(times) < size
    assert not sampler.repeats


@settings(max_examples=few(60))
@given(st.lists(st.integers(1, 60), min_size=9, max_size=60), st.integers(1, 8))
def test_with_drop_last_every_sample_comes_in_some_epoch(lengths: list[int], size: int) -> None:
    sampler = BucketBatchSampler(lengths, size, drop_last=True)
    seen: set[int] = set()
    for epoch in range(400):
        seen.update(flat(lists(sampler.batches(1, epoch))))
        if len(seen) == len(lengths):
            return
    raise AssertionError(f"never: {set(range(len(lengths))) - seen}")


@pytest.mark.parametrize("sigma", [0.5, 1.0])
@pytest.mark.parametrize("limit", [{"batch_size": 64}, {"max_tokens": 64 * 300, "too_long": "drop"}])
def test_padding_is_a_fifth_of_plain_shuffling_at_most(sigma: float, limit: dict[str, Any]) -> None:
    rng = np.random.default_rng(0)
    lengths = rng.lognormal(5, sigma, 20_000).astype(int) + 1
    order = rng.permutation(len(lengths))
    plain = padding(lengths, [order[first : first + 64] for first in range(0, len(order), 64)])
    ours = padding(lengths, list(BucketBatchSampler(lengths, **limit, seed=1)))
    assert ours <= plain / 5


def padding(lengths: Any, batches: list[Any]) -> float:
    padded = sum(len(batch) * int(lengths[batch].max()) for batch in batches)
    return 1 - sum(int(lengths[batch].sum()) for batch in batches) / padded


def test_a_batch_keeps_to_max_padding_where_there_are_enough_of_its_length() -> None:
    lengths = np.repeat(np.arange(10, 100), 50)
    for most in (0.0, 0.05, 0.3):
        batches = list(BucketBatchSampler(lengths, 10, max_padding=most, seed=1))
        assert max(padding(lengths, [batch]) for batch in batches) <= most
        assert padding(lengths, batches) >= most / 4  # and makes use of it


def test_batches_and_their_members_change_with_the_epoch() -> None:
    lengths = np.random.default_rng(0).integers(500, 1000, 4000)
    sampler = BucketBatchSampler(lengths, 16, seed=1)
    first, second = list(sampler), list(sampler)
    again = {frozenset(batch) for batch in first} & {frozenset(batch) for batch in second}
    assert not again
    longest = [lengths[batch].max() for batch in first]
    assert abs(np.corrcoef(longest, range(len(longest)))[0, 1]) < 0.2  # no longer in the order of lengths


def test_a_sample_longer_than_the_budget() -> None:
    lengths = [3, 50, 2, 70, 4]
    with pytest.raises(OptionError, match=r"lengths\[1\] is 50, more than max_tokens=20 \(2 such samples\): raise"):
        BucketBatchSampler(lengths, max_tokens=20)
    assert sorted(flat(BucketBatchSampler(lengths, max_tokens=20, too_long="drop"))) == [0, 2, 4]
    allowed = list(BucketBatchSampler(lengths, max_tokens=20, too_long="allow"))
    assert [1] in allowed
    assert [3] in allowed
    assert sorted(flat(allowed)) == [0, 1, 2, 3, 4]


@settings(max_examples=few(100))
@given(st.lists(st.integers(1, 300), max_size=60), st.integers(1, 9))
def test_the_batch_that_is_not_full_is_where_it_pads_least(lengths: list[int], size: int) -> None:
    batches = list(BucketBatchSampler(lengths, size, max_padding=0, seed=3))
    assert sorted(flat(batches)) == list(range(len(lengths)))
    assert sorted(map(len, batches))[1:] == [size] * (-(-len(lengths) // size) - 1)
    cells = sum(len(batch) * max(lengths[index] for index in batch) for batch in batches)
    ends = sorted(lengths)[::-1]
    from_the_longest = [ends[start : start + size] for start in range(0, len(ends), size)]
    from_the_shortest = [ends[::-1][start : start + size] for start in range(0, len(ends), size)]
    ways = (sum(len(batch) * max(batch) for batch in way) for way in (from_the_longest, from_the_shortest))
    assert cells <= min(ways)


def test_little_data_pads_as_little_as_when_sorted() -> None:
    lengths = np.random.default_rng(0).lognormal(5, 1, 1000).astype(int) + 1
    ascending = np.sort(lengths)
    cut = [ascending[start : start + 64] for start in range(0, 1000, 64)]
    bucketed = [lengths[batch] for batch in BucketBatchSampler(lengths, 64, seed=1)]
    cells, least = (sum(len(batch) * batch.max() for batch in batches) for batches in (bucketed, cut))
    assert cells < 1.05 * least


@settings(max_examples=few(60))
@given(st.lists(st.integers(0, 200), max_size=40), st.integers(1, 50), st.sampled_from(["drop", "allow"]))
def test_a_budget_counts_what_is_padded_to_a_multiple(lengths: list[int], multiple: int, too_long: str) -> None:
    budget = 256
    sampler = BucketBatchSampler(lengths, max_tokens=budget, multiple=multiple, too_long=too_long, seed=1)
    padded = [-(-length // multiple) * multiple for length in lengths]
    batches = list(sampler)
    for batch in batches:
        cells = max(padded[index] for index in batch) * len(batch)
        assert cells <= budget or (too_long == "allow" and len(batch) == 1)
    kept = [i for i, length in enumerate(padded) if length <= budget or too_long == "allow"]
    assert sorted(flat(batches)) == kept


def test_only_what_is_too_long_is_a_batch_by_itself() -> None:
    sampler = BucketBatchSampler([20, 19, 9, 8, 8, 7], max_tokens=18, max_padding=0.9, too_long="allow", seed=1)
    assert sorted(len(batch) for batch in sampler) == [1, 1, 2, 2]


@pytest.mark.parametrize("limit", [{"batch_size": 10**30}, {"max_tokens": 1e30}, {"max_tokens": 10**30}], ids=str)
def test_a_limit_beyond_all_numbers_is_none(limit: dict[str, Any]) -> None:
    assert sorted(flat(BucketBatchSampler([3, 1, 2], max_padding=0.9, **limit))) == [0, 1, 2]
    assert list(BucketBatchSampler([3, 1, 2], **limit, drop_last=True)) == []
    assert len(StratifiedBatchSampler([0, 1, 0], 10**30)) == 1
    assert sorted(flat(StratifiedBatchSampler([0, 1, 0], 10**30))) == [0, 1, 2]


def test_lengths_of_few_bits_and_of_pythons_own_numbers() -> None:
    short = BucketBatchSampler(np.full(4, 60000, np.float16), max_tokens=120000, seed=1)  # a warning would be an error
    assert len(short) == 2
    nullable = BucketBatchSampler(np.array([5, 1, 5, 1], object), 2, seed=1)
    assert sorted(map(sorted, nullable)) == [[0, 2], [1, 3]]


def test_lengths_may_be_seconds() -> None:
    seconds = np.array([0.5, 12.0, 3.25, 11.5, 0.0])
    batches = list(BucketBatchSampler(seconds, max_tokens=25.0, seed=1))
    assert all(seconds[batch].max() * len(batch) <= 25 for batch in batches)
    assert sorted(flat(batches)) == [0, 1, 2, 3, 4]


BAD: list[tuple[Any, str]] = [
    (lambda: BucketBatchSampler([1, 2]), "batch_size or max_tokens is needed"),
    (lambda: BucketBatchSampler([1, 2], 0), "batch_size must be at least 1; got 0"),
    (lambda: BucketBatchSampler([1, 2], max_tokens=0), "max_tokens must be a number above 0; got 0"),
    (lambda: BucketBatchSampler([1, 2], max_tokens="9"), "max_tokens must be a number above 0; got '9'"),
    (lambda: BucketBatchSampler([1, 2], 2, max_padding=1), "max_padding must be a number of at least 0 and below 1"),
    (lambda: BucketBatchSampler([1, 2], 2, max_padding=True), "max_padding must be"),
    (lambda: BucketBatchSampler([1, -2], 2), r"lengths\[1\] is -2"),
    (lambda: BucketBatchSampler([1, float("nan")], 2), r"lengths\[1\] is nan"),
    (lambda: BucketBatchSampler([[1]], 2), "one number for each sample, got 2-d of int64; lengths_of"),
    (lambda: BucketBatchSampler(["a", "b"], 2), "one number for each sample"),
    (lambda: BucketBatchSampler([[1, 2], [3]], 2), r"one value for each sample, but lengths\[0\] is a list"),
    (lambda: BucketBatchSampler(np.array([1, 2**63 + 5], np.uint64), 2), r"lengths\[1\] is 9223372036854775813"),
    (
        lambda: BucketBatchSampler([1, 10**30], 2),
        "lengths must be one number for each sample, got 1-d of object",
    ),
    (lambda: BucketBatchSampler(np.ma.array([1, 2], mask=[0, 1]), 2), "one number for each sample, got 1-d of object"),
    (lambda: BucketBatchSampler([1], 2, multiple=0), "multiple must be at least 1"),
    (
        lambda: BucketBatchSampler([9], max_tokens=10, multiple=8),
        r"lengths\[0\] is 9, rounded up to a multiple of 8, more",
    ),
    (lambda: BucketBatchSampler([1], 2, too_long="cut"), "too_long must be one of"),
    (lambda: BucketBatchSampler([1], 2, drop_last=1), "drop_last must be True or False"),
    (lambda: StratifiedBatchSampler([1], 2, share="fair"), "share must be one of 'proportional', 'at_least_one'"),
    (lambda: StratifiedBatchSampler([1], 0), "batch_size must be at least 1"),
    (lambda: StratifiedBatchSampler([1], 1, drop_last=None), "drop_last must be True or False"),
]


@pytest.mark.parametrize(("make", "words"), BAD)
def test_bad_arguments_are_named(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        make()


# --- ranks ---


@every_maker
@pytest.mark.parametrize("ranks", [1, 2, 3, 5])
def test_ranks_share_out_whole_batches(name: str, ranks: int) -> None:
    whole = lists(MAKERS[name](None).batches(9, 4))

    def shares(uneven: str) -> list[list[list[int]]]:
        samplers = [DistributedSampler(MAKERS[name](None), ranks, rank, seed=9, uneven=uneven) for rank in range(ranks)]
        for sampler in samplers:
            sampler.set_epoch(4)
        found = [list(sampler) for sampler in samplers]
        assert [len(sampler) for sampler in samplers] == [len(share) for share in found]
        return found

    exact = shares("exact")
    assert exact == [whole[rank::ranks] for rank in range(ranks)]
    even = len(whole) // ranks
    assert shares("drop") == [share[:even] for share in exact]
    padded = shares("pad")
    assert {len(share) for share in padded} == {-(-len(whole) // ranks)}
    together = [batch for step in zip(*padded, strict=True) for batch in step]
    assert together[: len(whole)] == whole
    assert together[len(whole) :] == whole[: len(together) - len(whole)]


class Augmented(Dataset[Any]):
    def __len__(self) -> int:
        return len(LABELS)

    def __getitem__(self, index: int) -> Any:
        return index, feedline.rng().random()


def drawn(loader: DataLoader, stop: int | None = None) -> list[Any]:
    return [(indices.tolist(), draws.tolist()) for indices, draws in itertools.islice(loader, stop)]


def saved(loader: DataLoader) -> Any:
    text = json.dumps(loader.state_dict())
    assert len(text) < 1024
    return json.loads(text)


@every_maker
def test_an_augmentation_is_the_same_for_any_number_of_ranks(name: str) -> None:
    whole = drawn(DataLoader(Augmented(), batch_sampler=MAKERS[name](None), seed=0))
    for ranks in (2, 4):
        shares = [
            drawn(DataLoader(Augmented(), batch_sampler=DistributedSampler(MAKERS[name](None), ranks, rank), seed=0))
            for rank in range(ranks)
        ]
        steps = [batch for step in zip(*shares, strict=True) for batch in step]
        assert steps[: len(whole)] == whole
        draws = flat(batch[1] for batch in steps)
        assert len(set(draws)) == len(draws)  # also where an index comes again


# --- resuming ---


@every_maker
@pytest.mark.parametrize("kind", [INLINE, THREADS, pytest.param({**THREADS, "num_workers": 3}, marks=thorough)])
def test_at_every_place_another_loader_goes_on(name: str, kind: dict[str, Any]) -> None:
    def loader(**options: Any) -> DataLoader:
        return DataLoader(Augmented(), batch_sampler=MAKERS[name](None), **options)

    whole = loader(seed=5)
    epochs = [drawn(whole), drawn(whole)]
    for stop in range(len(epochs[0]) + 1):
        with loader(seed=5, **kind) as before:
            first = drawn(before, stop)
            state = saved(before)
        again = loader()
        again.load_state_dict(state)
        rest = drawn(again)
        assert first + rest == epochs[0]
        assert drawn(again) == epochs[1]


@pytest.mark.parametrize("name", ["proportional", "budget"])
def test_worker_processes_go_on_too(name: str) -> None:
    whole = drawn(DataLoader(Augmented(), batch_sampler=MAKERS[name](None), seed=5))
    with DataLoader(Augmented(), batch_sampler=MAKERS[name](None), seed=5, **FORK) as loader:
        first = drawn(loader, 3)
        state = saved(loader)
    with DataLoader(Augmented(), batch_sampler=MAKERS[name](None), **FORK) as again:
        again.load_state_dict(state)
        assert first + drawn(again) == whole


@settings(max_examples=few(40))
@given(st.sampled_from([*MAKERS, "weighted"]), st.sampled_from(["pad", "drop", "exact"]), st.data())
def test_other_numbers_of_ranks_go_on_with_the_same_global_batches(name: str, uneven: str, data: Any) -> None:
    def share(ranks: int, rank: int) -> dict[str, Any]:
        if name == "weighted":  # batches of 12 over all ranks
            inner: Any = WeightedRandomSampler(np.arange(1, len(LABELS) + 1), 240)
            return {"sampler": DistributedSampler(inner, ranks, rank, uneven=uneven), "batch_size": 12 // ranks}
        return {"batch_sampler": DistributedSampler(MAKERS[name](None), ranks, rank, uneven=uneven)}

    def loader(ranks: int, rank: int, state: Any) -> DataLoader:
        found = DataLoader(Augmented(), **share(ranks, rank), seed=0)
        if state is not None:
            found.load_state_dict(state)
        return found

    expected = [indices for indices, _ in drawn(loader(1, 0, None))]
    got: list[list[int]] = []
    state: Any = None
    while True:
        fitting = [ranks for ranks in (1, 2, 3, 4) if name == "weighted" or len(got) % ranks == 0]
        ranks = data.draw(st.sampled_from(fitting))
        left = (len(expected) - len(got)) // (1 if name == "weighted" else ranks)
        if not left:
            break
        steps = data.draw(st.integers(1, left))
        loaders = [loader(ranks, rank, state) for rank in range(ranks)]
        shares = [[indices for indices, _ in drawn(each, steps)] for each in loaders]
        assert {len(share) for share in shares} == {steps}
        state = saved(loaders[data.draw(st.integers(0, ranks - 1))])
        for step in zip(*shares, strict=True):
            got += [np.array(step).T.ravel().tolist()] if name == "weighted" else list(step)
    assert got == expected[: len(got)]
    assert len(expected) - len(got) < 4


def test_ranks_that_cannot_share_a_place_are_told() -> None:
    def loader(ranks: int) -> DataLoader:
        sampler = DistributedSampler(MAKERS["buckets"](None), ranks, 0)
        return DataLoader(Augmented(), batch_sampler=sampler, seed=0)

    one, two = loader(1), loader(2)
    drawn(one, 3)
    two.load_state_dict(saved(one))
    with pytest.raises(StateError, match=r"batch 3 of its epoch, and 2 ranks cannot divide .* that divides it"):
        iter(two)


def test_other_batches_are_refused_by_what_differs() -> None:
    def loader(**settings: Any) -> DataLoader:
        options: dict[str, Any] = {"batch_size": 7, **settings}
        return DataLoader(Augmented(), batch_sampler=StratifiedBatchSampler(LABELS, **options), seed=0)

    state = saved(loader())
    with pytest.raises(StateError, match=r"another sampler was used .*share='proportional'.* and now .*share='equal'"):
        loader(share="equal").load_state_dict(state)
    with pytest.raises(StateError, match="and now"):
        loader(batch_size=8).load_state_dict(state)


def test_endless_loading_and_out_of_order() -> None:
    loader = DataLoader(Augmented(), batch_sampler=MAKERS["equal"](None), seed=0, in_order=False, **THREADS)
    with loader:
        assert sorted(drawn(loader)) == sorted(drawn(DataLoader(Augmented(), batch_sampler=MAKERS["equal"](0), seed=0)))
        assert len(drawn(loader.forever(20))) == 20  # type: ignore[arg-type]
