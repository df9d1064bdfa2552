"""Several workers make one batch: bit for bit the batch that one would have made, and its errors."""

from __future__ import annotations

import os
import random
import re
import threading
from collections import OrderedDict, UserDict
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
from bitwise import same
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kinds import FORK, SPAWN, THREADS, few

import feedline
from feedline import DataLoader
from feedline.collate.default import default_collate
from feedline.collate.pieces import Misfit, collate_piece, join
from feedline.engine.batch_splitting import may_split
from feedline.engine.division import REMEMBERED, UNKNOWN, DivisionFacts, Race, bounds, pieces_for
from feedline.errors import MemoryShortage
from feedline.loader import _job

FOUR: dict[str, Any] = {"num_workers": 4, "workers": "thread"}
WAIT = 600
"""Seconds until a test that waits for another worker gives up."""


class Point(NamedTuple):
    x: Any
    name: str


@dataclass(frozen=True)
class Record:
    values: Any
    label: int


numbers = st.one_of(
    st.integers(-(2**70), 2**70), st.integers(-3, 3), st.floats(allow_nan=False), st.booleans(), st.complex_numbers()
)
arrays = st.builds(
    lambda dtype, shape: np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape),
    st.sampled_from(["i2", "u2", "f2", "f4", ">f4", "i8", "u8", "?", "U2", "U5", "S3", "M8[s]", "i4,f4"]),
    st.sampled_from([(), (2,), (2,), (0,), (1, 2)]),
)
leaves = numbers | arrays | st.sampled_from(["a", "bc", b"d", np.float32(1), np.int64(2), None])
some_leaves = st.one_of(
    st.lists(leaves, min_size=6, max_size=6),
    st.lists(numbers, min_size=6, max_size=6),
    st.lists(arrays, min_size=6, max_size=6),
    leaves.map(lambda leaf: [leaf] * 6),
)
SHAPES: list[Callable[..., Any]] = [
    lambda a, b: a,
    lambda a, b: (a, b),
    lambda a, b: [a, [b], []],
    lambda a, b: {"a": a, "b": {"c": b}},
    lambda a, b: Point(a, b),
    lambda a, b: Record((a,), b),
    lambda a, b: {"a": a} if isinstance(b, int) else {"a": a, "b": b},
    lambda a, b: OrderedDict(a=a),
    lambda a, b: [a] if isinstance(b, int) else (a,),
]


def attempt(make: Callable[[], Any]) -> Any:
    try:
        return make()
    except Exception:
        return None


@settings(max_examples=few(800))
@given(some_leaves, some_leaves, st.sampled_from(SHAPES), st.integers(1, 5), st.booleans())
def test_pieces_are_the_whole_or_do_not_fit(
    first: list[Any], second: list[Any], shape: Callable[..., Any], cut: int, thrice: bool
) -> None:
    samples = list(map(shape, first, second))
    cuts = sorted({0, cut, 3, 6} if thrice else {0, cut, 6})
    parts = [samples[start:stop] for start, stop in pairwise(cuts)]
    made = attempt(lambda: join([collate_piece(part, np.empty, None) for part in parts]))
    if made is not None:
        assert same(made, default_collate(samples))


@pytest.mark.parametrize("shape", SHAPES[:6])
def test_plain_batches_do_fit(shape: Callable[..., Any]) -> None:
    samples = [shape(np.full(2, i, np.float32), i) for i in range(6)]
    made = join([collate_piece(samples[:1], np.empty, None), collate_piece(samples[1:], np.empty, None)])
    assert same(made, default_collate(samples))


def test_what_may_hold_more_than_its_items_does_not_fit() -> None:
    for kind in (OrderedDict, UserDict):
        with pytest.raises(Misfit):
            join([collate_piece([kind(a=1)], np.empty, None)])


def test_pieces_that_do_not_tell_what_the_whole_is_do_not_fit() -> None:
    mixed = [np.zeros(2, "i2"), np.zeros(2, "f4")]  # whose common type with u2 NumPy does not derive from theirs
    with pytest.raises(Misfit):
        collate_piece(mixed, np.empty, None)
    array = np.zeros(2)
    for one, other in [
        (array, array.astype("f4")),
        (array, np.zeros((2, 1))),
        (array, ["a"]),
        (["a"], [array]),
        ([array], [array, array]),
        ({"a": array}, {"b": array}),
        ([array], (array,)),
        (Record(array, 0), Point(array, "a")),
    ]:
        with pytest.raises(Misfit):
            join([one, other])


