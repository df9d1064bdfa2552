"""A stream under several ranks: with ranks="shard" each batch is one rank's, whatever the workers; a run goes on."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, QUICK, SPAWN, THREADS, few, thorough
from shared_streams import (
    EXPECTED,
    READS,
    SHARING,
    WHOLE,
    Asking,
    Bounded,
    Keeping,
    Reordered,
    Shardable,
    Stream,
    as_rank,
    give_share,
    numbers,
    part,
    plain,
    share,
    threads,
)

import feedline
from feedline import DataLoader, IterableDataset, OptionError, StateError, get_worker_info

UNEVEN = ("pad", "drop", "exact")


def loader_of(dataset: Any, length: int, kind: dict[str, Any], **options: Any) -> DataLoader:
    return DataLoader(dataset(length), **{"batch_size": 3, "ranks": "shard", "uneven": "exact", **options, **kind})


def epoch(dataset: Any, length: int, ranks: int, kind: dict[str, Any], **options: Any) -> list[list[Any]]:
    """What each rank gets."""
    return [part(loader_of(dataset, length, kind, **options), rank, ranks)[0] for rank in range(ranks)]


@settings(max_examples=few(300))
@given(
    st.sampled_from(WHOLE),
    st.integers(0, 30),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 4),
    st.sampled_from(UNEVEN),
    st.sampled_from([0, 0, 1, 5]),
    st.booleans(),
)
def test_ranks_share_the_batches_that_one_alone_would_have(
    dataset: Any, length: int, size: int, workers: int, ranks: int, uneven: str, buffer: int, drop: bool
) -> None:
    options = {"batch_size": size, "shuffle_buffer": buffer}
    (alone,) = epoch(dataset, length, 1, INLINE, **options)
    got = epoch(dataset, length, ranks, threads(workers), **options, uneven=uneven, drop_last=drop)
    assert got == [share(alone, ranks, rank, uneven, size if drop else None) for rank in range(ranks)]
    assert sorted(numbers(alone)) == list(range(length))


@pytest.mark.parametrize("uneven", UNEVEN)
@pytest.mark.parametrize("kind", [*QUICK[2:], pytest.param({**FORK, "num_workers": 3}, id="three")])
def test_processes_too(kind: dict[str, Any], uneven: str) -> None:
    alone, _ = part(loader_of(Reordered, 31, INLINE, shuffle_buffer=4), 0, 1)
    got = epoch(Reordered, 31, 3, kind, shuffle_buffer=4, uneven=uneven)
    assert got == [share(alone, 3, rank, uneven) for rank in range(3)]


@thorough
def test_spawned_ones_too() -> None:
    assert part(loader_of(Stream, 20, SPAWN), 1, 2) == part(loader_of(Stream, 20, THREADS), 1, 2)


def test_single_elements_are_shared_out() -> None:
    got = epoch(Stream, 7, 2, INLINE, batch_size=None, uneven="pad")
    assert [[batch[0] for batch in rank] for rank in got] == [[0, 2, 4, 6], [1, 3, 5, 6]]


@settings(max_examples=few(150))
@given(
    st.sampled_from(SHARING),
    st.integers(0, 30),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(1, 4),
    st.sampled_from([0, 0, 5]),
)
def test_a_stream_that_shares_itself_over_workers_is_shared_over_ranks_too(
    dataset: Any, length: int, size: int, workers: int, ranks: int, buffer: int
) -> None:
    got = epoch(dataset, length, ranks, threads(workers), batch_size=size, shuffle_buffer=buffer)
    assert sorted(numbers(batch for rank in got for batch in rank)) == list(range(length))
    if ranks > 1:  # one alone is not asked for a share
        count = ranks * max(1, workers)
        for rank, batches in enumerate(got):
            assert {number % count % ranks for number in numbers(batches)} <= {rank}


@pytest.mark.parametrize("kind", QUICK[1:])
def test_a_stream_whose_share_is_given_by_worker_init_fn_is_shared_over_ranks(kind: dict[str, Any]) -> None:
    got = epoch(Bounded, 31, 3, kind, worker_init_fn=give_share)
    assert sorted(numbers(batch for rank in got for batch in rank)) == list(range(31))


@pytest.mark.parametrize("uneven", ["pad", "drop", None])
@pytest.mark.parametrize("dataset", SHARING)
@pytest.mark.parametrize("kind", [INLINE, THREADS])
def test_where_no_rank_can_know_the_others_ends_they_are_not_promised(
    kind: dict[str, Any], dataset: Any, uneven: str | None
) -> None:
    with pytest.raises(OptionError, match=r"is not possible.*uneven='exact'"):
        epoch(dataset, 20, 2, kind, uneven=uneven)
    assert epoch(dataset, 20, 1, INLINE, uneven=uneven)  # one rank ends when it ends


@pytest.mark.filterwarnings("ignore:the IterableDataset neither asks")
@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK], ids=["inline", "threads", "fork"])
@pytest.mark.parametrize(("dataset", "why"), [(Shardable, "had none for"), (Asking, "had none for"), (Stream, "fewer")])
def test_a_rank_that_gets_nothing_says_so_once(dataset: Any, why: str, kind: dict[str, Any]) -> None:
    workers = max(1, kind.get("num_workers", 0))
    with as_rank(0, 2), loader_of(dataset, 1, kind) as loader:
        assert numbers(plain(loader)) == [0]  # its workers after the first have nothing, which is all right
    with as_rank(1, 2), loader_of(dataset, 1, kind) as loader:
        with pytest.warns(UserWarning, match=rf"^rank 1 of 2 got no element.*{why}") as told:
            assert [list(loader), list(loader)] == [[], []]
        nothing = [str(each.message) for each in told if "got no element" in str(each.message)]
        assert len(nothing) == 1
        assert (f"({workers * 2})" in nothing[0]) is (dataset is not Stream)


def test_a_rank_that_gets_something_or_shares_nothing_says_nothing() -> None:
    for rank, ranks, length in ((0, 1, 0), (0, 2, 4), (1, 2, 4)):
        with as_rank(rank, ranks), loader_of(Stream, length, INLINE) as loader:
            assert len(plain(loader)) == bool(length)
    with as_rank(1, 2), loader_of(Stream, 4, INLINE) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        loader.load_state_dict(state)
        assert plain(loader) == []  # the rest of an epoch may well be empty


def steps(
    dataset: Any, length: int, ranks: int, kind: dict[str, Any], count: int, states: list[Any] | None, **options: Any
) -> tuple[list[list[Any]], list[Any]]:
    """So many steps of all ranks, from the state of any of them on; the batches of each, and their states."""
    found = []
    for rank in range(ranks):
        state = None if states is None else states[rank % len(states)]
        found.append(part(loader_of(dataset, length, kind, **options), rank, ranks, state, count))
    return [batches for batches, _ in found], [state for _, state in found]


@settings(max_examples=few(300))
@given(
    st.sampled_from(WHOLE),
    st.integers(0, 40),
    st.integers(1, 4),
    st.sampled_from([0, 0, 1, 5]),
    st.sampled_from(UNEVEN),
    st.booleans(),
    st.lists(st.integers(1, 4), min_size=3, max_size=3),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
    st.lists(st.integers(0, 4), min_size=2, max_size=2),
    st.integers(0, 3),
)
def test_a_run_goes_on_with_another_number_of_ranks_and_workers(
    dataset: Any,
    length: int,
    size: int,
    buffer: int,
    uneven: str,
    drop: bool,
    ranks: list[int],
    workers: list[int],
    stops: list[int],
    whose: int,
) -> None:
    options = {"batch_size": size, "shuffle_buffer": buffer, "uneven": uneven, "drop_last": drop}
    rest, _ = part(loader_of(dataset, length, INLINE, **{**options, "drop_last": False}), 0, 1)
    rest = [batch for batch in rest if not drop or len(batch[0]) == size]
    states: list[Any] | None = None
    for count, number, stop in zip(ranks, workers, [*stops, None], strict=True):
        got, states = steps(dataset, length, count, threads(number), stop, states, **options)
        expected = [share(rest, count, rank, uneven) for rank in range(count)]
        assert got == [batches[:stop] for batches in expected]
        if stop is None or any(stop >= len(batches) for batches in expected):
            return  # the epoch is over, for some rank at least
        rest = rest[stop * count :]
        states = [states[whose % count]]  # any of them will do


@pytest.mark.parametrize("buffer", [0, 4])
def test_processes_go_on_with_another_number_of_ranks(buffer: int) -> None:
    whole, _ = part(loader_of(Keeping, 60, INLINE, shuffle_buffer=buffer), 0, 1)
    first, states = steps(Keeping, 60, 2, FORK, 3, None, shuffle_buffer=buffer)
    assert first == [share(whole, 2, rank, "exact")[:3] for rank in range(2)]
    rest, _ = steps(Keeping, 60, 3, FORK, None, states[1:], shuffle_buffer=buffer)
    assert rest == [share(whole[6:], 3, rank, "exact") for rank in range(3)]


def test_a_stream_that_keeps_its_place_is_not_read_again_by_other_ranks() -> None:
    _, states = steps(Keeping, 10**9, 2, INLINE, 5, None)
    with as_rank(1, 3), warnings.catch_warnings(), loader_of(Keeping, 10**9, INLINE) as loader:
        warnings.simplefilter("error")
        loader.load_state_dict(states[0])
        READS.clear()
        assert next(iter(loader))[0].tolist() == [33, 34, 35]
    assert list(range(27, 36)) == READS  # where rank 0 stood: after batch 8


def test_several_ranks_go_on_with_what_one_has_read_in_one_part_and_one_with_that() -> None:
    (alone,), states = steps(Stream, 30, 1, INLINE, 1, None)
    second, states = steps(Stream, 30, 2, INLINE, 2, states)
    (rest,), _ = steps(Stream, 30, 1, THREADS, None, states[1:])
    assert numbers(alone + second[0] + second[1] + rest) == [*range(6), *range(9, 12), *range(6, 9), *range(12, 30)]


@settings(max_examples=few(200))
@given(
    st.sampled_from(SHARING),
    st.integers(0, 60),
    st.integers(1, 3),
    st.integers(0, 3),
    st.lists(st.integers(0, 4), min_size=2, max_size=2),
    st.lists(st.integers(0, 3), min_size=2, max_size=2),
    st.sampled_from([0, 0, 4]),
)
def test_a_share_of_its_own_goes_on_on_the_rank_that_saved_it(
    dataset: Any, length: int, ranks: int, workers: int, stops: list[int], others: list[int], buffer: int
) -> None:
    options = {"batch_size": 2, "shuffle_buffer": buffer}
    whole = epoch(dataset, length, ranks, threads(workers), **options)
    for rank in range(ranks):
        got, state = part(loader_of(dataset, length, threads(workers), **options), rank, ranks, None, stops[0])
        for number, stop in zip(others, [stops[1], None], strict=True):
            if not state["epoch"]:  # else it is over
                more, state = part(loader_of(dataset, length, threads(number), **options), rank, ranks, state, stop)
                got += more
        assert got == whole[rank]


@pytest.mark.parametrize("dataset", SHARING)
@pytest.mark.parametrize(("rank", "ranks"), [(0, 1), (1, 2), (0, 3)])
def test_where_the_other_ranks_stood_is_not_guessed(dataset: Any, rank: int, ranks: int) -> None:
    _, states = steps(dataset, 50, 2, THREADS, 3, None)
    with pytest.raises(StateError, match=r"saved by rank 0 of 2.*each from the state that it saved itself"):
        part(loader_of(dataset, 50, INLINE), rank, ranks, states[0])


@settings(max_examples=few(200))
@given(
    st.sampled_from(SHARING),
    st.integers(0, 40),
    st.integers(0, 4),
    st.integers(0, 6),
    st.integers(1, 4),
    st.integers(0, 3),
)
def test_a_share_of_its_own_that_one_rank_has_read_is_continued_by_several(
    dataset: Any, length: int, workers: int, stop: int, ranks: int, more: int
) -> None:
    first, states = steps(dataset, length, 1, threads(workers), stop, None, batch_size=2)
    if states[0]["epoch"]:
        return  # it is over
    rest, _ = steps(dataset, length, ranks, threads(more), None, states, batch_size=2)
    assert sorted(numbers(batch for rank in [*first, *rest] for batch in rank)) == list(range(length))


def test_batches_delivered_ahead_belong_to_the_rank_that_had_them() -> None:
    whole, _ = part(loader_of(Stream, 50, INLINE), 0, 2)
    state = {**part(loader_of(Stream, 50, INLINE), 0, 2, None, 2)[1], "ahead": [6], "batch_size": 3}
    assert part(loader_of(Stream, 50, INLINE), 0, 2, state)[0] == whole[2:3] + whole[4:]
    with pytest.raises(StateError, match=r"in_order=False.*which ones the other ranks had"):
        part(loader_of(Stream, 50, INLINE), 1, 2, state)


def test_a_state_of_a_stream_that_was_not_shared_out_is_another_one() -> None:
    _, state = part(loader_of(Stream, 50, INLINE), 0, 2, None, 2)
    with pytest.raises(StateError, match=r"read in another way.*ranks='shard'"):
        DataLoader(Stream(50), batch_size=3, ranks="all").load_state_dict(state)
    for damaged in ([2, 2], [2], ["2", 0]):
        with pytest.raises(StateError, match="damaged"):
            loader_of(Stream, 50, INLINE).load_state_dict({**state, "ranks": damaged})


def test_the_length_is_this_ranks() -> None:
    class Sized(Stream):
        def __len__(self) -> int:
            return self.length

    for uneven in UNEVEN:
        for rank in range(4):
            loader = loader_of(Sized, 31, INLINE, uneven=uneven)  # 11 batches
            got, _ = part(loader, rank, 4)
            with as_rank(rank, 4):
                assert len(loader) == len(got) == {"pad": 3, "drop": 2, "exact": 3 if rank < 3 else 2}[uneven]


def test_workers_are_counted_over_all_ranks() -> None:
    class Telling(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            info = get_worker_info()
            assert info is not None
            return iter([(info.id, info.num_workers)])

    found = [part(DataLoader(Telling(), ranks="shard", uneven="exact", **THREADS), rank, 3)[0] for rank in range(3)]
    assert sorted((one[0][0], one[1][0]) for rank in found for one in rank) == [(number, 6) for number in range(6)]


@pytest.mark.parametrize("uneven", UNEVEN)
def test_a_worker_that_dies_is_replaced_and_every_rank_has_its_batches(tmp_path: Path, uneven: str) -> None:
    class Deadly(Stream):
        def __iter__(self) -> Iterator[Any]:
            for number in range(self.length):
                if number == 16 and get_worker_info().id < 2 and not os.path.exists(tmp_path / "once"):  # type: ignore[union-attr]
                    (tmp_path / "once").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                yield number, number

    alone = plain([list(range(start, min(40, start + 3)))] * 2 for start in range(0, 40, 3))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="worker . .*was killed")
        got = epoch(Deadly, 40, 2, FORK, uneven=uneven)
    assert (tmp_path / "once").exists()
    assert got == [share(alone, 2, rank, uneven) for rank in range(2)]


@pytest.mark.parametrize("kind", QUICK[1:])
def test_persistent_workers_share_every_epoch_out(kind: dict[str, Any]) -> None:
    found: dict[int, list[int]] = {0: [], 1: [], 2: []}
    for rank in range(2):
        with as_rank(rank, 2), loader_of(Reordered, 25, kind, persistent_workers=True) as loader:
            for each in found:
                with warnings.catch_warnings():
                    warnings.filterwarnings("ignore", message=EXPECTED)
                    found[each] += numbers(plain(loader))
    assert [sorted(each) for each in found.values()] == [list(range(25))] * 3
    assert found[0] != found[1] != found[2]


class Damaged(Iterator[Any]):
    """Raises for some elements, and goes on."""

    def __init__(self, length: int, bad: set[int]) -> None:
        self.at, self.length, self.bad = -1, length, bad

    def __next__(self) -> Any:
        self.at += 1
        if self.at >= self.length:
            raise StopIteration
        if self.at in self.bad:
            raise ValueError(f"element {self.at} is damaged")
        return self.at, self.at


class PartlyDamaged(Stream):
    bad = frozenset((3, 4, 17))

    def __iter__(self) -> Iterator[Any]:
        return Damaged(self.length, set(self.bad))


@pytest.mark.parametrize("uneven", UNEVEN)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("workers", [0, 2])
def test_bad_elements_are_left_out_and_reported_by_one_rank(workers: int, on_error: str, uneven: str) -> None:
    options = {"on_error": on_error, "uneven": uneven}
    alone, _ = part(loader_of(PartlyDamaged, 32, INLINE, **options), 0, 1)
    reported = []
    for rank in range(3):
        loader = loader_of(PartlyDamaged, 32, threads(workers), **options)
        assert part(loader, rank, 3)[0] == share(alone, 3, rank, uneven)
        reported += [bad.place for bad in loader.errors()]
    assert sorted(reported) == sorted(PartlyDamaged.bad)


@pytest.mark.parametrize("kind", QUICK[1:])
def test_out_of_order_too(kind: dict[str, Any]) -> None:
    alone, _ = part(loader_of(Stream, 31, INLINE), 0, 1)
    for rank in range(2):
        got, _ = part(loader_of(Stream, 31, kind, in_order=False, uneven="pad"), rank, 2)
        assert sorted(got) == sorted(share(alone, 2, rank, "pad"))


class FailsOnOne(Stream):
    """A generator that meets an error on rank 1 only, in a batch of rank 0."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.length):
            if number == 13 and get_worker_info().id % 2:  # type: ignore[union-attr]
                raise OSError("stale file handle")
            yield number, number


