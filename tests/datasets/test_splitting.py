"""Splits: every sample in one part, sizes as promised, and the same parts wherever and whenever they are made."""

from __future__ import annotations

import math
import pickle
import warnings
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kinds import few
from warm_host import host

import feedline
from feedline import ArrayDataset, DataLoader, OptionError, OptionTypeError, Subset, split
from feedline.datasets import IntArray, apportion, reads_batches, split_indices
from feedline.datasets.apportioning import fractions_of

pytestmark = pytest.mark.filterwarnings("ignore:part .* is empty")

THREE = {"train": 0.8, "val": 0.1, "test": 0.1}
TENTHS = {str(part): 0.1 for part in range(10)}
WEIGHTS = st.lists(st.integers(0, 30), min_size=1, max_size=6).filter(any)
SEEDS = st.integers(0, 2**64 - 1)


def fractions(weights: list[int]) -> dict[str, Any]:
    return {f"part {number}": Fraction(weight, sum(weights)) for number, weight in enumerate(weights)}


def number_of_part(parts: dict[str, IntArray], size: int) -> IntArray:
    """Which part each sample is in; every one must be in exactly one, and each part in order."""
    found = np.full(size, -1)
    for number, part in enumerate(parts.values()):
        assert part.dtype == np.int64
        assert (np.diff(part) > 0).all()
        assert (found[part] == -1).all()
        found[part] = number
    assert (found >= 0).all()
    return found


# --- shares ---


@given(total=st.integers(0, 10**12), weights=st.lists(st.integers(0, 10**9), min_size=1, max_size=9).filter(any))
def test_shares_are_quotas_rounded_down_or_up_and_nothing_is_lost(total: int, weights: list[int]) -> None:
    shares = apportion(total, weights)
    assert sum(shares) == total
    for share, weight in zip(shares, weights, strict=True):
        quota = Fraction(total * weight, sum(weights))
        assert share in (math.floor(quota), math.ceil(quota))


def test_what_is_left_goes_to_the_largest_remainders() -> None:
    assert apportion(10, [46, 33, 21]) == [5, 3, 2]
    assert apportion(101, [1, 2, 1]) == [25, 51, 25]
    assert apportion(1, [1, 1]) == [1, 0]  # of equal ones to the first


# --- by fraction ---


@settings(max_examples=few(100))
@given(size=st.integers(0, 300), weights=WEIGHTS, seed=SEEDS)
def test_by_fraction_every_sample_is_in_one_part_of_the_right_size(size: int, weights: list[int], seed: int) -> None:
    parts = split_indices(size, fractions(weights), seed=seed)
    number_of_part(parts, size)
    assert [len(part) for part in parts.values()] == apportion(size, weights)


def test_a_fraction_means_what_is_written() -> None:
    # 0.07 * 100 is 7.000000000000001 and 0.29 * 100 is 28.999999999999996 for a computer
    sizes = {name: len(part) for name, part in split(range(100), {"a": 0.07, "b": 0.29, "c": 0.64}).items()}
    assert sizes == {"a": 7, "b": 29, "c": 64}
    assert [len(part) for part in split(range(9), {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}).values()] == [3, 3, 3]
    # One and a half, three and a half: a tie, which goes to the first, though the computer's 0.3 is less than 0.3.
    assert [len(part) for part in split(range(5), {"a": 0.3, "b": 0.7}).values()] == [2, 3]


def test_by_fraction_each_sample_is_as_likely_as_any_other_in_the_test_part() -> None:
    counts = np.zeros(50)
    for seed in range(2000):
        counts[split_indices(50, {"train": 0.8, "test": 0.2}, seed=seed)["test"]] += 1
    # 2000 draws of 10 out of 50 without replacement: mean 400, variance 320; chi-square with 49 degrees: mean 49
    assert ((counts - 400) ** 2 / 320).sum() * 49 / 50 < 95