@given(st.integers(1, 300), st.integers(1, 40))
def test_bounds_cover_a_batch_evenly(size: int, pieces: int) -> None:
    pieces = min(size, pieces)
    found = bounds(size, pieces)
    assert [place for start, stop in found for place in range(start, stop)] == list(range(size))
    assert len(found) == pieces
    lengths = {stop - start for start, stop in found}
    assert min(lengths) >= 1
    assert max(lengths) - min(lengths) <= 1


def test_how_many_pieces() -> None:
    slow, quick, equal = 0.005, 0.000_001, {"begun": -1, "uneven": False}
    assert pieces_for(DivisionFacts(64, 4, slow, **equal)) == 1  # a steady flow gains nothing
    assert pieces_for(DivisionFacts(64, 4, slow, begun=7, uneven=False)) == 4
    assert pieces_for(DivisionFacts(64, 4, slow, begun=-1, uneven=True)) == 8
    assert pieces_for(DivisionFacts(3, 4, slow, begun=-1, uneven=True)) == 3
    assert pieces_for(DivisionFacts(64, 4, 0.000_1, begun=-1, uneven=True)) == 3  # of 2 ms
    assert pieces_for(DivisionFacts(64, 4, slow, begun=-1, uneven=True, joining=0.000_1)) == 8
    assert (
        pieces_for(DivisionFacts(64, 4, slow, begun=-1, uneven=True, joining=0.000_2)) == 1
    )  # the user's loop would pay
    assert pieces_for(DivisionFacts(64, 4, quick, begun=0, uneven=True)) == 1
    assert pieces_for(DivisionFacts(64, 4, None, begun=0, uneven=False)) == 4
    assert pieces_for(DivisionFacts(0, 4, None, begun=0, uneven=False)) == 1
    assert pieces_for(DivisionFacts(64, 4, None, begun=4 * UNKNOWN - 1, uneven=False)) == 4
    assert pieces_for(DivisionFacts(64, 4, None, begun=4 * UNKNOWN, uneven=False)) == 0
    assert pieces_for(DivisionFacts(1, 4, None, begun=8, uneven=False)) == 1  # all workers have something to do


def test_a_task_that_many_overtake_is_noticed_and_forgotten_again() -> None:
    race = Race()
    for was_first in (False, True, False, True):  # side by side
        race.back(was_first, workers=2)
    assert not race.is_uneven
    race.back(was_first=False, workers=2)
    race.back(was_first=False, workers=2)
    assert race.is_uneven
    for _ in range(REMEMBERED - 1):
        race.sent()
    assert race.is_uneven
    race.sent()
    assert not race.is_uneven


class Samples:
    """Samples of every kind of leaf; `draw` says which generator they take a number from."""

    def __init__(self, draw: str = "none", length: int = 30) -> None:
        self.draw = draw
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        drawn = getattr(self, self.draw)(index)
        return {"image": np.full((90, 200), index, np.float32), "it": (index, str(index)), "drawn": drawn}

    def none(self, index: int) -> float:
        return 0.0

    def by_sample(self, index: int) -> float:
        return float(feedline.rng().random())

    def python(self, index: int) -> float:
        return random.random()

    def numpy(self, index: int) -> float:
        return float(np.random.standard_normal())

    def a_whole_block(self, index: int) -> float:
        return float(np.random.random_sample(312)[index])  # after which NumPy's generator stands where it stood

    def rarely(self, index: int) -> float:
        return random.random() if index in (2, 7, 8) else 0.0


def batches(dataset: Any, **options: Any) -> list[Any]:
    with DataLoader(dataset, seed=3, **options) as loader:
        return [batch for _ in range(2) for batch in loader]


