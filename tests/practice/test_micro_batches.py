"""accumulate: the loader's batches, grouped; weighted so that a mean over a group is the mean over all its samples."""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import QUICK, few

from feedline import DataLoader, OptionError, OptionTypeError, accumulate
from feedline.collate import compose, detection, drop_invalid, keep, pack, pad, stack
from feedline.practice.micro_batches import samples_in

batches_of_numbers = st.lists(st.integers(-100, 100), min_size=1, max_size=7).map(lambda values: np.array(values) / 7)


@settings(max_examples=few(100))
@given(batches=st.lists(batches_of_numbers, max_size=12), steps=st.integers(1, 6))
def test_the_weighted_means_of_a_group_are_the_mean_of_all_its_samples(batches, steps):
    given_out, group, sizes = [], [], []
    for micro in accumulate(batches, steps):
        given_out.append(micro.batch)
        group.append(micro)
        if micro.is_last:
            samples = np.concatenate([each.batch for each in group])
            assert sum(each.batch.mean() / each.divisor for each in group) == pytest.approx(samples.mean(), abs=1e-9)
            assert {each.total for each in group} == {len(samples)}
            sizes.append(len(group))
            group = []
    assert not group
    assert [id(batch) for batch in given_out] == [id(batch) for batch in batches]
    whole, rest = divmod(len(batches), steps)
    assert sizes == [steps] * whole + [rest] * (rest > 0)
    grouped = accumulate(batches, steps)
    assert (len(grouped), grouped.updates) == (len(batches), len(sizes))


def test_it_goes_over_its_loader_as_often_as_asked():
    grouped = accumulate(DataLoader(np.arange(10), batch_size=2, shuffle=True, seed=1), steps=2)
    first, second = (np.concatenate([micro.batch for micro in grouped]).tolist() for _ in range(2))
    assert sorted(first) == sorted(second) == list(range(10))
    assert first != second


def test_a_generator_has_no_length_but_can_be_grouped():
    grouped = accumulate((np.ones(2) for _ in range(3)), steps=2)
    assert [micro.divisor for micro in grouped] == [2, 2, 1]
    with pytest.raises(TypeError, match="generator"):
        len(grouped)


def test_at_the_end_of_a_group_the_loaders_state_goes_on_with_the_next():
    loader = DataLoader(np.arange(100), batch_size=3, shuffle=True, seed=5, num_workers=2, workers="thread")
    groups = iter(accumulate(loader, steps=4))
    for _ in range(8):
        micro = next(groups)
    assert micro.is_last
    again = DataLoader(np.arange(100), batch_size=3, shuffle=True, seed=5)
    again.load_state_dict(loader.state_dict())
    assert [m.batch.tolist() for m in accumulate(again, steps=4)] == [m.batch.tolist() for m in groups]


def test_what_was_given_is_not_kept():
    class Batch:
        shape = (1,)
        alive = 0

        def __init__(self) -> None:
            Batch.alive += 1

        def __del__(self) -> None:
            Batch.alive -= 1

    groups = iter(accumulate((Batch() for _ in range(8)), steps=4))
    left = []
    for _ in range(4):
        micro = next(groups)
        left.append(Batch.alive)
        del micro
    assert left == [4, 3, 2, 1]


def test_after_an_error_of_the_loader_nothing_read_is_lost():
    class Damaged:
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index == 5:
                raise ValueError("damaged")
            return index

    groups = iter(accumulate(DataLoader(Damaged(), batch_size=2), steps=4))
    with pytest.raises(ValueError, match="damaged"):
        next(groups)
    rest = list(groups)
    assert [micro.batch.tolist() for micro in rest] == [[0, 1], [2, 3], [6, 7]]
    assert [micro.is_last for micro in rest] == [False, False, True]
    assert [micro.divisor for micro in rest] == [3, 3, 3]


def test_tokens_can_be_counted_instead_of_samples():
    masks = [np.array([[1, 1, 1], [1, 0, 0]]), np.array([[1, 1, 0], [0, 0, 0]]), np.zeros((2, 3))]
    divisors = [micro.divisor for micro in accumulate(masks, steps=3, count=np.sum)]
    assert divisors == [6 / 4, 6 / 2, math.inf]


