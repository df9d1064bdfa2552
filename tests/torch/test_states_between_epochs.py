"""What a stream's dataset keeps from epoch to epoch is there again after resuming, as in the uninterrupted run."""

from __future__ import annotations

import json
import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, INLINE, THREADS, ours, thorough

import feedline
import feedline.torch

FRONTS = [pytest.param(feedline.DataLoader, id="core"), pytest.param(feedline.torch.DataLoader, id="torch")]
LASTING = {"persistent_workers": True}
both = pytest.mark.parametrize("front", FRONTS)
SIZE = 10


def share() -> range:
    """Of unequal length: the first worker ends before the others."""
    info: Any = torchs.get_worker_info() or feedline.get_worker_info()
    if info is None or info.num_workers == 1:
        return range(SIZE)
    return range(2) if not info.id else range(SIZE)[info.id + 1 :: info.num_workers - 1]


class Counting(feedline.IterableDataset[int], torchs.IterableDataset[int]):
    """Counts its epochs, and is at the next one's beginning when one has ended."""

    def __init__(self) -> None:
        self.epoch = self.at = 0

    def __iter__(self) -> Iterator[int]:
        numbers = share()
        while self.at < len(numbers):
            self.at += 1
            yield self.epoch * 100 + numbers[self.at - 1]
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> Any:
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state: Any) -> None:
        self.at, self.epoch = state["at"], state["epoch"]


class Waiting(Counting):
    """Says at its end that it is there, and is at its beginning whenever it is opened but for going on."""

    resumed: int | None = None

    def __iter__(self) -> Iterator[int]:
        if self.resumed is None:
            self.at, self.epoch = 0, self.epoch + 1
        self.at, self.resumed = self.resumed or 0, None
        for number in share()[self.at :]:
            self.at += 1
            yield self.epoch * 100 + number

    def load_state_dict(self, state: Any) -> None:
        self.resumed, self.epoch = state["at"], state["epoch"]


class Elements(Iterator[int]):
    def __init__(self, dataset: Any, numbers: range) -> None:
        self.dataset, self.numbers, self.at = dataset, numbers, 0

    def __next__(self) -> int:
        if self.at == len(self.numbers):
            raise StopIteration
        self.at += 1
        return int(self.dataset.epoch * 100 + self.numbers[self.at - 1])

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


class Both(Counting):
    """The dataset counts epochs, its iterator elements."""

    def __init__(self) -> None:
        self.epoch = -1

    def __iter__(self) -> Iterator[int]:
        if not self.resumed:
            self.epoch += 1
        self.resumed = False
        return Elements(self, share())

    resumed = False

    def state_dict(self) -> Any:
        return {"epoch": self.epoch}

    def load_state_dict(self, state: Any) -> None:
        self.epoch, self.resumed = state["epoch"], True


class Sharded(Both):
    """The same, shared out by `shard`."""

    def shard(self, index: int, count: int) -> Any:
        if not self.resumed:
            self.epoch += 1
        self.resumed = False
        return Elements(self, range(index, SIZE, count))

    def __iter__(self) -> Iterator[int]:
        return iter(self.shard(0, 1))


DATASETS = [Counting, Waiting, Both, Sharded]


def loader_of(front: Any, dataset: Any, **options: Any) -> Any:
    more = {"seed": 5} if front is feedline.DataLoader else {"generator": torch.Generator().manual_seed(5)}
    return front(dataset(), **{"batch_size": 2, **more, **options})


def run(loader: Any, epochs: int) -> list[list[list[int]]]:
    return [[batch.tolist() for batch in loader] for _ in range(epochs)]


def goes_on(front: Any, dataset: Any, state: Any, whole: Any, epoch: int, batch: int, **options: Any) -> None:
    """The rest of a run of so many epochs is as it would have been."""
    with loader_of(front, dataset, **options) as again, warnings.catch_warnings():
        warnings.simplefilter("error")
        again.load_state_dict(json.loads(json.dumps(state)))
        found = run(again, len(whole) - epoch)
    assert found == [whole[epoch][batch:], *whole[epoch + 1 :]]


def check(front: Any, kind: dict[str, Any], dataset: Any, buffer: int, each: int) -> None:
    options = {**kind, "shuffle_buffer": buffer}
    with loader_of(front, dataset, **options) as loader:
        whole = run(loader, 4)
    assert [len(epoch) for epoch in whole] == [len(whole[0])] * 4
    states = []
    with loader_of(front, dataset, **options) as loader:
        for epoch in range(3):
            states.append((epoch, 0, loader.state_dict()))  # between two epochs
            states += [(epoch, number, loader.state_dict()) for number, _ in enumerate(loader, 1)]
    for epoch, number, state in states[::each]:
        goes_on(front, dataset, state, whole, epoch, number, **options)


@both
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("buffer", [0, pytest.param(3, marks=thorough)])
@pytest.mark.parametrize(
    "kind", [INLINE, {**THREADS, **LASTING}, THREADS], ids=["inline", "lasting threads", "threads"]
)
def test_a_dataset_goes_on_counting_its_epochs(front: Any, kind: dict[str, Any], dataset: Any, buffer: int) -> None:
    check(front, kind, dataset, buffer, each=1 if not kind else 2)


