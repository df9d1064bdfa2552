"""torch's IterableDataset: those that shard themselves the way torch's manual says, and those that do not."""

from __future__ import annotations

import itertools
import math
import queue
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, SPAWN, THREADS, few
from sameness import assert_same

import feedline
import feedline.torch as ours

WHOLE = "the IterableDataset neither asks"


class Stream(torchs.IterableDataset[int]):
    """Knows nothing of workers."""

    def __init__(self, end: int) -> None:
        self.start, self.end = 0, end

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end))


class Strided(Stream):
    def __iter__(self) -> Iterator[int]:
        info = torchs.get_worker_info()
        if info is None:
            return iter(range(self.end))
        return iter(range(info.id, self.end, info.num_workers))


class StridedLate(Stream):
    """A generator, which asks only when its first element is wanted."""

    def __iter__(self) -> Iterator[int]:
        info = torchs.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        yield from range(first, self.end, step)


class FirstTakesAll(Stream):
    """Shards so unevenly that the second worker has nothing."""

    def __iter__(self) -> Iterator[int]:
        info = torchs.get_worker_info()
        return iter(range(self.end if info is None or info.id % info.num_workers == 0 else 0))


def cut_to_share(worker_id: int) -> None:
    """The example of torch's manual: worker_init_fn sets the bounds of its worker's copy."""
    info = torchs.get_worker_info()
    assert info is not None
    dataset: Any = info.dataset
    start, end = dataset.start, dataset.end
    share = math.ceil((end - start) / info.num_workers)
    dataset.start = start + info.id * share
    dataset.end = min(dataset.start + share, end)


def elements(loader: Any) -> list[int]:
    return [int(value) for batch in loader for value in batch]


@settings(max_examples=few(15))
@given(
    end=st.integers(0, 23),
    batch_size=st.one_of(st.none(), st.integers(1, 5)),
    drop_last=st.booleans(),
    dataset=st.sampled_from([Strided, StridedLate, FirstTakesAll]),
    workers=st.integers(0, 2),
    lasting=st.booleans(),
)
def test_a_stream_that_shards_itself_gives_torchs_batches_in_torchs_order(
    end: int, batch_size: int | None, drop_last: bool, dataset: type[Stream], workers: int, lasting: bool
) -> None:
    options = {
        "batch_size": batch_size,
        "drop_last": drop_last and batch_size is not None,
        "num_workers": workers,
        "persistent_workers": lasting and workers > 0,
    }
    found = []
    for library in (torchs, ours):
        torch.manual_seed(1)
        loader = library.DataLoader(dataset(end), **options)
        found.append([list(loader), list(loader), torch.rand(1)])
    assert_same(found[1], found[0])


@pytest.mark.parametrize("kind", [FORK, SPAWN], ids=["fork", "spawn"])
@pytest.mark.parametrize("dataset", [Strided, StridedLate])
def test_a_stream_that_shards_itself_gives_each_element_once(kind: dict[str, Any], dataset: type[Stream]) -> None:
    assert sorted(elements(ours.DataLoader(dataset(23), batch_size=4, **kind))) == list(range(23))


def test_a_stream_cut_by_worker_init_fn_gives_each_element_once_in_torchs_order() -> None:
    options = {"batch_size": 3, "worker_init_fn": cut_to_share, "num_workers": 2}
    wanted = list(torchs.DataLoader(Stream(20), **options))
    assert_same(list(ours.DataLoader(Stream(20), **options)), wanted)
    assert sorted(torch.cat(wanted).tolist()) == list(range(20))


