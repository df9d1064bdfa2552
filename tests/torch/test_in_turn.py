"""Which worker makes which batch: in turn, as torch does it, so that what a worker keeps is the same in every run."""

from __future__ import annotations

import os
import random
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kinds import few

import feedline
from feedline import OptionError
from feedline.engine.loop import BatchIterator
from feedline.torch import DataLoader, transfer

THREADS: dict[str, Any] = {"workers": "thread"}
FORK: dict[str, Any] = {"multiprocessing_context": "fork"}
LONG = 100


class Counts(torch.utils.data.Dataset[Any]):
    """A sample says who read it, and how many that one had read before."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.read: dict[int, int] = {}

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        before = self.read.get(info.id, 0)
        self.read[info.id] = before + 1
        return index, info.id, before


class CountsOn(torch.utils.data.IterableDataset[Any]):
    """The same of a stream; what was read in one epoch counts in the next."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.read = 0

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        assert info is not None
        for index in range(info.id, self.size, info.num_workers):
            self.read += 1
            yield index, info.id, self.read


def epochs(loader: Any, lengths: list[int | None]) -> list[Any]:
    """As many batches of each epoch; None for all there are."""
    found = []
    for length in lengths:
        batches: list[Any] = []
        iterator = iter(loader)
        while len(batches) != length and (batch := next(iterator, None)) is not None:
            batches.append([leaf.tolist() for leaf in batch])
        found.append(batches)
        del iterator
    return found


LENGTHS = st.lists(st.one_of(st.none(), st.integers(0, 8)), min_size=1, max_size=3)


@given(
    size=st.integers(1, 30),
    batch_size=st.integers(1, 5),
    count=st.integers(1, 3),
    lengths=LENGTHS,
    prefetch=st.integers(1, 3),
    kept=st.booleans(),
    stream=st.booleans(),
)
@settings(max_examples=few(60))
def test_each_worker_reads_what_torchs_worker_reads(
    size: int, batch_size: int, count: int, lengths: list[int | None], prefetch: int, kept: bool, stream: bool
) -> None:
    options: dict[str, Any] = {"prefetch_factor": prefetch, "persistent_workers": kept, "num_workers": count, **FORK}
    make = CountsOn if stream else Counts
    theirs = epochs(torch.utils.data.DataLoader(make(size), batch_size, **options), lengths)
    with DataLoader(make(size), batch_size, **options) as ours:
        assert epochs(ours, lengths) == theirs


def pinned(tensor: torch.Tensor, *device: Any) -> torch.Tensor:
    return tensor.clone()


@contextmanager
def pinning(ahead: Iterator[bool], pin: Any = pinned) -> Iterator[None]:
    """There is something to pin for; and when a batch is handed out, the next one is there already, or is not yet."""
    real = BatchIterator.is_ready

    def is_ready(batches: Any) -> bool:
        if not next(ahead):
            return False
        out = batches._ledger
        while not real(batches) and out.queue and out.following is None:
            batches._receive()
        return real(batches)

    with (
        mock.patch.object(torch.accelerator, "is_available", return_value=True),
        mock.patch.object(torch.accelerator, "current_accelerator", return_value=torch.device("cuda")),
        mock.patch.object(torch.accelerator, "current_device_index", return_value=0),
        mock.patch.object(torch.accelerator, "set_device_index"),
        mock.patch.object(torch.Tensor, "pin_memory", pin),
        mock.patch.object(BatchIterator, "is_ready", is_ready),
    ):
        yield


@given(
    size=st.integers(1, 30),
    batch_size=st.integers(1, 5),
    count=st.integers(1, 3),
    lengths=LENGTHS,
    prefetch=st.integers(1, 3),
    stream=st.booleans(),
    ahead=st.one_of(st.just([True]), st.just([False]), st.lists(st.booleans(), min_size=2, max_size=8)),
)
@example(size=30, batch_size=2, count=1, lengths=[3], prefetch=1, stream=False, ahead=[True])
@example(size=30, batch_size=2, count=1, lengths=[3], prefetch=1, stream=False, ahead=[False])
@example(size=30, batch_size=1, count=2, lengths=[5, 4], prefetch=2, stream=True, ahead=[True, True, False])
@settings(max_examples=few(60))
def test_so_it_does_whether_a_batch_is_pinned_ahead_or_not(
    size: int, batch_size: int, count: int, lengths: list[int | None], prefetch: int, stream: bool, ahead: list[bool]
) -> None:
    options: dict[str, Any] = {"prefetch_factor": prefetch, "persistent_workers": True, "num_workers": count, **FORK}
    make, lengths = CountsOn if stream else Counts, [*lengths, None]
    theirs = epochs(torch.utils.data.DataLoader(make(size), batch_size, **options), lengths)
    with pinning(cycle(ahead)), DataLoader(make(size), batch_size, pin_memory=True, **options) as ours:
        assert epochs(ours, lengths) == theirs


