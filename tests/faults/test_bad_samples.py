"""Samples that cannot be read, under on_error="skip" and "replace": the rest of the epoch is as it should be."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from damaged import BatchDamaged, Damaged, Drawing, Keyed, ManyDamaged, OnlyMany, too_few
from fronts import BOTH, KINDS_AND_FRONTS, Front, both_fronts, kinds_and_fronts
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few, four_kinds, thorough

import feedline
import feedline.torch
from feedline import ArrayDataset, Subset

DATASETS = [Damaged, ManyDamaged, OnlyMany, BatchDamaged]


def lists(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


def chunks(size: int, batch_size: int) -> list[list[int]]:
    return [list(range(start, min(start + batch_size, size))) for start in range(0, size, batch_size)]


def nearest_good(index: int, size: int, bad: set[int]) -> int:
    return min(set(range(size)) - bad, key=lambda other: (abs(other - index), -other))


@pytest.mark.parametrize(
    ("dataset", "kind", "front"),
    [
        pytest.param(
            dataset,
            *each.values,
            id=f"{dataset.__name__}-{each.id}",
            # How a dataset is read is the same in every kind of worker.
            marks=each.marks if dataset is Damaged or each.values[0] is INLINE else thorough,
        )
        for dataset in DATASETS
        for each in KINDS_AND_FRONTS
    ],
)
def test_skip_leaves_out_and_replace_takes_the_neighbour(kind: dict[str, Any], front: Front, dataset: Any) -> None:
    data = dataset(10, {2, 3, 8, 9})
    loader = front(data, batch_size=4, on_error="skip", **kind)
    assert lists(loader) == [[0, 1], [4, 5, 6, 7]]
    assert [(bad.index, bad.place, bad.seq, bad.epoch) for bad in loader.errors()] == [
        (2, 2, 0, 0),
        (3, 3, 0, 0),
        (8, 0, 2, 0),
        (9, 1, 2, 0),
    ]
    assert len(loader) == 3
    loader = front(data, batch_size=4, on_error="replace", **kind)
    assert lists(loader) == [[0, 1, 1, 4], [4, 5, 6, 7], [7, 7]]
    assert [bad.replacement for bad in loader.errors()] == [1, 4, 7, 7]


@kinds_and_fronts
def test_a_bad_sample_is_told_with_all_there_is(kind: dict[str, Any], front: Front) -> None:
    loader = front(Damaged(4, {1}), batch_size=2, on_error="skip", **kind)
    assert lists(loader) == [[0], [2, 3]]
    (bad,) = loader.errors()
    assert bad.what == "photos/1.jpg"
    assert bad.error == "ValueError: truncated: 1"
    assert bad.trace.startswith("Traceback")
    assert "in __getitem__" in bad.trace
    assert bad.replacement is None


@kinds_and_fronts
def test_unbatched_samples_are_left_out_or_replaced(kind: dict[str, Any], front: Front) -> None:
    data = Damaged(5, {1, 4})
    assert list(front(data, batch_size=None, on_error="skip", **kind)) == [0, 2, 3]
    assert list(front(data, batch_size=None, on_error="replace", **kind)) == [0, 2, 2, 3, 3]


@kinds_and_fronts
@pytest.mark.parametrize("how", ["skip", "replace"])
def test_nothing_but_bad_samples_is_an_epoch_without_batches(kind: dict[str, Any], front: Front, how: str) -> None:
    loader = front(Damaged(6, range(6)), batch_size=2, on_error=how, **kind)
    assert lists(loader) == []
    assert [bad.index for bad in loader.errors()] == list(range(6))
    assert lists(loader) == []
    assert [bad.epoch for bad in loader.errors()] == [0] * 6 + [1] * 6


@settings(max_examples=few(25))
@given(
    data=st.data(),
    size=st.integers(1, 17),  # so small that no good sample is too far away
    batch_size=st.integers(1, 6),
    workers=st.integers(1, 3),
    dataset=st.sampled_from(DATASETS),
    front=st.sampled_from(BOTH),
)
def test_what_arrives_is_what_is_good_for_any_kind_of_worker(
    data: Any, size: int, batch_size: int, workers: int, dataset: Any, front: Front
) -> None:
    bad = data.draw(st.sets(st.integers(0, size - 1)))
    good = [[index for index in chunk if index not in bad] for chunk in chunks(size, batch_size)]
    skipped = [chunk for chunk in good if chunk]
    replaced = [
        [nearest_good(index, size, bad) if index in bad else index for index in chunk]
        for chunk in chunks(size, batch_size)
        if len(bad) < size
    ]
    for kind in ({}, {"num_workers": workers, "workers": "thread"}, {**FORK, "num_workers": workers}):
        for how, expected in (("skip", skipped), ("replace", replaced)):
            loader = front(dataset(size, bad), batch_size=batch_size, on_error=how, **kind)
            assert lists(loader) == expected
            assert [sample.index for sample in loader.errors()] == sorted(bad)


@four_kinds
def test_shuffled_and_seeded_the_same_in_every_kind(kind: dict[str, Any]) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 7, "on_error": "replace"}
    data = Drawing(30, {3, 4, 5, 20})
    here = [batch.tolist() for batch in feedline.DataLoader(data, **options)]
    assert [batch.tolist() for batch in feedline.DataLoader(data, **options, **kind)] == here
    assert sorted(map(len, here)) == [2] + [4] * 7


def test_a_replacement_draws_what_it_would_have_drawn_itself() -> None:
    (batch,) = feedline.DataLoader(Drawing(6, {3}), batch_size=6, seed=1, on_error="replace")
    assert batch[3, 0] == 4
    assert batch[3, 1] == batch[4, 1]


def test_good_samples_draw_the_same_whatever_is_replaced() -> None:
    (batch,) = feedline.DataLoader(Drawing(6, {3}), batch_size=6, seed=1, on_error="replace")
    (skipped,) = feedline.DataLoader(Drawing(6, {3}), batch_size=6, seed=1, on_error="skip")
    assert np.delete(batch, 3, axis=0).tolist() == skipped.tolist()


def test_the_search_for_a_neighbour_ends() -> None:
    data = Counting(1000, range(100, 1000))
    (batch,) = feedline.DataLoader(data, sampler=[5, 500], batch_size=2, on_error="replace")
    assert batch.tolist() == [5]
    assert data.reads == 2 + 16


class Counting(Damaged):
    reads = 0

    def __getitem__(self, index: int) -> Any:
        self.reads += 1
        return super().__getitem__(index)


@four_kinds
def test_without_places_the_nearest_of_the_batch_is_taken(kind: dict[str, Any]) -> None:
    loader = feedline.DataLoader(
        Keyed(), sampler=["x", "y", "a", "b", "z", "?"], batch_size=3, on_error="replace", **kind
    )
    assert lists(loader) == [[1, 1, 1], [2, 2, 2]]
    assert [(bad.index, bad.replacement) for bad in loader.errors()] == [("x", "a"), ("y", "a"), ("z", "b"), ("?", "b")]


@four_kinds
def test_an_index_from_the_end_has_neighbours_too(kind: dict[str, Any]) -> None:
    data = Subset(Damaged(5, {3}), range(5))
    loader = feedline.DataLoader(data, sampler=[0, -2], batch_size=2, on_error="replace", **kind)
    assert lists(loader) == [[0, 4]]
    assert [(bad.index, bad.replacement) for bad in loader.errors()] == [(-2, 4)]


@four_kinds
def test_an_index_that_an_array_does_not_have_is_a_bad_sample(kind: dict[str, Any]) -> None:
    loader = feedline.DataLoader(ArrayDataset(np.arange(5)), sampler=[1, 17, 3], batch_size=3, on_error="skip", **kind)
    assert [batch[0].tolist() for batch in loader] == [[1, 3]]
    assert loader.errors()[0].error.startswith("IndexError")


def test_drop_last_drops_what_the_sampler_leaves_over_and_nothing_else() -> None:
    loader = feedline.DataLoader(Damaged(10, {1}), batch_size=4, drop_last=True, on_error="skip")
    assert lists(loader) == [[0, 2, 3], [4, 5, 6, 7]]


@kinds_and_fronts
@pytest.mark.parametrize("how", ["skip", "replace"])
def test_errors_of_collating_are_raised_and_the_bad_samples_still_told(
    kind: dict[str, Any], front: Front, how: str
) -> None:
    loader = front(Damaged(5, {1}), batch_size=3, collate_fn=too_few, on_error=how, **kind)
    iterator = iter(loader)
    if how == "replace":
        assert next(iterator) == [0, 2, 2]
    with pytest.raises(ValueError, match="2 are too few"):
        next(iterator)
    assert [bad.index for bad in loader.errors()] == [1]
    loader.close()


def bad_init(worker: int) -> None:
    raise RuntimeError("no licence")


def test_errors_of_sampler_and_worker_init_fn_are_raised() -> None:
    with pytest.raises(RuntimeError, match="no licence"):
        list(feedline.DataLoader(Damaged(4, ()), worker_init_fn=bad_init, on_error="skip", **THREADS))
    with pytest.raises(ZeroDivisionError):
        list(feedline.DataLoader(Damaged(4, ()), sampler=(1 // n for n in (1, 0)), on_error="skip"))


class OnlyAlone(Damaged):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        raise OSError("not today")


def test_what_fails_only_together_is_delivered_and_said_once() -> None:
    with pytest.warns(UserWarning, match=r"\(OSError\) although each of them can be read alone") as said:
        assert lists(feedline.DataLoader(OnlyAlone(4, ()), batch_size=2, on_error="skip")) == [[0, 1], [2, 3]]
    assert len(said) == 1


class Raising(Damaged):
    error: type[BaseException] = StopIteration

    def __getitem__(self, index: int) -> Any:
        if index in self.bad:
            raise self.error
        return index


@both_fronts
def test_what_is_no_exception_is_not_skipped(front: Front) -> None:
    data = Raising(3, {1})
    loader = front(data, batch_size=3, on_error="skip")
    assert lists(loader) == [[0, 2]]
    data.error = KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        lists(loader)
