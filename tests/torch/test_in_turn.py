"""Which worker makes which batch: in turn, as torch does it, so that what a worker keeps is the same in every run."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

import feedline
from feedline import OptionError
from feedline.torch import DataLoader

THREADS: dict[str, Any] = {"workers": "thread"}
FORK: dict[str, Any] = {"multiprocessing_context": "fork"}


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
    with pytest.raises(OptionError, match=r"assignment='in_turn' gives every Nth batch .*'auto' their number changes"):
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
            UserWarning, match=r"(?s)SIGKILL.*no batch is lost\. What the dataset had kept .* begins anew"
        ):
            (batches,) = epochs(loader, [None])
    assert [batch[0] for batch in batches] == [[at, at + 1] for at in range(0, 20, 2)]
    assert [batch[1][0] for batch in batches] == [0, 1] * 5
    assert [batch[2] for batch in batches[1::2]] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]
    assert [batch[2] for batch in batches[0::2]] == [[0, 1], [2, 3], [0, 1], [2, 3], [4, 5]]
