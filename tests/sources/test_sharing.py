"""Streams made of units: each sample once over all ranks and workers, in turns that are even, and resumed exactly."""

from __future__ import annotations

import json
import pickle
import warnings
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS
from shared_streams import EXPECTED, as_rank

from feedline import DataLoader, IterableDataset, OptionError, StateError
from feedline.sources.sharing import State, Unit, UnitStream, deal


class Numbers(UnitStream):
    """Units of so many numbers each."""

    def __init__(self, sizes: list[int], shuffle: bool = False, ranks: tuple[int | None, int | None] = (1, 0)) -> None:
        super().__init__(shuffle, *ranks)
        self.sizes = sizes

    def _count(self) -> int:
        return len(self.sizes)

    def _names(self) -> Iterator[str]:
        return map(str, self.sizes)

    def _open(self, unit: Unit, place: State | None) -> NumbersReader:
        if self.sizes[unit.number] < 0:
            raise ValueError(f"unit {unit.number} is broken")
        return NumbersReader(unit, self.sizes[unit.number], (place or {"at": 0})["at"])


class NumbersReader:
    ended = False

    def __init__(self, unit: Unit, size: int, at: int) -> None:
        self.unit, self.size, self.at = unit, size, at

    def __iter__(self) -> NumbersReader:
        return self

    def __next__(self) -> int:
        while self.at < self.size:
            self.at += 1
            if self.unit.has(self.at - 1):
                return self.unit.number * 1000 + self.at - 1
        raise StopIteration

    def place(self) -> State:
        return {"at": self.at}


def everything(sizes: list[int]) -> list[int]:
    return [number * 1000 + at for number, size in enumerate(sizes) for at in range(size)]


@given(st.integers(0, 30), st.integers(1, 12))
def test_what_is_dealt_is_everything_once_and_even(units: int, count: int) -> None:
    hands = [deal([Unit(number) for number in range(units)], index, count) for index in range(count)]
    shares = [sum(1 / unit.every for unit in hand) for hand in hands]
    assert max(shares) - min(shares) < 1e-9
    for number in range(units):
        parts = [unit for hand in hands for unit in hand if unit.number == number]
        assert all(sum(unit.has(sample) for unit in parts) == 1 for sample in range(30))


def test_few_read_the_same_unit() -> None:
    hands = [deal([Unit(0), Unit(1)], index, 4) for index in range(4)]
    assert [[unit.number for unit in hand] for hand in hands] == [[0], [1], [0], [1]]
    assert {hand[0].every for hand in hands} == {2}


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.integers(1, 4), st.integers(1, 5), st.booleans())
def test_each_sample_once_over_ranks_and_workers(sizes: list[int], ranks: int, workers: int, shuffle: bool) -> None:
    seen: list[int] = []
    for rank in range(ranks):
        stream = Numbers(sizes, shuffle, (ranks, rank))
        kind: dict[str, Any] = {"num_workers": workers, "workers": "thread"} if workers > 1 else {}
        # Ranks that were given different seeds.
        with DataLoader(stream, 3, collate_fn=list, seed=rank, **kind) as loader:
            seen += [number for batch in loader for number in batch]
    assert sorted(seen) == everything(sizes)


def test_a_part_of_a_part() -> None:
    sizes = [5, 3, 4, 7, 1]
    stream = Numbers(sizes)
    parts = [list(stream.shard(outer, 2).shard(inner, 3)) for outer in range(2) for inner in range(3)]
    assert sorted(number for part in parts for number in part) == everything(sizes)


def test_shuffled_units_come_in_another_order_in_each_epoch_and_the_same_with_the_same_seed() -> None:
    def epochs(seed: int) -> list[list[int]]:
        with DataLoader(Numbers([2] * 20, shuffle=True), None, seed=seed) as loader:
            return [[int(each) for each in loader] for _ in range(2)]

    first, second = epochs(1)
    assert [first, second] == epochs(1)
    assert first != second
    assert first != epochs(2)[0]
    assert sorted(first) == sorted(second) == everything([2] * 20)