@settings(max_examples=few(60), deadline=None)
@given(
    draw=st.sampled_from(["none", "by_sample", "python", "numpy", "a_whole_block", "rarely"]),
    batch_size=st.integers(1, 12),
    order=st.sampled_from(["plain", "shuffle", "twice", "batches"]),
    drop_last=st.booleans(),
    workers=st.integers(2, 4),
    persistent=st.booleans(),
)
@example("by_sample", 12, "twice", False, 3, False)
@example("numpy", 12, "plain", False, 2, False)
@example("a_whole_block", 12, "plain", False, 2, False)
@example("rarely", 12, "plain", False, 2, True)
def test_split_or_not_the_batches_are_the_same(
    draw: str, batch_size: int, order: str, drop_last: bool, workers: int, persistent: bool
) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "drop_last": drop_last}
    if order == "shuffle":
        options["shuffle"] = True
    elif order == "twice":
        options["sampler"] = feedline.RandomSampler(range(30), replacement=True)
    elif order == "batches":
        options = {"batch_sampler": [[3, 1, 2], [7, 8, 7, 29], [5]]}
    found = batches(Samples(draw), num_workers=workers, workers="thread", persistent_workers=persistent, **options)
    assert same(found, batches(Samples(draw), **options))


@pytest.mark.parametrize(
    ("kind", "draw"), [(FORK, "by_sample"), (FORK, "rarely"), (FORK, "numpy"), (SPAWN, "by_sample")]
)
def test_so_they_are_from_processes(kind: dict[str, Any], draw: str) -> None:
    assert same(batches(Samples(draw), batch_size=8, **kind), batches(Samples(draw), batch_size=8))


class Together:
    """Samples 0 and 1 are read at the same time, or not at all."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(2)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> int:
        self.barrier.wait(WAIT)
        return index


def test_the_first_batch_is_made_by_several_workers() -> None:
    with DataLoader(Together(), batch_size=2, **THREADS) as loader:
        assert [batch.tolist() for batch in loader] == [[0, 1]]
        assert (loader.stats().epoch.batches, loader.stats().epoch.samples) == (1, 2)


class Uneven:
    """Sample 8 waits until 6 later ones are there; the last two are read at the same time, or not at all."""

    LAST = 40

    def __init__(self) -> None:
        self.overtaken = threading.Semaphore(0)
        self.barrier = threading.Barrier(2)

    def __len__(self) -> int:
        return self.LAST + 2

    def __getitem__(self, index: int) -> int:
        threading.Event().wait(0.01)  # at least: so that two pieces are worth it
        if index == 8:
            for _ in range(6):
                assert self.overtaken.acquire(timeout=WAIT)
        if index > 8:
            self.overtaken.release()
        if index >= self.LAST:
            self.barrier.wait(WAIT)
        return index


def test_batches_are_split_while_samples_are_uneven() -> None:
    with DataLoader(Uneven(), batch_size=2, prefetch_factor=4, **THREADS) as loader:
        assert [batch.tolist() for batch in loader] == [[i, i + 1] for i in range(0, Uneven.LAST + 2, 2)]


class OneWaits(Samples):
    def __getitem__(self, index: int) -> Any:
        if index == 0:
            threading.Event().wait(0.5)
        return super().__getitem__(index)


def test_what_took_long_once_does_not_make_pieces_of_all_that_follows() -> None:
    """As on a machine with more workers than CPUs, where most of the time that passes is others'."""
    with DataLoader(OneWaits(), batch_size=6, **FOUR) as loader:
        list(loader)
        flow, division = loader.stats().epoch, loader._session._division
        assert flow.fetching / flow.samples > 0.005
        assert division.seconds == division.quickest < 0.002


class ShortOnce(Samples):
    """The first time there is no memory, as for a piece beside the others."""

    was_short = False

    def __getitem__(self, index: int) -> Any:
        if index == 2 and not self.was_short:
            self.was_short = True
            raise MemoryShortage("no memory for a piece")
        return super().__getitem__(index)


def test_where_there_is_no_memory_for_pieces_one_worker_makes_the_batch() -> None:
    with DataLoader(ShortOnce(), batch_size=6, **FOUR) as loader:
        assert same(list(loader), list(DataLoader(Samples(), batch_size=6)))


def _only_in_workers(home: int) -> None:
    if os.getpid() == home:
        raise ValueError("not here")