@pytest.mark.parametrize("way", ["fraction", "labels", "groups", "keys", "texts as keys"])
def test_the_same_seed_gives_the_same_parts_and_another_seed_others(way: str) -> None:
    values = {} if way == "fraction" else {way: np.arange(300) // 3}
    if way == "texts as keys":
        values = {"keys": np.arange(300).astype(str)}
    made = [split_indices(300, THREE, seed=seed, **values) for seed in (1, 1, 2)]  # type: ignore[arg-type]
    numbers = [number_of_part(parts, 300).tolist() for parts in made]
    assert numbers[0] == numbers[1] != numbers[2]


def test_parts_made_once_are_made_for_ever() -> None:
    """NumPy may change its generators in a new version; then this fails, and users must be told."""
    labels, groups = np.arange(20) % 3, np.arange(20) // 3
    assert split_indices(20, THREE, seed=7)["test"].tolist() == [9, 11]
    assert split_indices(20, THREE, labels=labels, seed=7)["test"].tolist() == [11, 19]
    assert split_indices(20, THREE, groups=groups, seed=7)["test"].tolist() == [18, 19]


# --- by label ---


@settings(max_examples=few(150))
@example(sizes=[7, 2], weights=[2, 4, 2], seed=0)  # a whole quota is not rounded up, whatever is owed
@example(sizes=[42, 55, 50, 35, 57], weights=[7, 6, 2, 7], seed=0)  # nor is one that is whole but for a float's error
@given(
    sizes=st.lists(st.integers(1, 40), min_size=0, max_size=40),
    weights=WEIGHTS,
    seed=SEEDS,
)
def test_by_label_each_part_has_each_label_to_within_one(sizes: list[int], weights: list[int], seed: int) -> None:
    labels = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)) * 7 - 50, sizes))
    number = number_of_part(split_indices(len(labels), fractions(weights), labels=labels, seed=seed), len(labels))
    for part, weight in enumerate(weights):
        quotas = [Fraction(size * weight, sum(weights)) for size in sizes]
        for label, quota in enumerate(quotas):
            count = int(((number == part) & (labels == label * 7 - 50)).sum())
            assert count in (math.floor(quota), math.ceil(quota))
        assert abs((number == part).sum() - sum(quotas)) < 2  # not one for each label


@settings(max_examples=few(60))
@given(
    sizes=st.dictionaries(st.integers(1, 9), st.integers(1, 500), max_size=4),
    weights=WEIGHTS,
)
def test_many_labels_of_few_sizes_are_each_in_proportion_and_so_is_the_whole(
    sizes: dict[int, int], weights: list[int]
) -> None:
    """They are shared out together, size by size."""
    labels = np.repeat(np.arange(sum(sizes.values())), np.repeat(list(sizes), list(sizes.values())).astype(int))
    number = number_of_part(split_indices(len(labels), fractions(weights), labels=labels), len(labels))
    of_label = np.bincount(labels)
    for part, weight in enumerate(weights):
        quotas = of_label * (weight / sum(weights))
        counts = np.bincount(labels[number == part], minlength=len(of_label))
        assert (np.abs(counts - quotas) < 1).all()
        assert abs(counts.sum() - quotas.sum()) < 2


def test_many_small_classes_do_not_all_round_alike() -> None:
    parts = split_indices(3000, THREE, labels=np.repeat(np.arange(1000), 3))
    assert [len(part) for part in parts.values()] == [2400, 300, 300]


def test_within_a_label_samples_are_drawn_at_random() -> None:
    counts = np.zeros(40)
    for seed in range(1000):
        counts[split_indices(40, {"train": 0.75, "test": 0.25}, labels=np.arange(40) % 2, seed=seed)["test"]] += 1
    # 1000 draws of 5 out of 20, twice: mean 250, variance 187.5; about 38 degrees
    assert ((counts - 250) ** 2 / 187.5).sum() * 19 / 20 < 75


