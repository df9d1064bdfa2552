"""The worker of a stream dies: every element still comes once, or a warning says that this may not be so."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from idioms import (
    SIZE,
    Around,
    Buffering,
    Counting,
    CountingEpochs,
    Keeping,
    Ours,
    Shuffling,
    Stream,
    Things,
    Told,
    Torchdatas,
    is_whole,
    kill_at,
    numbers,
    numbers_in,
)
from kinds import FORK, thorough
from torch.utils.data import get_worker_info

from feedline.torch import DataLoader

LASTING = {**FORK, "persistent_workers": True}
NO_LOSS, AGAIN = "no batch is lost", "if the dataset gives the same elements again"
OTHERS = "gave other elements than those that had been delivered"
BEHIND, ALL_RESTARTED = "The old worker had read earlier epochs", "all workers are started again"


def killed(kind: Any, path: Path, epoch: int, number: int = 25, **options: Any) -> Iterator[list[int]]:
    """The numbers of each epoch of a loader one of whose workers dies in one of them."""
    stream = kind()
    stream.deadly = path / "deadly"
    with DataLoader(stream, **{"batch_size": 2, **LASTING, **options}) as loader:
        for each in range(epoch + 3):
            if each == epoch:
                kill_at(stream, path, number)
            yield numbers(loader)
            assert not stream.deadly.exists()


@pytest.mark.parametrize("epoch", [0, 2])
@pytest.mark.parametrize("kind", [Stream, Keeping, Around, Buffering, Counting])
def test_a_part_is_read_again_and_every_epoch_is_whole(kind: Any, epoch: int, told: Told, tmp_path: Path) -> None:
    for number, found in enumerate(killed(kind, tmp_path, epoch)):
        said = told()
        assert is_whole(found), (number, said)
        assert (AGAIN in said) is (number == epoch)
        assert NO_LOSS not in said
        assert OTHERS not in said


def test_what_an_iterator_says_is_gone_on_from(told: Told, tmp_path: Path) -> None:
    epochs = killed(Torchdatas, tmp_path, 2)
    assert all(map(is_whole, islice(epochs, 2)))
    told()
    assert is_whole(next(epochs))  # although the new worker would draw another order
    said = told()
    assert NO_LOSS in said
    assert AGAIN not in said
    assert ALL_RESTARTED in said
    assert all(map(is_whole, epochs))
    assert told() == ""


def test_what_our_dataset_says_is_gone_on_from(told: Told, tmp_path: Path) -> None:
    epochs = [*killed(Ours, tmp_path, 1)]
    said = told()
    assert all(map(is_whole, epochs))
    assert len(set(map(tuple, epochs))) == 4  # it goes on counting
    assert "continues where the dataset's state_dict() says that its part is" in said
    assert NO_LOSS not in said


@pytest.mark.parametrize("kind", [CountingEpochs, Shuffling])
def test_another_order_is_told_and_the_next_epoch_is_whole(kind: Any, told: Told, tmp_path: Path) -> None:
    stream = kind()
    orders = [stream.order() for _ in range(2)]
    epochs = killed(kind, tmp_path, 1, number=orders[1][30])
    assert is_whole(next(epochs))
    told()
    assert not is_whole(next(epochs))
    said = told()
    assert BEHIND in said
    assert OTHERS in said
    assert "of epoch 1" in said
    assert ALL_RESTARTED in said
    assert all(map(is_whole, epochs))  # else one worker would be an epoch behind the others for ever
    assert told() == ""


def test_where_nothing_can_be_compared_yet_it_is_told_that_elements_may_be_missing(told: Told, tmp_path: Path) -> None:
    stream = Shuffling()
    orders = [stream.order() for _ in range(2)]
    epochs = killed(Shuffling, tmp_path, 1, number=orders[1][0])
    assert is_whole(next(epochs))
    told()
    assert not is_whole(next(epochs))
    said = told()
    assert BEHIND in said
    assert NO_LOSS not in said
    assert all(map(is_whole, epochs))


@pytest.mark.parametrize("kind", [CountingEpochs, Shuffling])
def test_in_the_first_epoch_the_order_is_the_same(kind: Any, told: Told, tmp_path: Path) -> None:
    epochs = [*killed(kind, tmp_path, 0)]
    assert all(map(is_whole, epochs))
    assert len(set(map(tuple, epochs))) == 3
    said = told()
    assert BEHIND not in said
    assert OTHERS not in said


def test_what_cannot_be_compared_is_not_called_right(told: Told, tmp_path: Path) -> None:
    epochs = killed(Things, tmp_path, 1, collate_fn=numbers_in)
    assert is_whole(next(epochs))
    told()
    next(epochs)
    said = told()
    assert AGAIN in said
    assert BEHIND in said
    assert NO_LOSS not in said
    assert OTHERS not in said


def test_a_state_is_gone_on_from_if_other_elements_come(told: Told, tmp_path: Path) -> None:
    class Forgetting(Keeping):
        """In an order that a new copy of it does not have, and is in its state."""

        def __init__(self) -> None:
            self.key = 0

        def __iter__(self) -> Iterator[int]:
            self.key = self.key or os.getpid()
            return super().__iter__()

        def order(self) -> list[int]:
            return list(range(SIZE)) if self.key else []

        def share(self) -> list[int]:
            found = super().share()
            random.Random(self.key).shuffle(found)
            return sorted(found, key=lambda number: number == 25)  # the deadly one last: others must come before it

        def state_dict(self) -> Any:
            return {"at": self.at, "key": self.key}

        def load_state_dict(self, state: Any) -> None:
            self.start, self.key = state["at"], state["key"]

    epochs = killed(Forgetting, tmp_path, 0, num_workers=1, batch_size=1, prefetch_factor=1)
    assert is_whole(next(epochs))
    said = told()
    assert OTHERS in said
    assert "So it continues from its state_dict()" in said
    assert all(map(is_whole, epochs))  # it kept the state, and is put back


def test_a_worker_that_dies_with_nothing_in_its_hands(told: Told) -> None:
    """The next task of its part says where that stands: as this epoch began, in the count of its dataset."""
    with DataLoader(Counting(), batch_size=2, **{**LASTING, "num_workers": 1}) as loader:
        first = numbers(loader)
        iterator = iter(loader)
        found = numbers([next(iterator)])
        while not all(entry.outcome for entry in iterator._ledger.queue):
            iterator._receive()
        ((_, pid),) = iterator.processes()
        os.kill(pid, signal.SIGKILL)
        found += numbers(iterator)
        assert is_whole(found)
        assert found != first
        assert AGAIN in told()
        third = numbers(loader)
    assert is_whole(third)
    assert third not in (found, first)


def test_a_part_that_has_ended_is_not_read_again(told: Told, tmp_path: Path) -> None:
    """Its worker dies when it is asked for more than there is."""

    class Ending(Stream):
        def __iter__(self) -> Iterator[int]:
            yield from super().__iter__()
            if (info := get_worker_info()) is not None and info.id == 0 and self.deadly is not None:
                self.read(-1)

    stream = Ending()
    kill_at(stream, tmp_path, -1)
    with DataLoader(stream, batch_size=2, **LASTING) as loader:
        assert is_whole(numbers(loader))
        assert is_whole(numbers(loader))
    told()


@pytest.mark.parametrize(
    ("then", "now"), [(3, 2), (1, 2), *(pytest.param(*each, marks=thorough) for each in [(4, 2), (2, 1)])]
)
@pytest.mark.parametrize("kind", [Keeping, Counting, Torchdatas])
def test_a_resumed_part_of_which_nothing_had_come_yet(
    kind: Any, then: int, now: int, told: Told, tmp_path: Path
) -> None:
    with DataLoader(kind(), batch_size=2, **{**LASTING, "num_workers": then}) as loader:
        numbers(loader)
        iterator = iter(loader)
        first = numbers(islice(iterator, 2 * then))
        rest = numbers(iterator)
    with DataLoader(kind(), batch_size=2, **{**LASTING, "num_workers": then}) as loader:
        numbers(loader)
        first = numbers(islice(iter(loader), 2 * then))
        state = loader.state_dict()
    stream = kind()
    kill_at(stream, tmp_path, rest[0])
    with DataLoader(stream, batch_size=2, **{**LASTING, "num_workers": now}) as loader:
        loader.load_state_dict(state)
        assert numbers(loader) == rest, told()
        assert stream.deadly is not None
        assert not stream.deadly.exists()
        assert is_whole(first + rest)
        assert is_whole(numbers(loader)), told()