@dataclass
class Homeless:
    """Leaves its worker and does not arrive."""

    home: int

    def __reduce__(self) -> Any:
        return _only_in_workers, (os.getppid(),)


class Homelesses(Samples):
    def __getitem__(self, index: int) -> Any:
        return Homeless(index)


def test_of_a_piece_that_cannot_be_rebuilt_the_batch_is_named() -> None:
    with (
        DataLoader(Homelesses(), batch_size=6, **FORK) as loader,
        pytest.raises(ValueError, match="not here") as caught,
    ):
        list(loader)
    assert "feedline: batch 0 came from its worker but could not be rebuilt" in caught.value.__notes__[0]


class Faulty(Samples):
    """Two samples fail, the later one first; one fails when it is first read; one is of another shape, or type."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.failed = threading.Event()

    def __getitem__(self, index: int) -> Any:
        if self.how == "ragged" and index == 6:
            return np.zeros(3)
        if self.how == "float" and index == 6:
            return np.zeros(2, np.float64)
        if self.how == "raises" and index in (5, 6):
            if index == 5:
                self.failed.wait(0.2)
            self.failed.set()
            raise ValueError(f"sample {index} is damaged")
        if self.how == "raises once" and index == 6 and not self.failed.is_set():
            self.failed.set()
            raise ValueError("not now")
        return np.zeros(2, np.float32)


def told(dataset: Any, **options: Any) -> list[Any]:
    """Batches and errors, with all that their notes say but which worker it was."""
    found: list[Any] = []
    iterator = iter(DataLoader(dataset, batch_size=4, **options))
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except Exception as error:
            found.append(
                (type(error), str(error), [re.sub("thread [0-9]", "thread", note) for note in error.__notes__])
            )


@pytest.mark.parametrize("how", ["raises", "raises once", "ragged", "float"])
def test_errors_are_those_of_one_worker(how: str) -> None:
    found = told(Faulty(how), **FOUR)
    assert same(found, told(Faulty(how), num_workers=1, workers="thread"))
    assert len(found) == 8


def test_an_epoch_left_early_leaves_no_pieces_to_the_next() -> None:
    options: dict[str, Any] = {"batch_size": 6, "shuffle": True, "seed": 1}
    expected = DataLoader(Samples("by_sample"), **options)
    with DataLoader(Samples("by_sample"), persistent_workers=True, **options, **FOUR) as loader:
        iter(expected)
        iter(loader).fill()  # all is out, or waits until more is known, and nothing has come back
        for number in (5, 1, 2, 3):
            whole = list(expected)
            taken = [batch for batch, _ in zip(loader, range(number), strict=False)]
            assert same(taken, whole[: len(taken)])


class Gated(Samples):
    """Sample 20 waits until the gate is open; the others take so long that batches are divided in every epoch."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()

    def __getitem__(self, index: int) -> Any:
        threading.Event().wait(0.002)
        if index == 20:
            self.gate.wait(WAIT)
        return super().__getitem__(index)


def test_pieces_of_an_epoch_that_was_left_are_not_made_whole_in_the_next() -> None:
    one, other = Gated(), Gated()
    expected = DataLoader(other, batch_size=6, seed=1)
    with DataLoader(one, batch_size=6, seed=1, persistent_workers=True, **FOUR) as loader:
        next(iter(loader))
        one.gate.set()
        other.gate.set()
        list(expected)
        one.draw = other.draw = "python"  # from now on batches have to be whole
        assert same(list(loader), list(expected))


class AtOnce(Samples):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


NEVER: list[tuple[Any, dict[str, Any]]] = [
    (Samples(), {"collate_fn": list}),
    (Samples(), {"collate": feedline.collate.pad()}),
    (Samples(), {"on_error": "skip"}),
    (Samples(), {"batch_size": None}),
    (Samples(), {"num_workers": 1}),
    (AtOnce(), {}),
    (np.zeros((4, 2)), {}),
    (feedline.ArrayDataset(np.zeros((4, 2))), {}),
]


def test_what_is_never_split() -> None:
    usual = {"batch_size": 4, "num_workers": 2}
    assert may_split(_job(DataLoader(Samples(), **usual).options))
    for dataset, options in NEVER:
        assert not may_split(_job(DataLoader(dataset, **{**usual, **options}).options))