@pytest.mark.parametrize("slow", [False, True])
def test_a_copy_that_is_not_done_before_the_loop_is_left_changes_nothing(slow: bool) -> None:
    left, begun, epoch = threading.Event(), threading.Event(), count()

    def pin(tensor: torch.Tensor, *device: Any) -> torch.Tensor:
        if slow and 6 in tensor:  # of the fourth batch
            begun.set()
            assert left.wait(LONG)
        return tensor.clone()

    def thread_of_an_epoch(*args: Any) -> ThreadPoolExecutor:
        if next(epoch) == 1:
            left.set()
        return ThreadPoolExecutor(*args)

    options: dict[str, Any] = {"prefetch_factor": 1, "persistent_workers": True, "num_workers": 1, **FORK}
    theirs = epochs(torch.utils.data.DataLoader(Counts(30), 2, **options), [3, None])
    with pinning(cycle([True]), pin), mock.patch.object(transfer, "ThreadPoolExecutor", thread_of_an_epoch):
        with DataLoader(Counts(30), 2, pin_memory=True, **options) as ours:
            assert epochs(ours, [3, None]) == theirs
    assert begun.is_set() is slow


class FailsAt(Counts):
    """A sample that cannot be read."""

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        found = super().__getitem__(index)
        if index == 4:
            raise ValueError("cannot be read")
        return found


@pytest.mark.parametrize("ahead", [True, False])
def test_an_epoch_left_after_an_error_too(ahead: bool) -> None:
    options: dict[str, Any] = {"persistent_workers": True, "num_workers": 2, **FORK}

    def run(kind: Any, **more: Any) -> Any:
        loader = kind(FailsAt(40), 2, **options, **more)
        iterator = iter(loader)
        next(iterator), next(iterator)
        with pytest.raises(ValueError, match="cannot be read"):
            next(iterator)
        del iterator
        return epochs(loader, [2])

    with pinning(cycle([ahead])):
        assert run(DataLoader, pin_memory=True) == run(torch.utils.data.DataLoader)


class GoodInPart(Counts):
    """Of batches of two from the third on only every other one has a good sample."""

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        found = super().__getitem__(index)
        if index >= 4 and index % 4 < 2:
            raise ValueError("cannot be read")
        return found


@pytest.mark.parametrize("left_after", [1, 2, 3, 5])
def test_batches_without_a_good_sample_are_passed_over_whether_one_is_pinned_ahead_or_not(left_after: int) -> None:
    def run(ahead: bool) -> Any:
        options: dict[str, Any] = {"persistent_workers": True, "num_workers": 1, "prefetch_factor": 1, **FORK}
        careful: dict[str, Any] = {"on_error": "skip", "max_errors": None, "pin_memory": True}
        with pinning(cycle([ahead])), DataLoader(GoodInPart(20), 2, **options, **careful) as loader:
            return epochs(loader, [left_after, None])

    late, early = run(False), run(True)
    assert early == late
    assert [batch[0] for batch in early[1]] == [[0, 1], [2, 3], [6, 7], [10, 11], [14, 15], [18, 19]]


@pytest.mark.parametrize("kept", [False, True])
def test_threads_take_turns_too(kept: bool) -> None:
    # One dataset for all of them, which goes on counting.
    with DataLoader(Counts(21), 2, num_workers=3, persistent_workers=kept, **THREADS) as loader:
        first, second = epochs(loader, [None, None])
    for batches, before in (first, [0, 0, 0]), (second, [8, 7, 6]):
        assert [batch[1][0] for batch in batches] == [number % 3 for number in range(11)]
        for number, batch in enumerate(batches):
            assert batch[2][0] == before[number % 3]
            before[number % 3] += len(batch[2])


