"""What `worker_init_fn` does to its worker's copy of a stream: whether that is a share of its own."""

from __future__ import annotations

from typing import Any

import pytest
from kinds import every_worker
from made_datasets import Stretch, elements

from feedline import DataLoader, get_worker_info


def look(worker: int) -> None:
    assert str(get_worker_info())


@every_worker
@pytest.mark.filterwarnings("ignore:the IterableDataset neither")
def test_looking_at_the_worker_info_in_worker_init_fn_shares_nothing(kind: dict[str, Any]) -> None:
    assert elements(DataLoader(Stretch(0, 8), 2, worker_init_fn=look, **kind)) == list(range(8))


def open_something(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    info.dataset.connection = object()


@every_worker
@pytest.mark.filterwarnings("ignore:the IterableDataset neither")
def test_opening_something_on_the_dataset_in_worker_init_fn_shares_nothing(kind: dict[str, Any]) -> None:
    assert elements(DataLoader(Stretch(0, 8), 2, worker_init_fn=open_something, **kind)) == list(range(8))


def cut(worker: int) -> None:
    """The way torch's documentation shares a stream."""
    info = get_worker_info()
    assert info is not None
    dataset = info.dataset
    portion = -(-(dataset.stop - dataset.start) // info.num_workers)
    dataset.start += info.id * portion
    dataset.stop = min(dataset.start + portion, dataset.stop)


@every_worker
def test_a_worker_init_fn_that_sets_the_bounds_shares_the_stream(kind: dict[str, Any]) -> None:
    dataset = Stretch(0, 20)
    assert sorted(elements(DataLoader(dataset, 3, worker_init_fn=cut, **kind))) == list(range(20))
    assert type(dataset) is Stretch