@pytest.mark.parametrize("uneven", UNEVEN)
def test_a_rank_on_which_the_stream_ends_by_an_error_that_another_is_to_report_says_so(uneven: str) -> None:
    assert len(part(loader_of(FailsOnOne, 31, INLINE, uneven=uneven), 0, 2)[0]) == {"drop": 5}.get(uneven, 6)
    with pytest.warns(UserWarning, match=r"ended on this rank after an error.*OSError: stale file handle"):
        assert len(part(loader_of(FailsOnOne, 31, INLINE, uneven=uneven), 1, 2)[0]) == 2


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match=r"ranks is for an IterableDataset.*DistributedSampler\(dataset\)"):
        DataLoader(np.arange(4), ranks="shard")
    with pytest.raises(OptionError, match="ranks must be one of"):
        DataLoader(Stream(4), ranks="share")
    with pytest.raises(OptionError, match="uneven must be one of"):
        DataLoader(Stream(4), ranks="shard", uneven="even")
    with pytest.raises(OptionError, match="set ranks='shard', too"):
        DataLoader(Stream(4), uneven="drop")
    loader = DataLoader(Stream(4), ranks="shard")
    assert (loader.ranks, loader.uneven, loader.seed) == ("shard", "pad", 0)
    assert DataLoader(Stream(4), ranks="shard", seed=3).seed == 3
    assert feedline.DataLoader(Stream(4)).ranks is None