@pytest.mark.parametrize("dataset", [Counting, Both])
@pytest.mark.parametrize("kind", [FORK, {**FORK, **LASTING}], ids=["fork", "lasting fork"])
def test_in_processes_too(kind: dict[str, Any], dataset: Any) -> None:
    check(feedline.torch.DataLoader, kind, dataset, 0, each=8)


@thorough
@both
@pytest.mark.parametrize("dataset", DATASETS)
@pytest.mark.parametrize("buffer", [0, 3])
@pytest.mark.parametrize("kind", [FORK, {**FORK, **LASTING}], ids=["fork", "lasting fork"])
def test_in_processes_in_all_combinations(front: Any, kind: dict[str, Any], dataset: Any, buffer: int) -> None:
    check(front, kind, dataset, buffer, each=1)


class Dying(Counting):
    """Kills its process once, before the first element of its second epoch."""

    def __init__(self, flag: Path) -> None:
        super().__init__()
        self.flag = flag

    def __iter__(self) -> Iterator[int]:
        info: Any = torchs.get_worker_info() or feedline.get_worker_info()
        if self.epoch == 1 and info.id == 1 and not self.flag.exists():
            self.flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__iter__()


@both
def test_a_worker_that_dies_between_two_epochs_leaves_its_count_to_the_next(front: Any, tmp_path: Path) -> None:
    with front(Dying(tmp_path / "killed"), batch_size=2, **FORK, **LASTING) as loader:
        (first,) = run(loader, 1)
        with pytest.warns(UserWarning, match="A new worker takes its place"):
            (second,) = run(loader, 1)
    assert second == [[number + 100 for number in batch] for batch in first]


