"""A stream that is read whole by every worker, but has other elements in each: an error, whatever their lengths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kinds import few
from made_datasets import Count

import feedline
from feedline import DataLoader, IterableDataset


class ById(IterableDataset[int]):
    """One file per worker, so to speak, chosen by its number alone."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self) -> Iterator[int]:
        info = feedline.get_worker_info()
        assert info is not None
        return iter(range(100 * info.id, 100 * info.id + self.lengths[info.id]))


@pytest.mark.filterwarnings("ignore:the IterableDataset:UserWarning")
@pytest.mark.filterwarnings("ignore:several workers:UserWarning")
@given(lengths=st.lists(st.integers(0, 30), min_size=2, max_size=3), size=st.integers(1, 5), drop=st.booleans())
@settings(max_examples=few(200), deadline=None)
@example(lengths=[0, 1], size=1, drop=False)  # an empty one, which was asked twice, counted one element
def test_other_lengths_in_each_worker_are_an_error(lengths: list[int], size: int, drop: bool) -> None:
    options: dict[str, Any] = {"batch_size": size, "drop_last": drop, "workers": "thread"}
    with DataLoader(ById(lengths), num_workers=len(lengths), **options) as loader:
        if len(set(lengths)) == 1:
            list(loader)
        else:
            with pytest.raises(RuntimeError, match="workers get different elements"):
                list(loader)


@given(length=st.integers(0, 30), size=st.integers(1, 5), workers=st.integers(1, 3), drop=st.booleans())
@settings(max_examples=few(200), deadline=None)
@pytest.mark.filterwarnings("ignore:the IterableDataset:UserWarning")
def test_a_stream_that_is_the_same_everywhere_is_none(length: int, size: int, workers: int, drop: bool) -> None:
    with DataLoader(Count(length), size, num_workers=workers, drop_last=drop, workers="thread") as loader:
        whole = length // size * size if drop else length
        assert [each for batch in loader for each in batch.tolist()] == list(range(whole))