class DrawsOfItsOwn(torch.utils.data.Dataset[Any]):
    """The usual recipe: one generator per worker, made on first use."""

    generator: Any = None

    def __len__(self) -> int:
        return 60

    def __getitem__(self, index: int) -> tuple[int, float, float]:
        if self.generator is None:
            info = torch.utils.data.get_worker_info()
            assert info is not None
            self.generator = np.random.default_rng(info.seed), random.Random(info.seed)
        return index, self.generator[0].random(), self.generator[1].random()


@pytest.mark.parametrize("kept", [False, True])
def test_a_generator_made_in_each_worker_draws_what_it_draws_under_torch(kept: bool) -> None:
    def run(kind: Any) -> Any:
        seed = torch.Generator().manual_seed(3)
        options: dict[str, Any] = {"shuffle": True, "generator": seed, "num_workers": 3, "persistent_workers": kept}
        return epochs(kind(DrawsOfItsOwn(), batch_size=4, **options, **FORK), [None, 5, None])

    assert run(DataLoader) == run(torch.utils.data.DataLoader)


def test_free_is_for_whoever_asks_for_it_and_for_batches_in_any_order() -> None:
    def assigned(**more: Any) -> str:
        loader = DataLoader(Counts(8), num_workers=2, **more)
        return loader._feedline._assignment(loader)

    assert assigned() == "in_turn"
    assert assigned(assignment="free") == "free"
    assert assigned(in_order=False) == "free"
    assert assigned(in_order=False, assignment="in_turn") == "in_turn"
    auto = DataLoader(Counts(8), num_workers="auto")
    assert auto._feedline._assignment(auto) == "free"
    stream = DataLoader(CountsOn(8), num_workers="auto", in_order=False)
    assert stream._feedline._assignment(stream) == "in_turn"


@pytest.mark.parametrize("front", [feedline.DataLoader, DataLoader])
def test_what_cannot_be_is_refused(front: Any) -> None:
    with pytest.raises(OptionError, match=r"assignment must be one of .*'free'.*'in_turn'.*got 'fair'"):
        front(Counts(8), num_workers=2, assignment="fair")
    with pytest.raises(
        OptionError, match=r"assignment='in_turn' gives every Nth .*'auto' the number of workers changes"
    ):
        front(Counts(8), num_workers="auto", assignment="in_turn")


class Told(feedline.Dataset[Any]):
    """Who reads it, by feedline's own function."""

    def __len__(self) -> int:
        return 24

    def __getitem__(self, index: int) -> int:
        info = feedline.get_worker_info()
        assert info is not None
        return info.id


def test_the_core_takes_turns_where_it_is_told_to() -> None:
    options: dict[str, Any] = {"num_workers": 3, "assignment": "in_turn", "persistent_workers": True, **FORK}
    with feedline.DataLoader(Told(), 2, **options) as loader:
        for _ in range(2):
            assert [batch.tolist() for batch in loader] == [[number % 3] * 2 for number in range(12)]
        assert loader.assignment == "in_turn"
    assert feedline.DataLoader(Told()).assignment == "free"


class DiesOnce(Counts):
    def __init__(self, size: int, mark: Path) -> None:
        super().__init__(size)
        self.mark = mark

    def __getitem__(self, index: int) -> tuple[int, int, int]:
        if index == 9 and not self.mark.exists():
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def test_a_worker_that_died_is_said_to_have_lost_what_it_kept_and_its_turns_stay_its_own(tmp_path: Path) -> None:
    with DataLoader(DiesOnce(20, tmp_path / "once"), 2, num_workers=2, **FORK) as loader:
        with pytest.warns(
            UserWarning, match=r"(?s)SIGKILL.*no batch is lost\. What the dataset had kept .* begins again"
        ):
            (batches,) = epochs(loader, [None])
    assert [batch[0] for batch in batches] == [[at, at + 1] for at in range(0, 20, 2)]
    assert [batch[1][0] for batch in batches] == [0, 1] * 5
    assert [batch[2] for batch in batches[1::2]] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert [batch[2] for batch in batches[0::2]] == [[0, 1], [2, 3], [0, 1], [2, 3], [4, 5]]