@given(
    sizes=st.lists(st.integers(0, 9), min_size=1, max_size=6),
    after=st.integers(0, 8),
    workers=st.integers(1, 3),
    shuffle=st.booleans(),
    buffer=st.sampled_from([0, 4]),
)
def test_it_goes_on_where_it_was(sizes: list[int], after: int, workers: int, shuffle: bool, buffer: int) -> None:
    options: dict[str, Any] = {"collate_fn": list, "shuffle_buffer": buffer}
    kind: dict[str, Any] = {"num_workers": workers, "workers": "thread"} if workers > 1 else {}
    with DataLoader(Numbers(sizes, shuffle), 2, seed=3, **kind, **options) as loader:
        batches = iter(loader)
        if len(list(islice(batches, after))) < after:
            return  # the epoch is over
        state = json.loads(json.dumps(loader.state_dict()))
        rest = list(batches)
    with DataLoader(Numbers(sizes, shuffle), 2, **options) as loader:  # another number of workers, another seed
        loader.load_state_dict(state)
        assert list(loader) == rest


def test_a_unit_that_cannot_be_opened_is_told_once_and_the_next_follows() -> None:
    with DataLoader(Numbers([2, -1, 3]), 2, collate_fn=list, on_error="skip") as loader:
        assert [number for batch in loader for number in batch] == [0, 1, 2000, 2001, 2002]
        assert [bad.error for bad in loader.errors()] == ["ValueError: unit 1 is broken"]


def test_a_state_of_something_else_is_refused() -> None:
    reading = iter(Numbers([2, 3]))
    state = reading.state_dict()
    with pytest.raises(StateError, match="other files"):
        iter(Numbers([2, 4])).load_state_dict(state)
    with pytest.raises(StateError, match="rank"):
        iter(Numbers([2, 3], ranks=(2, 1))).load_state_dict(state)
    with pytest.raises(StateError, match="part"):
        iter(Numbers([2, 3]).shard(0, 2)).load_state_dict(state)


class Wrapped(IterableDataset[int]):
    def __init__(self, stream: UnitStream) -> None:
        self.stream = stream

    def __iter__(self) -> Iterator[int]:
        yield from self.stream


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK])
@pytest.mark.parametrize("ranks", [(None, None), (2, 0)], ids=["found", "given"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_loader_knows_that_they_share_themselves_out_over_ranks(
    wrapped: bool, ranks: tuple[int | None, int | None], kind: dict[str, Any]
) -> None:
    with as_rank(0, 2), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=EXPECTED)
        stream: Any = Numbers([4, 4, 4], ranks=ranks)
        stream = Wrapped(stream) if wrapped else stream
        with DataLoader(stream, batch_size=2, **kind) as loader:
            assert sum(map(len, loader)) == 6
        with pytest.raises(OptionError, match="does so itself"):
            next(iter(DataLoader(stream, ranks="shard", **kind)))


def test_one_that_reads_everything_on_every_rank_can_be_shared_out_by_the_loader() -> None:
    found = []
    for rank in range(2):
        with as_rank(rank, 2):
            loader = DataLoader(Numbers([4, 5]), batch_size=None, ranks="shard", uneven="exact")
            found += list(loader)
    assert sorted(found) == everything([4, 5])


def test_ranks_are_found_given_or_one(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    stream = Numbers([1], ranks=(None, None))
    early = pickle.dumps(stream)
    assert stream.ranks == (1, 0)
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    assert stream.ranks == (4, 2)
    assert pickle.loads(early).ranks == (4, 2)  # pickled before this was a rank: it asks where it arrives
    late = pickle.dumps(stream)
    monkeypatch.delenv("RANK")
    assert pickle.loads(late).ranks == (4, 2)  # a worker, which cannot ask
    assert Numbers([1], ranks=(3, 1)).ranks == (3, 1)
    with pytest.raises(OptionError, match="pass both"):
        Numbers([1], ranks=(3, None))
    with pytest.raises(OptionError, match="below"):
        Numbers([1], ranks=(3, 3))


@pytest.mark.parametrize("kind", [FORK, THREADS])
def test_all_workers_draw_the_same_order(kind: dict[str, Any]) -> None:
    with DataLoader(Numbers([1] * 9, shuffle=True), 2, collate_fn=list, seed=1, **kind) as loader:
        for _ in range(3):
            assert sorted(number for batch in loader for number in batch) == everything([1] * 9)