@pytest.mark.parametrize("kind", [FORK, THREADS], ids=["fork", "threads"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_stream_that_does_not_shard_itself_gives_each_element_once_with_one_warning(
    kind: dict[str, Any], batch_size: int
) -> None:
    loader = ours.DataLoader(Stream(23), batch_size=batch_size, **kind)
    with pytest.warns(UserWarning, match=WHOLE) as warned:
        epochs = [elements(loader), elements(loader)]
    assert epochs == [list(range(23))] * 2
    assert len(warned) == 1
    assert warned[0].filename == __file__


class Seeded(Stream):
    """Looks at its worker's seed, which is no sharding."""

    def __iter__(self) -> Iterator[int]:
        info = torchs.get_worker_info()
        assert info is None or info.seed >= 0
        return iter(range(self.end))


@pytest.mark.filterwarnings(f"ignore:{WHOLE}")
def test_asking_for_the_seed_only_is_not_sharding() -> None:
    assert elements(ours.DataLoader(Seeded(11), batch_size=2, num_workers=2)) == list(range(11))


@pytest.mark.parametrize("workers", [1, 2])
def test_every_worker_drops_its_own_last_batch(workers: int) -> None:
    loader = ours.DataLoader(Strided(21), batch_size=4, drop_last=True, num_workers=workers)
    batches = [batch.tolist() for batch in loader]
    assert all(len(batch) == 4 for batch in batches)
    assert len(batches) == {1: 5, 2: 2 + 2}[workers]  # 21, or 11 and 10


class Lying(Strided):
    def __len__(self) -> int:
        return self.end - 4


@pytest.mark.parametrize("workers", [0, 2])
def test_more_elements_than_len_says_is_warned_of(workers: int) -> None:
    loader = ours.DataLoader(Lying(12), batch_size=2, num_workers=workers)
    assert len(loader) == 4
    with pytest.warns(UserWarning, match="__len__ says 8, but it gave 12"):
        assert sorted(elements(loader)) == list(range(12))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_endless_stream_can_be_left(workers: int) -> None:
    class Endless(torchs.IterableDataset[int]):
        def __iter__(self) -> Iterator[int]:
            info = torchs.get_worker_info()
            return itertools.count(0 if info is None else info.id, 1 if info is None else info.num_workers)

    loader = ours.DataLoader(Endless(), batch_size=2, num_workers=workers)
    assert len([batch for batch, _ in zip(loader, range(7), strict=False)]) == 7


def test_torchs_chain_of_streams_that_shard_themselves() -> None:
    chained = torchs.ChainDataset([Strided(5), StridedLate(4)])
    assert sorted(elements(ours.DataLoader(chained, batch_size=2, num_workers=2))) == sorted([*range(5), *range(4)])


def test_the_shuffle_buffer_reorders_and_loses_nothing() -> None:
    torch.manual_seed(0)
    loader = ours.DataLoader(Strided(60), batch_size=7, num_workers=2, shuffle_buffer=16)
    one, two = elements(loader), elements(loader)
    assert sorted(one) == sorted(two) == list(range(60))
    assert one != two


# get_worker_info


class AsksWhereItIs(torchs.Dataset[Any]):
    def __init__(self) -> None:
        self.mark = "the dataset"

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> dict[str, Any]:
        info = torchs.get_worker_info()
        if info is None:
            return {"index": index, "id": -1}
        assert isinstance(info, torchs._utils.worker.WorkerInfo)
        assert info.dataset is self
        return {"index": index, "id": info.id, "workers": info.num_workers, "seed": info.seed}


@pytest.mark.parametrize("kind", [FORK, SPAWN], ids=["fork", "spawn"])
def test_a_worker_process_knows_who_it_is_as_under_torch(kind: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(7)
    base = int(torch.empty((), dtype=torch.int64).random_(generator=torch.Generator().manual_seed(7)).item())
    for sample in ours.DataLoader(AsksWhereItIs(), batch_size=None, generator=generator, **kind):
        assert sample["id"] in (0, 1)
        assert sample["workers"] == 2
        assert sample["seed"] == base + sample["id"]


def test_there_is_no_worker_in_the_main_process() -> None:
    assert all(sample["id"] == -1 for sample in ours.DataLoader(AsksWhereItIs(), batch_size=None))
    list(ours.DataLoader(AsksWhereItIs(), batch_size=None, num_workers=1))
    assert torchs.get_worker_info() is None


# sharing by worker_init_fn, and by a question at some other time or place


class Unset(torchs.IterableDataset[int]):
    """Bounds that worker_init_fn is to fill in."""

    def __init__(self) -> None:
        self.rank: int | None = None
        self.world: int | None = None

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.rank or 0, 13, self.world or 1))


def fill_in(worker_id: int) -> None:
    info: Any = torchs.get_worker_info()
    info.dataset.rank, info.dataset.world = info.id, info.num_workers


class Around(torchs.IterableDataset[int]):
    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Iterator[int]:
        return iter(self.dataset)


def cut_inner_to_share(worker_id: int) -> None:
    info: Any = torchs.get_worker_info()
    inner = info.dataset.dataset
    share = math.ceil(inner.end / info.num_workers)
    inner.start, inner.end = info.id * share, min((info.id + 1) * share, inner.end)


def cut_by_number(worker_id: int) -> None:
    """Knows by heart that there are two."""
    dataset: Any = torchs.get_worker_info().dataset  # type: ignore[union-attr]
    dataset.start, dataset.end = (0, 7) if worker_id == 0 else (7, 13)


@pytest.mark.parametrize(
    ("dataset", "init"),
    [(Unset, fill_in), (lambda: Around(Stream(13)), cut_inner_to_share), (lambda: Stream(13), cut_by_number)],
    ids=["was None", "inner dataset", "by number"],
)
def test_a_stream_shared_out_by_worker_init_fn_gives_torchs_batches(dataset: Any, init: Any) -> None:
    options = {"batch_size": 2, "worker_init_fn": init, "num_workers": 2}
    wanted = list(torchs.DataLoader(dataset(), **options))
    assert_same(list(ours.DataLoader(dataset(), **options)), wanted)
    assert sorted(torch.cat(wanted).tolist()) == list(range(13))


class Opening(Stream):
    connection: Any = None


def open_connection(worker_id: int) -> None:
    info: Any = torchs.get_worker_info()
    info.dataset.connection = f"connection {info.id}"
    info.dataset.log = [repr(info)]


@pytest.mark.filterwarnings(f"ignore:{WHOLE}")
@pytest.mark.parametrize("dataset", [Opening, Stream])
def test_a_worker_init_fn_that_opens_something_does_not_share(dataset: type[Stream]) -> None:
    loader = ours.DataLoader(dataset(11), batch_size=2, num_workers=2, worker_init_fn=open_connection)
    assert elements(loader) == list(range(11))


class Remembering(Stream):
    """Asks in its first epoch only."""

    share: tuple[int, int] | None = None

    def __iter__(self) -> Iterator[int]:
        if self.share is None:
            info: Any = torchs.get_worker_info()
            self.share = (info.id, info.num_workers)
        return iter(range(self.share[0], self.end, self.share[1]))


def test_a_stream_that_remembers_its_share_gives_torchs_batches_in_every_epoch() -> None:
    found = []
    for library in (torchs, ours):
        loader = library.DataLoader(Remembering(12), 2, num_workers=2, persistent_workers=True)
        found.append([list(loader) for _ in range(3)])
        loader._iterator = None
    assert_same(found[1], found[0])


class Inner(torchs.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(12))


class LoadsInside(torchs.IterableDataset[int]):
    """Reads through a loader of its own, and asks for every element."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[int]:
        for number, element in enumerate(self.loader(Inner(), batch_size=None)):
            info: Any = torchs.get_worker_info()
            if number % info.num_workers == info.id:
                yield element


def test_a_loader_inside_a_stream_does_not_hide_the_streams_question() -> None:
    found = [list(library.DataLoader(LoadsInside(library.DataLoader), 2, num_workers=2)) for library in (torchs, ours)]
    assert_same(found[1], found[0])


class ReadsAhead(torchs.IterableDataset[int]):
    """Asks from a thread of its own."""

    def __iter__(self) -> Iterator[int]:
        read: queue.Queue[int | None] = queue.Queue()

        def run() -> None:
            info: Any = torchs.get_worker_info()
            for element in range(info.id, 12, info.num_workers):
                read.put(element)
            read.put(None)

        thread = threading.Thread(target=run)
        thread.start()
        while (element := read.get()) is not None:
            yield element
        thread.join()


def test_a_stream_may_ask_from_a_thread_of_its_own() -> None:
    found = [list(library.DataLoader(ReadsAhead(), 2, num_workers=2)) for library in (torchs, ours)]
    assert_same(found[1], found[0])


class OtherShard(Strided):
    """Hugging Face's order of arguments."""

    def shard(self, num_shards: int, index: int) -> Any:
        raise AssertionError("this is not our shard(index, count)")


class OurShard(Stream):
    def shard(self, index: int, count: int) -> Any:
        return range(index, self.end, count)


def test_shard_is_called_only_if_it_takes_index_and_count() -> None:
    found = [list(library.DataLoader(OtherShard(9), 2, num_workers=2)) for library in (torchs, ours)]
    assert_same(found[1], found[0])
    assert sorted(elements(ours.DataLoader(OurShard(9), 2, num_workers=2))) == list(range(9))


class AsksLate(Stream):
    def __iter__(self) -> Iterator[int]:
        yield from range(5)
        try:
            info: Any = torchs.get_worker_info()
            yield 100 + info.id * info.num_workers
        except Exception:
            yield -1
        yield from range(5, self.end)


@pytest.mark.filterwarnings(f"ignore:{WHOLE}")
def test_a_question_that_comes_late_is_an_error_of_the_loop_not_of_the_stream() -> None:
    batches = iter(ours.DataLoader(AsksLate(12), batch_size=2, **FORK))
    assert [next(batches).tolist(), next(batches).tolist()] == [[0, 1], [2, 3]]
    with pytest.raises(RuntimeError, match=r"only after its first element.*ask at the start of __iter__"):
        next(batches)
    while True:  # the other worker may say so too, but nobody gives elements that some would miss
        try:
            next(batches)
        except StopIteration:
            break
        except RuntimeError:
            continue
        raise AssertionError("a batch after the error")


class ByTwo(Stream):
    def __iter__(self) -> Iterator[int]:
        return iter(range(self.start, self.end, 2))


def start_at_number(worker_id: int) -> None:
    """Knows by heart that there are two, and in the first worker changes nothing that could be seen."""
    torchs.get_worker_info().dataset.start = worker_id  # type: ignore[union-attr]


@pytest.mark.filterwarnings(f"ignore:{WHOLE}")
@pytest.mark.parametrize("kind", [FORK, {**FORK, "persistent_workers": True}], ids=["fork", "persistent"])
def test_workers_that_do_not_agree_on_sharing_are_an_error_not_a_loss(kind: dict[str, Any]) -> None:
    loader = ours.DataLoader(ByTwo(40), batch_size=2, worker_init_fn=start_at_number, **kind)
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"some workers read the whole .* define shard"):
            list(loader)


class Shared(feedline.IterableDataset[int]):
    """feedline's own kind, as its sources are."""

    def __init__(self, numbers: range) -> None:
        self.numbers = numbers

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def shard(self, index: int, count: int) -> Shared:
        return Shared(self.numbers[index::count])


@pytest.mark.parametrize("kind", [{}, THREADS, FORK, SPAWN])
def test_a_stream_of_feedlines_own(kind: dict[str, Any]) -> None:
    with ours.DataLoader(Shared(range(10)), batch_size=2, **kind) as loader:
        got = torch.cat(list(loader))
    assert sorted(got.tolist()) == list(range(10))
    assert isinstance(loader.dataset, torchs.IterableDataset)  # as those ask who are handed a loader
    assert [batch.tolist() for batch in torchs.DataLoader(Shared(range(3)), batch_size=2)] == [[0, 1], [2]]
    with pytest.raises(ValueError, match="shuffle"):
        ours.DataLoader(Shared(range(3)), shuffle=True)