@both
def test_the_count_is_that_of_the_uninterrupted_run(front: Any) -> None:
    """Without workers, and with persistent ones, it counts; workers that are started anew count from 0, as in torch."""
    for kind, expected in ((INLINE, [0, 1, 2]), ({**FORK, **LASTING}, [0, 1, 2]), (FORK, [0, 0, 0])):
        with loader_of(front, Counting, **kind) as loader:
            assert [{number // 100 for batch in epoch for number in batch} for epoch in run(loader, 3)] == [
                {each} for each in expected
            ]


@both
@pytest.mark.parametrize("then", [INLINE, {**FORK, **LASTING}])
@pytest.mark.parametrize("number", [0, 3])
def test_another_number_of_workers_counts_on(front: Any, then: dict[str, Any], number: int) -> None:
    now = {**THREADS, **LASTING, "num_workers": number} if number else INLINE
    with loader_of(front, Counting, **then) as loader:
        run(loader, 2)
        between = loader.state_dict()
        next(iter(loader))
        within = loader.state_dict()
    for state in (between, within):
        with loader_of(front, Counting, **now) as again, warnings.catch_warnings():
            warnings.simplefilter("error")
            again.load_state_dict(state)
            assert [{each // 100 for batch in epoch for each in batch} for epoch in run(again, 3)] == [{2}, {3}, {4}]


class Differing(Counting):
    def state_dict(self) -> Any:
        return {**super().state_dict(), "share": list(share())}


@both
def test_states_that_are_of_as_many_workers_as_then_are_not_given_to_others_silently(front: Any) -> None:
    with loader_of(front, Differing, **FORK, **LASTING) as loader:
        run(loader, 1)
        state = loader.state_dict()
    goes_on(front, Differing, state, [[], *run_of(front, Differing)], 1, 0, **FORK, **LASTING)
    with loader_of(front, Differing) as again:
        again.load_state_dict(state)
        with pytest.warns(UserWarning, match="2 workers had read the IterableDataset Differing") as warned:
            run(again, 1)
    assert len(ours(warned)) == 1


def run_of(front: Any, dataset: Any) -> Any:
    with loader_of(front, dataset, **FORK, **LASTING) as loader:
        return run(loader, 3)[1:]


@both
def test_another_epoch_than_the_states_keeps_what_the_dataset_said(front: Any) -> None:
    with loader_of(front, Counting) as loader:
        run(loader, 2)
        state = loader.state_dict()
    again = loader_of(front, Counting)
    again.load_state_dict(state)
    again.set_epoch(7)
    assert {number // 100 for batch in run(again, 1)[0] for number in batch} == {2}


@both
@pytest.mark.parametrize("kind", [INLINE, {**FORK, **LASTING}])
def test_endless_loading_counts_on(front: Any, kind: dict[str, Any]) -> None:
    with loader_of(front, Counting, **kind) as loader:
        endless = loader.forever(4)
        whole = [batch.tolist() for _ in range(5) for batch in endless]
    for stop in range(1, 5):
        with loader_of(front, Counting, **kind) as loader:
            endless = loader.forever(4)
            first = [batch.tolist() for _ in range(stop) for batch in endless]
            state = endless.state_dict()
        with loader_of(front, Counting, **kind) as loader:
            endless = loader.forever(4)
            endless.load_state_dict(state)
            assert first + [batch.tolist() for _ in range(5 - stop) for batch in endless] == whole


@both
def test_workers_that_were_ended_between_two_epochs_leave_their_count(front: Any) -> None:
    with loader_of(front, Counting, **FORK, **LASTING) as loader:
        (first,) = run(loader, 1)
        loader.close()
        assert run(loader, 1) == [[[number + 100 for number in batch] for batch in first]]


@both
def test_who_cannot_be_asked_at_the_end_of_an_epoch_is_named_when_the_next_begins(front: Any) -> None:
    class Unable(Counting):
        def state_dict(self) -> Any:
            raise RuntimeError("not now")

    loader = loader_of(front, Unable)
    run(loader, 1)
    with pytest.warns(UserWarning, match=r"lacks that of its IterableDataset, because Unable.state_dict\(\) failed"):
        state = loader.state_dict()
    again = loader_of(front, Unable)
    again.load_state_dict(state)
    with pytest.warns(UserWarning, match=r"begins with the IterableDataset Unable as it is, because Unable.state_dict"):
        assert len(run(again, 1)[0]) == 5


# ---- samplers


class Sampler:
    """Counts its epochs, which decide its order."""

    def __init__(self) -> None:
        self.epoch = self.at = 0

    def __len__(self) -> int:
        return SIZE

    def __iter__(self) -> Iterator[int]:
        while self.at < SIZE:
            self.at += 1
            yield (self.at * 3 + self.epoch) % SIZE
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> Any:
        return {"at": self.at, "number": self.epoch}

    def load_state_dict(self, state: Any) -> None:
        self.at, self.epoch = state["at"], state["number"]


class WaitingSampler(Sampler):
    resumed: int | None = None

    def __iter__(self) -> Iterator[int]:
        if self.resumed is None:
            self.at, self.epoch = 0, self.epoch + 1
        self.at, self.resumed = self.resumed or 0, None
        for number in range(self.at, SIZE):
            self.at += 1
            yield (number * 3 + self.epoch) % SIZE

    def load_state_dict(self, state: Any) -> None:
        self.resumed, self.epoch = state["at"], state["number"]


@both
@pytest.mark.parametrize("sampler", [Sampler, WaitingSampler])
@pytest.mark.parametrize("size", [pytest.param(2, marks=thorough), 3])
@pytest.mark.parametrize(
    "kind",
    [INLINE, pytest.param(THREADS, marks=thorough), {**THREADS, **LASTING}],
    ids=["inline", "threads", "lasting threads"],
)
def test_a_sampler_goes_on_counting_its_epochs(front: Any, sampler: Any, size: int, kind: dict[str, Any]) -> None:
    def made() -> Any:
        return front(list(range(SIZE)), batch_size=size, sampler=sampler(), **kind)

    with made() as loader:
        whole = run(loader, 4)
    assert len({str(epoch) for epoch in whole}) == 4
    states = []
    with made() as loader:
        for epoch in range(3):
            states.append((epoch, 0, loader.state_dict()))
            iterator = iter(loader)
            states.append((epoch, 0, loader.state_dict()))  # workers may have been sent indices already
            states += [(epoch, number, loader.state_dict()) for number, _ in enumerate(iterator, 1)]
    for epoch, number, state in states:
        with made() as again:
            again.load_state_dict(json.loads(json.dumps(state)))
            assert json.loads(json.dumps(again.state_dict())) == json.loads(json.dumps(state))
            assert run(again, 4 - epoch) == [whole[epoch][number:], *whole[epoch + 1 :]], (epoch, number)


@both
def test_a_sampler_that_cannot_be_asked_between_epochs_is_named(front: Any) -> None:
    class Refusing(Sampler):
        def state_dict(self) -> Any:
            raise RuntimeError("not now")

    loader = front(list(range(SIZE)), batch_size=2, sampler=Refusing())
    run(loader, 1)
    with pytest.warns(
        UserWarning, match=r"lacks that of its sampler, because Refusing.state_dict\(\) failed: RuntimeE"
    ):
        loader.state_dict()


@both
def test_going_back_in_a_loader_whose_workers_have_read_on(front: Any) -> None:
    # A worker that had delivered nothing when the state was saved is not in it, and its dataset has read on since.
    with front(Halves(), batch_size=1, **FORK, **LASTING) as loader:
        iterator = iter(loader)
        first = int(next(iterator)[0])
        state = loader.state_dict()
        next(iterator), next(iterator)
        loader.load_state_dict(state)
        assert sorted([first, *(int(batch[0]) for batch in loader)]) == list(range(SIZE))


class Halves(Counting):
    """Every other number for each of two workers, from where it stands."""

    def __iter__(self) -> Iterator[int]:
        info: Any = torchs.get_worker_info() or feedline.get_worker_info()
        numbers = range(SIZE)[info.id :: info.num_workers]
        while self.at < len(numbers):
            self.at += 1
            yield numbers[self.at - 1]
        self.at = 0
