"""Elements of a stream that cannot be read, under on_error="skip" and "replace"."""

from __future__ import annotations

import warnings
from itertools import chain
from typing import Any

import pytest
import torch.utils.data
from damaged import AsksLate, Generated, Hopeless, Leaky, Sharded
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, SPAWN, THREADS, few, four_kinds, thorough

import feedline
import feedline.torch
from feedline.reading import stream_reader as stream

HOWS = pytest.mark.parametrize("how", ["skip", "replace"])
whole = pytest.mark.filterwarnings("ignore:the IterableDataset neither asks")


def lists(loader: Any) -> list[Any]:
    return [batch.tolist() for batch in loader]


@whole
@four_kinds
def test_skip_makes_shorter_batches_and_replace_reads_on(kind: dict[str, Any]) -> None:
    data = Leaky(10, {0, 5, 6, 9})
    loader = feedline.DataLoader(data, batch_size=4, on_error="skip", **kind)
    assert lists(loader) == [[1, 2, 3], [4, 7], [8]]
    assert [(bad.index, bad.place, bad.seq, bad.error) for bad in loader.errors()] == [
        (None, 0, 0, "ValueError: torn record 0"),
        (None, 5, 1, "ValueError: torn record 5"),
        (None, 6, 1, "ValueError: torn record 6"),
        (None, 9, 2, "ValueError: torn record 9"),
    ]
    loader = feedline.DataLoader(data, batch_size=4, on_error="replace", **kind)
    assert lists(loader) == [[1, 2, 3, 4], [7, 8]]
    assert [(bad.place, bad.seq) for bad in loader.errors()] == [(0, 0), (5, 1), (6, 1), (9, 1)]


class TorchLeaky(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(Leaky(10, {0, 5, 6, 9}))


@whole
@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
def test_the_same_under_torch(kind: dict[str, Any]) -> None:
    loader = feedline.torch.DataLoader(TorchLeaky(), batch_size=4, on_error="skip", **kind)
    assert lists(loader) == [[1, 2, 3], [4, 7], [8]]
    assert [bad.place for bad in loader.errors()] == [0, 5, 6, 9]
    assert lists(feedline.torch.DataLoader(TorchLeaky(), batch_size=4, on_error="replace", **kind)) == [
        [1, 2, 3, 4],
        [7, 8],
    ]


@four_kinds
@HOWS
def test_shards_lose_their_own_bad_elements_only(kind: dict[str, Any], how: str) -> None:
    loader = feedline.DataLoader(Sharded(20, {0, 1, 7, 12}), batch_size=3, on_error=how, **kind)
    good = sorted(set(range(20)) - {0, 1, 7, 12})
    assert sorted(chain.from_iterable(lists(loader))) == good
    assert len(loader.errors()) == 4


@whole
@four_kinds
def test_unbatched_elements(kind: dict[str, Any]) -> None:
    for how in ("skip", "replace"):
        loader = feedline.DataLoader(Leaky(5, {0, 3}), batch_size=None, on_error=how, **kind)
        assert list(loader) == [1, 2, 4]
        assert [bad.place for bad in loader.errors()] == [0, 3]


@whole
@four_kinds
def test_batches_of_nothing_but_bad_elements_are_omitted(kind: dict[str, Any]) -> None:
    loader = feedline.DataLoader(Leaky(9, {0, 1, 2, 6, 7, 8}), batch_size=3, on_error="skip", **kind)
    assert lists(loader) == [[3, 4, 5]]
    assert [bad.seq for bad in loader.errors()] == [0] * 3 + [2] * 3


def test_drop_last_drops_what_the_stream_leaves_over_and_nothing_else() -> None:
    loader = feedline.DataLoader(Leaky(10, {1}), batch_size=4, drop_last=True, on_error="skip")
    assert lists(loader) == [[0, 2, 3], [4, 5, 6, 7]]
    loader = feedline.DataLoader(Leaky(8, {1}), batch_size=4, drop_last=True, on_error="replace")
    assert lists(loader) == [[0, 2, 3, 4]]


@four_kinds
@HOWS
def test_a_generator_is_over_at_its_first_error_and_that_is_said(kind: dict[str, Any], how: str) -> None:
    loader = feedline.DataLoader(Generated(10, {5}), batch_size=4, on_error=how, **kind)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert lists(loader) == [[0, 1, 2, 3], [4]]
    told = "".join(str(warning.message) for warning in said)
    assert "all elements after that one are lost" in told
    assert "__len__ says 10, but it gave 6 elements" in told
    assert [bad.place for bad in loader.errors()] == [5]


@whole
@pytest.mark.parametrize(
    ("kind", "how"),
    [
        pytest.param(INLINE, "skip", id="inline-skip"),
        pytest.param(INLINE, "replace", id="inline-replace"),
        pytest.param(THREADS, "skip", id="threads-skip"),
        pytest.param(FORK, "replace", id="fork-replace"),
        pytest.param(SPAWN, "skip", id="spawn-skip"),
        pytest.param(THREADS, "replace", id="threads-replace", marks=thorough),
        pytest.param(FORK, "skip", id="fork-skip", marks=thorough),
        pytest.param(SPAWN, "replace", id="spawn-replace", marks=thorough),
    ],
)
def test_a_stream_that_only_fails_is_given_up(kind: dict[str, Any], how: str) -> None:
    loader = feedline.DataLoader(Hopeless(4, ()), batch_size=4, on_error=how, **kind)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        assert lists(loader) == []
    assert "failed 1000 times in a row" in "".join(str(warning.message) for warning in said)
    assert len(loader.errors()) == stream.FAILURES_IN_A_ROW


@whole
@pytest.mark.parametrize("kind", [THREADS, FORK], ids=["threads", "fork"])
def test_what_is_wrong_with_the_dataset_itself_is_not_skipped(kind: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match="only after its first element"):
        list(feedline.DataLoader(AsksLate(8, ()), batch_size=2, on_error="skip", **kind))


@whole
@settings(max_examples=few(25))
@given(
    data=st.data(),
    size=st.integers(0, 20),
    batch_size=st.integers(1, 6),
    workers=st.integers(1, 3),
    shuffle_buffer=st.sampled_from([0, 0, 5]),
)
def test_every_good_element_arrives_for_any_kind_of_worker(
    data: Any, size: int, batch_size: int, workers: int, shuffle_buffer: int
) -> None:
    bad = data.draw(st.sets(st.integers(0, max(0, size - 1)), max_size=size))
    good = [number for number in range(size) if number not in bad]
    for how in ("skip", "replace"):
        found = []
        for kind in ({}, {"num_workers": workers, "workers": "thread"}, {**FORK, "num_workers": workers}):
            loader = feedline.DataLoader(
                Leaky(size, bad), batch_size, on_error=how, shuffle_buffer=shuffle_buffer, seed=3, **kind
            )
            found.append(lists(loader))
            assert sorted(error.place for error in loader.errors()) == sorted(bad)
        assert found[0] == found[1] == found[2]
        delivered = list(chain.from_iterable(found[0]))
        assert (sorted(delivered) if shuffle_buffer else delivered) == good
        if how == "replace":
            assert [len(batch) for batch in found[0]][:-1] == [batch_size] * (len(found[0]) - 1)