@pytest.mark.parametrize("count", [-1, math.nan, math.inf])
def test_a_count_that_is_none_is_refused(count):
    with pytest.raises(OptionError, match=r"count\(batch\) must be"):
        next(iter(accumulate([np.ones(2)], steps=1, count=lambda batch: count)))


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Record:
    x: Any
    name: str = "…"


@pytest.mark.parametrize(
    "batch",
    [
        np.zeros(5),
        (np.zeros((5, 3)), np.zeros(5)),
        [np.zeros((5, 3)), ["a"] * 5],
        {"x": {"deep": np.zeros((5, 2))}, "step": np.array(3), "epoch": 7},
        OrderedDict(x=np.zeros(5)),
        Pair(np.zeros(5), np.ones(5)),
        Record(np.zeros(5)),
        ["a", "b", "c", "d", "e"],
        [{"text": "a"}] * 5,
        ({"x": np.zeros((5, 2))}, {"y": np.zeros((5, 2))}),
        {"image": np.zeros((5, 2)), "boxes": [np.zeros((3, 4))] * 5},
        {"label": np.zeros(5), "views": [np.zeros((5, 4)), np.zeros((5, 4))]},
        detection()([(np.zeros((3, 2, 2)), {"boxes": np.ones((2, 4))})] * 5),
        (pad()([[1], [1, 2]] * 2 + [[3]]), pad()([[1], [1, 2]] * 2 + [[3]])),
        compose((pack(9), stack))([([1, 2], 3)] * 5),
    ],
    ids=lambda batch: type(batch).__name__,
)
def test_samples_are_counted_in_every_kind_of_batch(batch):
    assert samples_in(batch) == 5


@pytest.mark.parametrize(
    "batch",
    [
        7,
        None,
        {"a": "b"},
        (["a", "b"], ["c", "d"]),
        [np.zeros((3, 8)), np.zeros((4, 8))],
        np.array(1.0),
        [np.zeros((3, 2))] * 4,
        (np.zeros((3, 2)), np.zeros((3, 5))),
        [np.zeros((3, 2))],
        pack(4)([[1], [2]]),
        [{"x": np.zeros(3)}] * 4,
        [(np.zeros(3), np.zeros(3))] * 4,
        [Record(np.zeros(3))] * 4,
    ],
)
def test_a_batch_whose_samples_cannot_be_counted_asks_for_count(batch):
    with pytest.raises(OptionTypeError, match="Pass count="):
        samples_in(batch)
    assert samples_in(batch, told=4) == 4


@pytest.mark.parametrize("kind", QUICK)
def test_feedlines_loaders_know_how_many_samples_their_batches_have(kind):
    scenes = [(np.ones((3, 2, 2)), {"boxes": np.ones((3, 4))}) for _ in range(5)]
    for collate in (keep, detection(), list):
        with DataLoader(scenes, batch_size=4, collate=collate, **kind) as loader:
            assert [(micro.count, micro.divisor) for micro in accumulate(loader, steps=2)] == [(4, 1.25), (1, 5)]
    gaps = DataLoader([None, *scenes], batch_size=4, collate=drop_invalid(keep), **kind)
    with gaps:
        assert [micro.count for micro in accumulate(gaps, steps=2)] == [3, 2]


def test_batches_of_the_datasets_own_are_not_single_samples():
    loader = DataLoader([np.ones((4, 2)), np.ones((3, 2))], batch_size=None)
    assert [micro.count for micro in accumulate(loader, steps=2)] == [4, 3]
    with pytest.raises(OptionTypeError, match="Pass count="):
        next(iter(accumulate(DataLoader([[np.ones(3)] * 4], batch_size=None), steps=2)))


@pytest.mark.parametrize(
    ("arguments", "named"),
    [((3, 2), "loader"), (([], 0), "steps"), (([], 1.5), "steps"), (([], 2, "len"), "count")],
)
def test_wrong_arguments_are_named(arguments, named):
    with pytest.raises(OptionError, match=named):
        accumulate(*arguments)
