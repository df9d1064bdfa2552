"""Iterable datasets: each element once over all workers, without the user writing sharding code."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, THREADS, every_kind, every_worker, few, ours, quick_kinds
from made_datasets import Count, Stretch, elements

from feedline import ChainDataset, DataLoader, IterableDataset, get_worker_info

WHOLE = "the IterableDataset neither asks"


class SelfSharding(Count):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        if info is None:
            return iter(range(self.length))
        return iter(range(info.id, self.length, info.num_workers))


class SelfShardingLate(Count):
    """A generator, whose code runs only when the first element is asked for."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(first, self.length, step)


class Shardable(Count):
    def shard(self, index: int, count: int) -> Iterator[int]:
        assert 0 <= index < count
        return iter(range(index, self.length, count))


@every_worker
@pytest.mark.parametrize("dataset", [SelfSharding, SelfShardingLate, Shardable])
def test_a_stream_that_can_be_shared_is_shared(kind: dict[str, Any], dataset: type[Count]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sorted(elements(DataLoader(dataset(23), batch_size=4, **kind))) == list(range(23))


@every_worker
def test_any_other_stream_is_read_by_all_and_split_with_one_warning(kind: dict[str, Any]) -> None:
    loader = DataLoader(Count(23), batch_size=4, **kind)
    with pytest.warns(UserWarning, match=WHOLE) as warned:
        twice = [[int(value) for batch in loader for value in batch] for _ in range(2)]
    assert twice == [list(range(23))] * 2
    (only,) = ours(warned)
    assert "shard(index, count)" in str(only.message)
    assert only.filename == __file__


@settings(max_examples=few(15))
@given(
    length=st.integers(0, 25),
    batch_size=st.one_of(st.none(), st.integers(1, 6)),
    drop_last=st.booleans(),
    workers=st.integers(0, 3),
    dataset=st.sampled_from([Count, SelfShardingLate, Shardable]),
    thread=st.booleans(),
)
def test_each_element_once(
    length: int, batch_size: int | None, drop_last: bool, workers: int, dataset: type[Count], thread: bool
) -> None:
    drop_last = drop_last and batch_size is not None
    loader = DataLoader(
        dataset(length),
        batch_size=batch_size,
        drop_last=drop_last,
        num_workers=workers,
        workers="thread" if thread else "process",
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=WHOLE)
        batches = [np.atleast_1d(batch).tolist() for batch in loader]
    found = sorted(itertools.chain(*batches))
    assert len(set(found)) == len(found)
    if drop_last:
        assert all(len(batch) == batch_size for batch in batches)
        assert set(found) <= set(range(length))
    else:
        assert found == list(range(length))


@quick_kinds
def test_an_endless_stream_can_be_left(kind: dict[str, Any]) -> None:
    class Endless(IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            info = get_worker_info()
            return itertools.count(0 if info is None else info.id, 1 if info is None else info.num_workers)

    loader = DataLoader(Endless(), batch_size=2, **kind)
    assert len([batch for batch, _ in zip(loader, range(5), strict=False)]) == 5
    with pytest.raises(TypeError, match="no len"):
        len(loader)
    loader.close()


@every_kind
def test_the_shuffle_buffer_keeps_every_element_and_changes_with_the_epoch(kind: dict[str, Any]) -> None:
    with DataLoader(Shardable(60), batch_size=7, shuffle_buffer=16, seed=1, **kind) as loader:
        one, two = elements(loader), elements(loader)
    assert sorted(one) == sorted(two) == list(range(60))
    assert one != two
    assert one != sorted(one)


@pytest.mark.parametrize("kind", [{}, THREADS, FORK])
@pytest.mark.parametrize(("says", "gives"), [(10, 13), (10, 7)])
def test_a_length_that_lies_is_pointed_out_at_the_end(kind: dict[str, Any], says: int, gives: int) -> None:
    class Lying(SelfSharding):
        def __len__(self) -> int:
            return says

    loader = DataLoader(Lying(gives), batch_size=2, **kind)
    with pytest.warns(UserWarning, match=f"__len__ says {says}, but it gave {gives} elements"):
        assert sorted(elements(loader)) == list(range(gives))


def test_a_length_that_cannot_be_had_is_no_error() -> None:
    class Shy(Stretch):
        def __len__(self) -> int:
            raise NotImplementedError

    assert elements(DataLoader(Shy(0, 4), 2)) == [0, 1, 2, 3]


@pytest.mark.parametrize("kind", [{}, THREADS, FORK])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_true_length_is_not_complained_about(kind: dict[str, Any], drop_last: bool) -> None:
    class Honest(SelfSharding):
        def __len__(self) -> int:
            return self.length

    loader = DataLoader(Honest(11), batch_size=3, drop_last=drop_last, **kind)
    elements(loader)
    assert len(loader) == (3 if drop_last else 4)


@quick_kinds
def test_chained_streams(kind: dict[str, Any]) -> None:
    chained: ChainDataset[int] = ChainDataset([SelfSharding(4), SelfSharding(3)])
    assert sorted(elements(DataLoader(chained, batch_size=2, **kind))) == [0, 0, 1, 1, 2, 2, 3]


class OwnShare(Stretch):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(self.start + first, self.stop, step))


@every_worker
@pytest.mark.filterwarnings("ignore:the IterableDataset neither")
@pytest.mark.parametrize("streams", [(Stretch, OwnShare), (OwnShare, Stretch)])
def test_chained_streams_must_agree_on_sharing(kind: dict[str, Any], streams: Any) -> None:
    chained: Any = ChainDataset([streams[0](0, 10), streams[1](10, 20)])
    assert sorted(elements(DataLoader(chained, 2))) == list(range(20))
    with pytest.raises(RuntimeError, match=r"Make all of them ask, or none|only after its first element"):
        elements(DataLoader(chained, 2, **kind))


class Lying(OwnShare):
    def __len__(self) -> int:
        return 1000


@pytest.mark.parametrize("kind", [{}, THREADS])
def test_a_lying_length_is_noticed_with_drop_last_too(kind: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match="__len__ says 1000"):
        list(DataLoader(Lying(0, 8), 2, drop_last=True, **kind))


class Breaking(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield from range(5)
        raise ValueError("the tape tore")


@pytest.mark.filterwarnings(f"ignore:{WHOLE}")
@every_kind
def test_an_error_in_the_stream_comes_once_after_the_batches_before_it(kind: dict[str, Any]) -> None:
    iterator = iter(DataLoader(Breaking(), batch_size=2, **kind))
    assert [next(iterator).tolist(), next(iterator).tolist()] == [[0, 1], [2, 3]]
    with pytest.raises(ValueError, match="the tape tore") as caught:
        next(iterator)
    assert "element 1 of batch 2" in "".join(caught.value.__notes__)
    assert list(iterator) == []


class Hiccup(IterableDataset[int]):
    """An iterator that fails for one element and can go on."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        self.at = 0
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 3:
            raise ValueError("element 3 is bad")
        if self.at > 6:
            raise StopIteration
        return self.at


def test_reading_goes_on_after_an_error_if_the_iterator_can() -> None:
    iterator = iter(DataLoader(Hiccup(), batch_size=1))
    found: list[Any] = []
    while True:
        try:
            found.append(next(iterator).item())
        except StopIteration:
            break
        except ValueError as error:
            found.append(str(error))
    assert found == [1, 2, "element 3 is bad", 4, 5, 6]


class HiccupLater:
    """Fails once and goes on."""

    def __iter__(self) -> HiccupLater:
        self.at = -1
        return self

    def __next__(self) -> int:
        self.at += 1
        if self.at == 5:
            raise ValueError("bad element")
        if self.at >= 20:
            raise StopIteration
        return self.at


def test_an_error_in_the_stream_does_not_empty_the_shuffle_buffer() -> None:
    iterator = iter(DataLoader(HiccupLater(), batch_size=None, shuffle_buffer=8))
    found, errors = [], 0
    while True:
        try:
            found.append(next(iterator))
        except ValueError:
            errors += 1
        except StopIteration:
            break
    assert errors == 1
    assert sorted(found) == [i for i in range(20) if i != 5]


def test_threads_refuse_an_iterator_they_would_have_to_share() -> None:
    with pytest.raises(RuntimeError, match="has __next__"):
        iter(DataLoader(Hiccup(), **THREADS))


@pytest.mark.parametrize("kind", [THREADS, FORK])
def test_batches_of_shards_come_in_turn(kind: dict[str, Any]) -> None:
    loader = DataLoader(Shardable(12), batch_size=2, **kind)
    assert [batch.tolist() for batch in loader] == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11]]


class Uneven(IterableDataset[int]):
    def shard(self, index: int, count: int) -> Iterator[int]:
        return iter(range(0) if index == 0 else range(7))

    def __iter__(self) -> Iterator[int]:
        return iter(range(7))


@every_worker
def test_a_shard_may_be_empty(kind: dict[str, Any]) -> None:
    assert elements(DataLoader(Uneven(), batch_size=2, **kind)) == list(range(7))


@every_worker
def test_an_epoch_begun_again_is_read_again(kind: dict[str, Any]) -> None:
    with DataLoader(Shardable(12), batch_size=2, persistent_workers=True, **kind) as loader:
        for leave_after in (6, 2, 6):
            loader.set_epoch(3)
            batches = [batch.tolist() for batch, _ in zip(loader, range(leave_after), strict=False)]
            assert batches == [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11]][:leave_after]


class Logging(Count):
    """Asks which worker it is in for a log line, and reads everything all the same."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        self.line = "" if info is None else f"opened by worker {info.id}, {info}"
        return iter(range(self.length))


@every_worker
def test_to_ask_for_a_log_line_is_no_sharing(kind: dict[str, Any]) -> None:
    with pytest.warns(UserWarning, match=rf"{WHOLE}.*The dataset does read get_worker_info\(\)\.id"):
        assert elements(DataLoader(Logging(23), batch_size=4, **kind)) == list(range(23))


class FailsInOne(Count):
    """A generator that meets an error in one worker only, in a batch that another worker has."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        for number in range(self.length):
            if number == 9 and info is not None and info.id == 1:
                raise OSError("stale file handle")
            yield number


@every_worker
@pytest.mark.filterwarnings(f"ignore:{WHOLE}")
def test_an_error_that_ends_the_stream_in_one_worker_is_named(kind: dict[str, Any]) -> None:
    said = r"has ended in one worker after an error .*OSError: stale file handle \(element 9\)"
    with pytest.raises(RuntimeError, match=said):
        elements(DataLoader(FailsInOne(40), batch_size=4, **kind))  # batch 2, with 8 to 11, is worker 0's


class SharedById(Count):
    """Knows by heart that there are two workers."""

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return iter(range(7) if info is None or info.id == 0 else range(7, self.length))


@every_worker
@pytest.mark.filterwarnings(f"ignore:{WHOLE}")
def test_shares_picked_by_the_id_alone_are_an_error_and_not_lost(kind: dict[str, Any]) -> None:
    with pytest.raises(RuntimeError, match=r"workers get different elements.*make them read num_workers"):
        elements(DataLoader(SharedById(40), batch_size=4, **kind))


class Unopenable(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        raise OSError("no such tape")


@pytest.mark.parametrize("kind", [{}, THREADS, FORK])
def test_a_stream_that_cannot_be_opened_ends(kind: dict[str, Any]) -> None:
    iterator = iter(DataLoader(Unopenable(), **kind))
    errors = 0
    for _ in range(50):
        try:
            next(iterator)
        except OSError:
            errors += 1
        except StopIteration:
            break
    assert 1 <= errors <= 8  # those that were out when the first came