LABELS: dict[str, Any] = {
    "texts": [*"aabbbbaaba"],
    "array of texts": np.array([*"aabbbbaaba"]),
    "bytes": [b"a", b"a", b"b", b"b", b"b", b"b", b"a", b"a", b"b", b"a"],
    "flags": [True, True, False, False, False, False, True, True, False, True],
    "tuples": [(1, "x")] * 2 + [(2,)] * 4 + [(1, "x")] * 2 + [(2,), (1, "x")],
    "floats": [0.5, 0.5, math.nan, math.nan, math.nan, math.nan, 0.5, 0.5, math.nan, 0.5],
    "int8": np.array([127, 127, -128, -128, -128, -128, 127, 127, -128, 127], np.int8),
    "uint64": np.array([2**64 - 1] * 2 + [2**64 - 2] * 4 + [2**64 - 1] * 2 + [2**64 - 2, 2**64 - 1], np.uint64),
    "far apart": [10**12, 10**12, 3, 3, 3, 3, 10**12, 10**12, 3, 10**12],
    "objects": np.array(["a", "a", None, None, None, None, "a", "a", None, "a"], object),
    "huge": [2**70, 2**70, 2**71, 2**71, 2**71, 2**71, 2**70, 2**70, 2**71, 2**70],
}


@pytest.mark.parametrize("kind", LABELS)
def test_labels_of_any_kind_are_told_apart(kind: str) -> None:
    halves = split_indices(10, {"a": 0.6, "b": 0.4}, labels=LABELS[kind])
    for part, each in (("a", 3), ("b", 2)):
        assert Counter("aabbbbaaba"[index] for index in halves[part]) == {"a": each, "b": each}
    together = split_indices(10, {"a": 0.5, "b": 0.5}, groups=LABELS[kind])
    assert {"".join("aabbbbaaba"[index] for index in part) for part in together.values()} == {"aaaaa", "bbbbb"}


def test_small_numbers_that_lie_far_apart_for_their_type_are_told_apart() -> None:
    labels = np.tile(np.array([-128, 127, 0, 1], np.int8), 50)
    assert Counter(labels[split_indices(200, {"a": 0.5, "b": 0.5}, labels=labels)["a"]].tolist()) == dict.fromkeys(
        [-128, 127, 0, 1], 25
    )


# --- by group ---


@settings(max_examples=few(150))
@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=40), weights=WEIGHTS, seed=SEEDS)
def test_no_group_is_in_two_parts_and_sizes_are_near(sizes: list[int], weights: list[int], seed: int) -> None:
    groups = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    number = number_of_part(split_indices(len(groups), fractions(weights), groups=groups, seed=seed), len(groups))
    assert all(len(set(number[groups == group])) == 1 for group in range(len(sizes)))
    for part, target in enumerate(apportion(len(groups), weights)):
        assert abs((number == part).sum() - target) <= max(sizes)


@settings(max_examples=few(60))
@given(large=st.lists(st.integers(2, 12), max_size=8), weights=st.lists(st.integers(1, 9), min_size=2, max_size=4))
def test_small_groups_fill_what_is_left_exactly(large: list[int], weights: list[int]) -> None:
    sizes = [*large, *[1] * (20 * len(weights))]
    groups = np.repeat(np.arange(len(sizes)), sizes)
    if max(large, default=0) <= min(apportion(len(groups), weights)):
        parts = split_indices(len(groups), fractions(weights), groups=groups)
        assert [len(part) for part in parts.values()] == apportion(len(groups), weights)


def test_large_and_small_groups_come_to_every_part_alike() -> None:
    sizes = np.array([40] * 10 + [4] * 100)
    groups = np.repeat(np.arange(110), sizes)
    seen = Counter(
        groups[index] < 10
        for seed in range(200)
        for index in split_indices(len(groups), {"train": 0.8, "test": 0.2}, groups=groups, seed=seed)["test"]
    )
    assert seen == {True: 200 * 80, False: 200 * 80}  # of 800 samples 160: 2 of 10 groups of 40, and 20 of 100 of 4
    ever = {
        int(group)
        for seed in range(60)
        for group in groups[split_indices(len(groups), {"train": 0.8, "test": 0.2}, groups=groups, seed=seed)["test"]]
    }
    assert ever == set(range(110))


