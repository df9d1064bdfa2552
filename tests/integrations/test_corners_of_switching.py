"""The smaller differences from torch's loader that docs/switching-from-torch.md names: what torch does, what we do."""

from __future__ import annotations

from collections.abc import Iterator
from multiprocessing.reduction import ForkingPickler
from typing import Any

import pytest
import torch
import torch.utils.data as torchs

import feedline.torch as ours

BOTH = [torchs.DataLoader, ours.DataLoader]


def so_far(batches: Iterator[Any]) -> list[Any]:
    """All batches as lists, and the names of exceptions on the way."""
    found: list[Any] = []
    while len(found) < 10:
        try:
            found.append(next(batches).tolist())
        except StopIteration:
            break
        except Exception as error:
            found.append(type(error).__name__)
    return found


class Stops(torchs.Dataset[int]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise StopIteration
        return index


@pytest.mark.parametrize("workers", [0, 1])
def test_a_stray_stop_iteration_of_a_dataset_does_not_end_the_epoch(workers: int) -> None:
    theirs, mine = (so_far(iter(loader(Stops(), num_workers=workers))) for loader in BOTH)
    assert theirs[:2] == [[0], [1]]
    assert mine == [[0], [1], "RuntimeError", [3]]


class Tears:
    """A sampler that fails after two indices."""

    def __iter__(self) -> Iterator[int]:
        yield 0
        yield 1
        raise LookupError("torn")


def test_an_error_of_the_sampler_comes_after_the_batches_before_it() -> None:
    options = {"sampler": Tears(), "num_workers": 2}
    with pytest.raises(LookupError, match="torn"):
        iter(torchs.DataLoader(range(4), **options))
    assert so_far(iter(ours.DataLoader(range(4), **options))) == [[0], [1], "LookupError"]


class Opened(torchs.IterableDataset[int]):
    opened = 0

    def __iter__(self) -> Iterator[int]:
        self.opened += 1
        return iter(range(3))


def test_without_workers_a_stream_is_opened_by_the_first_next() -> None:
    counts = []
    for loader in BOTH:
        stream = Opened()
        batches = iter(loader(stream))
        counts.append([stream.opened, next(batches).item(), stream.opened])
    assert counts == [[1, 0, 1], [0, 0, 1]]


def test_a_batch_of_no_samples_is_another_error() -> None:
    found = [so_far(iter(loader(range(4), batch_sampler=[[]]))) for loader in BOTH]
    assert found == [["IndexError"], ["CollateError"]]


class InAGraph(torchs.Dataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return torch.ones(2, requires_grad=True) * 2


def test_a_worker_sends_a_tensor_that_has_a_graph_as_a_leaf() -> None:
    with pytest.raises(RuntimeError, match="automatic differentiation"):
        next(iter(torchs.DataLoader(InAGraph(), num_workers=1)))
    batch = next(iter(ours.DataLoader(InAGraph(), num_workers=1)))
    assert batch.requires_grad
    assert batch.is_leaf


def test_a_large_batch_cannot_be_resized_in_place() -> None:
    data = [torch.zeros(40_000)] * 2
    assert next(iter(torchs.DataLoader(data, 2))).resize_(4, 40_000).shape == (4, 40_000)
    with pytest.raises(RuntimeError, match="not resizable"):
        next(iter(ours.DataLoader(data, 2))).resize_(4, 40_000)


class Odd:
    """Pickles only by the recipe that ForkingPickler is given."""

    def __reduce__(self) -> Any:
        raise TypeError("no plain pickle")


class GivesOdd(torchs.Dataset[Any]):
    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        return Odd()


def test_batches_are_pickled_by_pickle_and_not_by_forking_pickler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ForkingPickler, "_extra_reducers", {**ForkingPickler._extra_reducers, Odd: lambda odd: (int, ())}
    )  # type: ignore[attr-defined]
    options = {"batch_size": None, "num_workers": 1}
    assert next(iter(torchs.DataLoader(GivesOdd(), **options))) == 0
    with pytest.raises(TypeError, match="no plain pickle"):
        next(iter(ours.DataLoader(GivesOdd(), **options)))


def test_a_second_iterator_of_persistent_workers_is_another_object_and_ends_the_first() -> None:
    options = {"batch_size": 2, "num_workers": 1, "persistent_workers": True}
    loader = torchs.DataLoader(range(6), **options)
    one, two = iter(loader), iter(loader)
    assert one is two
    loader._iterator = None
    with ours.DataLoader(range(6), **options) as mine:
        one = iter(mine)
        next(one)
        two = iter(mine)
        assert next(two).tolist() == [0, 1]
        with pytest.raises(RuntimeError, match="given up when iter"):
            next(one)


class Forwards:
    """A transform around a dataset, which forwards what it has not got."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        return -index

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["inner"], name)


class ReadsMany(torchs.Dataset[int]):
    def __getitems__(self, indices: list[int]) -> list[int]:
        return [100 + index for index in indices]


def test_a_transform_is_not_bypassed_by_the_getitems_it_forwards() -> None:
    found = [so_far(iter(loader(Forwards(ReadsMany()), 4))) for loader in BOTH]
    assert found == [[[100, 101, 102, 103]], [[0, -1, -2, -3]]]


def test_a_dataset_of_tensors_is_read_as_it_was_when_the_epoch_began() -> None:
    found = []
    for loader in BOTH:
        dataset = torchs.TensorDataset(torch.arange(4))
        batches = iter(loader(dataset, 2))
        first = next(batches)
        dataset.tensors = (torch.arange(4) * 10,)
        found.append([first[0].tolist(), next(batches)[0].tolist()])
    assert found == [[[0, 1], [20, 30]], [[0, 1], [2, 3]]]
