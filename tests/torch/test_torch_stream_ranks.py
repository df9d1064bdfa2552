"""feedline.torch: a stream under several ranks, whose torch generators need not agree."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from kinds import FORK, INLINE, QUICK, THREADS
from shared_streams import Asking, Keeping, Reordered, Shardable, Stream, as_rank, numbers, part, share

import feedline.torch as ours
from feedline import OptionError, StateError


def loader_of(dataset: Any, length: int, kind: dict[str, Any], **options: Any) -> Any:
    given = {"batch_size": 3, "ranks": "shard", "uneven": "exact", **options, **kind}
    return ours.DataLoader(dataset(length), **given)


def rank_of(rank: int, ranks: int, dataset: Any, length: int, kind: dict[str, Any], **options: Any) -> list[Any]:
    torch.manual_seed(10 * ranks + rank)  # another on each rank, as scripts do
    return part(loader_of(dataset, length, kind, **options), rank, ranks)[0]


@pytest.mark.parametrize("uneven", ["pad", "drop", "exact"])
@pytest.mark.parametrize("kind", QUICK)
def test_ranks_share_the_batches_that_one_alone_would_have(kind: dict[str, Any], uneven: str) -> None:
    alone = rank_of(0, 1, Reordered, 31, INLINE, shuffle_buffer=4)
    assert sorted(numbers(alone)) == list(range(31))
    for rank in range(3):
        got = rank_of(rank, 3, Reordered, 31, kind, shuffle_buffer=4, uneven=uneven)
        assert got == share(alone, 3, rank, uneven)


class AskingTorch(torchs.IterableDataset[Any]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[Any]:
        info = torchs.get_worker_info()
        assert info is not None
        return iter([(number,) for number in range(info.id, self.length, info.num_workers)])


@pytest.mark.parametrize("kind", QUICK)
@pytest.mark.parametrize("dataset", [Shardable, Asking, AskingTorch])
def test_a_stream_that_shares_itself_over_workers_is_shared_over_ranks_too(dataset: Any, kind: dict[str, Any]) -> None:
    got = [batch for rank in range(3) for batch in rank_of(rank, 3, dataset, 31, kind)]
    assert sorted(numbers(got)) == list(range(31))


@pytest.mark.parametrize("kind", [INLINE, FORK])
def test_a_run_goes_on_with_another_number_of_ranks(kind: dict[str, Any]) -> None:
    alone = rank_of(0, 1, Keeping, 50, INLINE)
    torch.manual_seed(1)
    first, state = part(loader_of(Keeping, 50, THREADS), 1, 2, None, 3)
    assert first == share(alone, 2, 1, "exact")[:3]
    for rank in range(3):
        torch.manual_seed(7 * rank)
        assert part(loader_of(Keeping, 50, kind), rank, 3, state)[0] == share(alone[6:], 3, rank, "exact")
    with pytest.raises(StateError, match="read in another way"):
        ours.DataLoader(Keeping(50), batch_size=3).load_state_dict(state)


def test_the_length_is_this_ranks() -> None:
    class Sized(Stream):
        def __len__(self) -> int:
            return self.length

    loader = loader_of(Sized, 31, INLINE, uneven="drop")
    assert len(loader) == 11
    with as_rank(2, 4):
        assert len(loader) == len(list(loader)) == 2
    with as_rank(0, 4):
        assert len(ours.DataLoader(Sized(31), batch_size=3, ranks="all")) == 11


def test_what_was_said_travels_with_the_loader() -> None:
    loader = loader_of(Stream, 20, INLINE, uneven="drop")
    assert (loader.ranks, loader.uneven) == ("shard", "drop")
    for again in (pickle.loads(pickle.dumps(loader)), ours.with_feedline(loader, num_workers=1)):
        assert (again._feedline.own.ranks, again._feedline.own.uneven) == ("shard", "drop")
    plain = ours.with_feedline(ours.DataLoader(Stream(20)), num_workers=1)
    assert (plain.ranks, plain.uneven) == (None, None)


def test_a_stream_that_every_rank_reads_whole_is_warned_of() -> None:
    with as_rank(0, 2), pytest.warns(UserWarning, match="there are 2 ranks, and each of them reads every element"):
        assert len(list(ours.DataLoader(Stream(20), batch_size=2))) == 10
    with as_rank(0, 2):
        assert len(list(ours.DataLoader(Stream(20), batch_size=2, ranks="all"))) == 10


def test_options_are_checked() -> None:
    with pytest.raises(OptionError, match="ranks is for an IterableDataset"):
        ours.DataLoader(range(4), ranks="all")
    with pytest.raises(OptionError, match="set ranks='shard', too"):
        ours.DataLoader(Stream(4), uneven="drop")


class Dispatcher:
    """As Accelerate wraps a loader that one rank reads for all."""

    def __init__(self, loader: Any) -> None:
        self.base_dataloader = loader

    def _fetch_batches(self, iterator: Any) -> Any:
        raise NotImplementedError


def test_a_stream_that_one_rank_reads_for_all_is_not_shared_out_and_not_warned_of() -> None:
    made = torchs.DataLoader(Stream(20), batch_size=2)
    assert ours.with_feedline(Dispatcher(made)).base_dataloader.ranks == "all"
    with pytest.raises(OptionError, match="Accelerate reads this IterableDataset on one rank"):
        ours.with_feedline(Dispatcher(made), ranks="shard")