def test_groups_of_one_size_are_shared_out_evenly() -> None:
    groups = np.repeat(np.arange(85), [10] * 5 + [1] * 80)
    for seed in range(30):
        parts = split_indices(130, fractions([1, 1, 1]), groups=groups, seed=seed).values()
        assert sorted(len({group for group in groups[part].tolist() if group < 5}) for part in parts) == [1, 2, 2]


def test_one_large_group_may_come_to_the_smaller_part_if_it_fits() -> None:
    groups = np.repeat(np.arange(71), [30] + [1] * 70)
    tests = [set(groups[split_indices(100, {"a": 0.6, "b": 0.4}, groups=groups, seed=s)["b"]]) for s in range(100)]
    assert 20 < sum(0 in test for test in tests) < 60  # 40 on average


# --- by key ---


KEYS: dict[str, Any] = {
    "integers": np.arange(40_000),
    "every tenth": np.arange(0, 400_000, 10),
    "texts": [f"user-{number}/image.jpg" for number in range(40_000)],
    "digits": [f"{number:08d}" for number in range(40_000)],
    "bytes": [number.to_bytes(8, "little") for number in range(40_000)],
    "array of texts": np.array([f"{number:x}" for number in range(40_000)]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("seed", [0, 7])
def test_by_key_sizes_are_near_the_fractions_and_keys_spread_evenly(kind: str, seed: int) -> None:
    tenths = split_indices(40_000, {str(part): 0.1 for part in range(10)}, keys=KEYS[kind], seed=seed)
    number = number_of_part(tenths, 40_000)
    sizes = np.bincount(number, minlength=10)
    assert ((sizes - 4000) ** 2 / 4000).sum() < 28  # chi-square, 9 degrees: mean 9, and 28 in one of a thousand
    pairs = np.bincount(number[1:] * 10 + number[:-1], minlength=100)  # neighbours have nothing to do with each other
    assert ((pairs - 400) ** 2 / 400).sum() < 150  # 99 degrees


@settings(max_examples=few(60))
@given(
    keys=st.lists(st.one_of(st.text(), st.binary()), min_size=1, max_size=60)
    | st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=60),
    more=st.integers(0, 60),
    seed=SEEDS,
)
def test_new_samples_move_no_old_ones(keys: list[Any], more: int, seed: int) -> None:
    new = [keys[0] * 2 + type(keys[0])(number) for number in range(more)] if isinstance(keys[0], bytes) else []
    alone = [number_of_part(split_indices(1, THREE, keys=[key], seed=seed), 1)[0] for key in keys]
    mixed = new + keys[::-1]
    together = number_of_part(split_indices(len(mixed), THREE, keys=mixed, seed=seed), len(mixed))
    assert together[len(new) :].tolist() == alone[::-1]


@settings(max_examples=few(60))
@given(before=st.integers(1, 98), growth=st.integers(0, 98), seed=SEEDS)
def test_a_part_that_grows_takes_from_the_next_and_loses_nothing(before: int, growth: int, seed: int) -> None:
    after = min(99, before + growth)
    keys = np.arange(500)
    old, new = (
        number_of_part(
            split_indices(500, {"train": train / 100, "test": (100 - train) / 100}, keys=keys, seed=seed), 500
        )
        for train in (before, after)
    )
    assert (new[old == 0] == 0).all()


def test_train_grows_by_taking_from_validation_and_test_stays() -> None:
    keys = np.arange(10_000)
    old = number_of_part(split_indices(10_000, THREE, keys=keys), 10_000)
    new = number_of_part(split_indices(10_000, {"train": 0.85, "val": 0.05, "test": 0.1}, keys=keys), 10_000)
    assert {(int(a), int(b)) for a, b in zip(old, new, strict=True)} == {(0, 0), (1, 0), (1, 1), (2, 2)}


def test_a_key_has_its_part_on_every_machine_for_ever() -> None:
    """These must never change: people rely on an old test set staying one."""
    texts = ["", "a", "image.jpg", "größe", "\udcff", "a" * 1000]
    assert number_of_part(split_indices(6, TENTHS, keys=texts), 6).tolist() == [5, 4, 8, 6, 1, 7]
    integers = [0, 1, 2, -1, 2**63 - 1, 12345678901]
    assert number_of_part(split_indices(6, TENTHS, keys=integers, seed=3), 6).tolist() == [9, 0, 6, 1, 7, 6]


def test_a_key_has_its_part_in_another_process() -> None:
    script = (
        "from feedline.datasets import split_indices;"
        "print(split_indices(100, {'a': .5, 'b': .5}, keys=[f'k{i}' for i in range(100)])['b'].tolist())"
    )
    here = split_indices(100, {"a": 0.5, "b": 0.5}, keys=[f"k{i}" for i in range(100)])["b"].tolist()
    said = host("feedline").run(["-c", script], check=True).stdout
    assert said.strip() == str(here)


def test_whole_numbers_are_the_same_keys_whatever_holds_them() -> None:
    numbers = list(range(-50, 50))
    expected = split_indices(100, THREE, keys=numbers)["test"].tolist()
    assert 0 < len(expected) < 100
    for keys in (
        np.array(numbers),
        np.array(numbers, object),
        [np.int16(number) for number in numbers],
    ):
        assert split_indices(100, THREE, keys=keys)["test"].tolist() == expected
    large = [*range(2**63, 2**63 + 50), *range(-50, 0)]  # as floats, half of them would be one number
    found = split_indices(100, THREE, keys=large)["test"].tolist()
    assert [place for place in found if place < 50] == split_indices(50, THREE, keys=np.array(large[:50], np.uint64))[
        "test"
    ].tolist()
    assert {place - 50 for place in found if place >= 50} == {place for place in expected if place < 50}


def test_fractions_of_32_bits_mean_what_is_written() -> None:
    fine, short = ({"a": kind(0.8), "b": kind(0.2)} for kind in (float, np.float32))
    assert split_indices(10, short)["b"].tolist() == split_indices(10, fine)["b"].tolist()
    assert fractions_of("fractions", short) == [4, 1]
    thirds = split_indices(9, {name: np.float32(1 / 3) for name in "abc"})
    assert [len(part) for part in thirds.values()] == [3, 3, 3]


def test_equal_keys_go_together_whatever_their_type() -> None:
    def parts(keys: Any) -> list[int]:
        return number_of_part(split_indices(len(keys), TENTHS, keys=keys), len(keys)).tolist()  # type: ignore[no-any-return]

    numbers = list(range(100))
    assert parts(numbers) == parts(np.arange(100, dtype=np.uint8)) == parts(np.arange(100, dtype=">i4"))
    texts = [f"ü{number}" for number in numbers]
    assert parts(texts) == parts(np.array(texts)) == parts(np.array(texts, object))
    assert (
        parts(texts)
        == parts([text.encode() for text in texts])
        == parts([*texts[:5], *[t.encode() for t in texts[5:]]])
    )
    assert len(set(parts(["same"] * 5))) == 1
    assert parts(numbers) != parts([str(number) for number in numbers])


# --- what is given and what comes back ---


def test_parts_are_subsets_that_read_by_the_batch_and_travel() -> None:
    data = ArrayDataset(np.arange(100) * 10)
    parts = split(data, THREE, seed=3)
    assert {name: len(part) for name, part in parts.items()} == {"train": 80, "val": 10, "test": 10}
    assert all(type(part) is Subset and reads_batches(part) for part in parts.values())
    train = pickle.loads(pickle.dumps(parts["train"]))
    batches = [batch[0] for batch in DataLoader(train, batch_size=16, num_workers=2, workers="thread")]
    assert np.concatenate(batches).tolist() == (parts["train"].indices * 10).tolist()  # type: ignore[operator]
    assert feedline.split is split


def test_a_part_that_has_become_empty_is_told_of() -> None:
    with pytest.warns(UserWarning, match=r"part 'test' is empty: .* for a fraction of 0\.1") as told:
        split(range(3), {"train": 0.9, "test": 0.1})
    assert told[0].filename == __file__


@pytest.mark.parametrize("way", ["fraction", "labels", "groups", "keys"])
def test_an_empty_part_that_was_asked_for_is_not(way: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        values: Any = {} if way == "fraction" else {way: [1, 2, 3]}
        assert [len(part) for part in split(range(3), {"none": 0, "train": 1, "test": 0}, **values).values()] == [
            0,
            3,
            0,
        ]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"fractions": {"a": 0.8, "b": 0.1}}, r"fractions must sum to 1; got \{'a': 0.8, 'b': 0.1\}, which sum to 0.9"),
        ({"fractions": {"a": 1.2, "b": -0.2}}, r"fractions\['b'\] must be a finite number of at least 0; got -0.2"),
        ({"fractions": {"a": math.nan}}, r"fractions\['a'\] must be a finite number"),
        ({"fractions": {}}, "fractions is empty"),
        ({"labels": [1], "groups": [1]}, "labels and groups exclude each other"),
        ({"labels": [1, 2]}, "labels must have one value per sample: the dataset has 10, and labels 2"),
        ({"groups": np.zeros((10, 2))}, r"groups must be one-dimensional, one for each sample; got shape \(10, 2\)"),
        ({"keys": np.zeros((10, 2), int)}, r"keys must be one-dimensional, one for each sample; got shape \(10, 2\)"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"fractions": {"a": 0.8, "b": 0.20001}}, "which sum to 1.00001"),
    ],
)
def test_wrong_values_are_refused_by_name(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionError, match=what):
        split(range(10), **{"fractions": {"a": 0.5, "b": 0.5}, **wrong})


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"fractions": [0.8, 0.2]}, "fractions must be a dict of numbers by name"),
        ({"fractions": {"a": "1"}}, r"fractions\['a'\] must be a number; got '1'"),
        ({"labels": "abcdefghij"}, "labels must be an array or list with one value per sample; got str"),
        ({"labels": iter("abcdefghij")}, "labels must be an array or list"),
        ({"labels": [[1]] * 10}, r"labels must be numbers, strings or anything hashable, but labels\[0\] is a list"),
        ({"keys": [0.5] * 10}, r"but keys\[0\] is 0.5 \(float\): pass \[str\(key\) for key in keys\]"),
        ({"keys": ["a"] * 9 + [None]}, r"but keys\[9\] is None"),
        ({"keys": [1] * 8 + ["a", 1]}, r"but keys\[8\] is 'a' \(str\), and keys\[0\] is 1: use one kind of keys"),
        ({"keys": [1] * 9 + [True]}, r"but keys\[9\] is True \(bool\)"),
        ({"keys": np.ma.array(range(10), mask=[0, 1] * 5)}, r"but keys\[1\] is None"),
        ({"dataset": range(70_000), "keys": ["a"] * 69_999 + [1]}, r"but keys\[69999\] is 1"),
        ({"keys": [1] * 9 + [2**70]}, r"integers must fit into 64 bits, but keys\[9\] is 1180591620717411303424"),
        ({"seed": 1.5}, "seed must be a whole number"),
    ],
)
def test_wrong_types_are_refused_by_name(wrong: dict[str, Any], what: str) -> None:
    with pytest.raises(OptionTypeError, match=what):
        split(**{"dataset": range(10), "fractions": {"a": 0.5, "b": 0.5}, **wrong})


def test_a_stream_cannot_be_split() -> None:
    class Lines(feedline.IterableDataset[int]):
        pass

    with pytest.raises(TypeError, match="dataset is an IterableDataset, which has no index"):
        split(Lines(), THREE)
