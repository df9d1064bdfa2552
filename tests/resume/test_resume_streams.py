"""A stream that stops goes on with the batch that would have come next, with any number of workers."""

from __future__ import annotations

import itertools
import json
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
from kinds import FORK, INLINE, QUICK, SPAWN, THREADS, few, ours, thorough
from shared_streams import READS, Iterating, Shardable, Stream, element, give_share, plain, threads

from feedline import DataLoader, IterableDataset, StateError, get_worker_info
from feedline.messages.task import Task
from feedline.reading.stream_reader import StreamReader

WHOLE = "the IterableDataset neither asks"
AGAIN = "to continue with batch"


class Generator(Stream):
    def __iter__(self) -> Iterator[Any]:
        shift = np.random.randint(1000)  # drawn when the stream is opened
        for number in range(self.length):
            yield element(number + shift)


class Asking(Stream):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, self.length, step):
            yield element(number)


class Keeping(Stream):
    """Its state is its own; it would be wrong if it were read from its beginning again."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.at = {"next": 0}

    def __iter__(self) -> Iterator[Any]:
        while self.at["next"] < self.length:
            self.at["next"] += 1
            yield element(self.at["next"] - 1)
        self.at["next"] = 0

    def state_dict(self) -> dict[str, int]:
        return self.at  # not even a copy

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = dict(state)


class KeepingShare(Keeping):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        while first + step * self.at["next"] < self.length:
            self.at["next"] += 1
            yield element(first + step * (self.at["next"] - 1))
        self.at["next"] = 0


class KeepingIterator(Stream):
    def __iter__(self) -> Iterator[Any]:
        return Iterating(range(self.length))


class KeepingShards(KeepingIterator):
    def shard(self, index: int, count: int) -> Iterator[Any]:
        return Iterating(range(index, self.length, count))


class Bounded(Stream):
    """Given its share by worker_init_fn."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.first, self.step = 0, 1

    def __iter__(self) -> Iterator[Any]:
        return Iterating(range(self.first, self.length, self.step))


def bounded(length: int) -> Any:
    return Bounded(length)


REPLAYED: list[Any] = [Stream, Generator, Asking, Shardable]
STATEFUL: list[Any] = [Keeping, KeepingShare, KeepingIterator, KeepingShards, Bounded]
DATASETS = REPLAYED + STATEFUL


def saved(loader: DataLoader) -> Any:
    return json.loads(json.dumps(loader.state_dict()))


def loader_of(dataset: Any, length: int, kind: dict[str, Any], **options: Any) -> DataLoader:
    if dataset is Bounded:
        options["worker_init_fn"] = give_share
    return DataLoader(dataset(length), **{"batch_size": 3, "seed": 5, **options, **kind})


def part(loader: DataLoader, state: Any, stop: int | None) -> tuple[list[Any], Any]:
    """Up to `stop` batches of an epoch from a state on, and the state then."""
    with loader, warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=f"{WHOLE}|{AGAIN}")
        if state is not None:
            loader.load_state_dict(state)
        iterator = iter(loader)
        got = plain(itertools.islice(iterator, stop))
        return got, saved(loader)


def check(dataset: Any, length: int, stops: list[int], kinds: list[dict[str, Any]], **options: Any) -> None:
    """The parts of an epoch, each with other workers, are the epoch of the first ones."""
    whole, _ = part(loader_of(dataset, length, kinds[0], **options), None, sum(stops) + 5)
    got: list[Any] = []
    state = None
    for stop, kind in zip([*stops, 5], kinds, strict=True):
        if state is not None and state["epoch"]:
            break  # it is over
        batches, state = part(loader_of(dataset, length, kind, **options), state, stop)
        got += batches
    assert got == whole


@settings(max_examples=few(150))
@given(
    st.sampled_from(DATASETS),
    st.integers(0, 40),
    st.one_of(st.none(), st.integers(1, 5)),
    st.sampled_from([0, 0, 1, 2, 5, 16]),
    st.booleans(),
    st.lists(st.integers(0, 9), min_size=2, max_size=2),
    st.lists(st.integers(0, 3), min_size=3, max_size=3),
)
def test_the_parts_of_an_epoch_are_the_epoch(
    dataset: Any, length: int, size: int | None, buffer: int, drop: bool, stops: list[int], workers: list[int]
) -> None:
    options = {"batch_size": size, "shuffle_buffer": buffer, "drop_last": drop and size is not None}
    check(dataset, length, stops, [threads(number) for number in workers], **options)


@settings(max_examples=few(60))
@given(
    st.sampled_from([Keeping, KeepingIterator]),
    st.integers(1, 30),
    st.integers(1, 4),
    st.lists(st.integers(0, 60), min_size=2, max_size=2),
)
def test_a_shuffle_buffer_is_filled_again_deep_in_a_stream(
    dataset: Any, buffer: int, size: int, stops: list[int]
) -> None:
    check(dataset, 10**9, stops, [INLINE] * 3, batch_size=size, shuffle_buffer=buffer)


MIXED = [[FORK, INLINE, FORK], [INLINE, FORK, THREADS], [{**FORK, "num_workers": 3}] + 2 * [FORK]]


@pytest.mark.parametrize(("number", "dataset"), [*enumerate(DATASETS)])  # threads have all combinations, above
def test_processes_go_on(number: int, dataset: Any) -> None:
    check(dataset, 40, [3, 4], MIXED[number % 3], shuffle_buffer=4 * (number % 2))


@thorough
@pytest.mark.parametrize("buffer", [0, 4])
@pytest.mark.parametrize("kinds", MIXED, ids=range(3))
@pytest.mark.parametrize("dataset", DATASETS)
def test_processes_go_on_in_all_combinations(dataset: Any, kinds: list[dict[str, Any]], buffer: int) -> None:
    check(dataset, 40, [5, 2], kinds, shuffle_buffer=buffer)


def test_spawned_ones_too() -> None:
    check(KeepingShare, 40, [3, 4], [SPAWN, INLINE, SPAWN])


@pytest.mark.parametrize("dataset", [Keeping, KeepingIterator])
def test_what_keeps_its_place_reads_nothing_again_and_nobody_is_warned(dataset: Any) -> None:
    loader = loader_of(dataset, 10**9, INLINE)
    next(iter(loader))
    state = saved(loader)
    assert state["streams"]["0"]["state"] == {"next" if dataset is Keeping else "at": 3}
    again = loader_of(dataset, 10**9, INLINE)
    again.load_state_dict(state)
    READS.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        list(itertools.islice(again, 4))
    assert list(range(3, 15)) == READS


@pytest.mark.parametrize("workers", [0, 2])
def test_several_parts_in_one_worker_are_read_side_by_side(workers: int) -> None:
    _, state = part(loader_of(KeepingShare, 60, threads(3)), None, 5)
    READS.clear()
    rest, _ = part(loader_of(KeepingShare, 60, threads(workers)), state, None)
    assert sorted(READS) == sorted(int(number) for batch in rest for number in batch[0])


def test_a_shuffle_buffer_reads_again_what_was_in_it_and_no_more_than_a_few_times_its_size() -> None:
    loader = loader_of(Keeping, 10**9, INLINE, shuffle_buffer=20)
    list(itertools.islice(iter(loader), 1000))
    state = saved(loader)
    assert len(json.dumps(state)) < 1024
    again = loader_of(Keeping, 10**9, INLINE, shuffle_buffer=20)
    again.load_state_dict(state)
    READS.clear()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(again))
    assert 20 <= len(READS) <= 20 * 15


@pytest.mark.parametrize(("workers", "elements"), [(0, 6), (2, 6), (3, 6)])
def test_others_are_read_again_with_one_warning_that_says_how_much(workers: int, elements: int) -> None:
    with loader_of(Shardable, 40, threads(workers)) as loader:
        iterator = iter(loader)
        next(iterator), next(iterator)
        state = saved(loader)
    with loader_of(Shardable, 40, {}) as again:
        again.load_state_dict(state)
        with pytest.warns(UserWarning, match=AGAIN) as warned:
            list(again)
    assert len(ours(warned)) == 1
    assert f"batch 2, {elements} elements of the IterableDataset Shardable" in str(warned[0].message)
    assert "state_dict() and load_state_dict(state)" in str(warned[0].message)
    assert warned[0].filename == __file__


class Uneven(IterableDataset[int]):
    opened: list[int]

    def __init__(self) -> None:
        self.opened = []

    def shard(self, index: int, count: int) -> Iterator[int]:
        OPENED.append(index)
        return iter(range(1 if index == 0 else 9))

    def __iter__(self) -> Iterator[int]:
        return self.shard(0, 1)


OPENED: list[int] = []


@pytest.mark.filterwarnings(f"ignore:{AGAIN}")
@pytest.mark.parametrize("kind", [INLINE, THREADS])
def test_a_part_that_had_ended_is_not_opened_again(kind: dict[str, Any]) -> None:
    with DataLoader(Uneven(), batch_size=2, **THREADS) as loader:
        iterator = iter(loader)
        first = [next(iterator).tolist() for _ in range(3)]
        state = saved(loader)
    assert state["streams"]["0"] == {"ended": True}
    OPENED.clear()
    with DataLoader(Uneven(), batch_size=2, **kind) as again:
        again.load_state_dict(state)
        assert first + [batch.tolist() for batch in again] == [[0], [0, 1], [2, 3], [4, 5], [6, 7], [8]]
    assert OPENED == [1]


@pytest.mark.parametrize("kind", QUICK)
def test_the_next_epoch_has_the_loaders_own_workers_again(kind: dict[str, Any]) -> None:
    _, state = part(loader_of(KeepingShare, 40, threads(3)), None, 2)
    with loader_of(KeepingShare, 40, kind) as plain_one, loader_of(KeepingShare, 40, kind) as again:
        plain_one.set_epoch(1)
        again.load_state_dict(state)
        rest = plain(again)
        assert len(rest) == 13  # 14, 13 and 13 elements in threes are 15 batches
        assert plain(again) == plain(plain_one)


def test_persistent_workers_take_up_another_number_of_parts_and_their_own_again() -> None:
    whole, _ = part(loader_of(Asking, 40, threads(3)), None, None)
    _, state = part(loader_of(Asking, 40, threads(3)), None, 4)
    with loader_of(Asking, 40, THREADS, persistent_workers=True) as loader:
        own = plain(loader)
        for _ in range(2):
            loader.load_state_dict(state)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert plain(loader) == whole[4:]
        loader.set_epoch(0)
        assert plain(loader) == own


def test_after_the_last_batch_nothing_remains_and_after_the_loop_an_epoch() -> None:
    loader = loader_of(Keeping, 6, INLINE)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = saved(loader)
    again = loader_of(Keeping, 6, INLINE)
    again.load_state_dict(state)
    assert list(again) == []
    assert len(list(again)) == 2
    assert (saved(again)["epoch"], saved(again)["batches"]) == (2, 0)


def test_saved_before_anything_was_delivered_and_loaded_and_saved_again() -> None:
    loader = loader_of(Keeping, 6, INLINE)
    first = saved(loader)
    iterator = iter(loader)
    assert saved(loader)["batches"] == 0
    next(iterator)
    state = saved(loader)
    again = loader_of(Keeping, 6, INLINE)
    again.load_state_dict(state)
    assert saved(again) == state
    again.load_state_dict(first)
    next(iter(again))
    assert saved(again)["streams"]["0"]["state"] == {"next": 3}
    last = loader_of(Keeping, 6, INLINE)
    last.load_state_dict(saved(again))
    assert [batch[0].tolist() for batch in last] == [[3, 4, 5]]


@pytest.mark.parametrize("kind", [THREADS, FORK])
def test_batches_made_ahead_are_neither_counted_nor_lost(kind: dict[str, Any]) -> None:
    check(KeepingShare, 60, [2, 3], [{**kind, "prefetch_factor": 4}] * 3)


def test_delivered_out_of_order() -> None:
    kind = {**THREADS, "in_order": False}
    for stop in range(8):
        first, state = part(loader_of(KeepingShare, 40, kind), None, stop)
        rest, _ = part(loader_of(KeepingShare, 40, kind), state, None)
        assert sorted(int(number) for batch in first + rest for number in batch[0]) == list(range(40))


class Failing(Keeping):
    """Elements that fail, in a stream that can go on."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self.at["next"] == self.length:
            raise StopIteration
        self.at["next"] += 1
        if self.at["next"] % 4 == 1:
            raise ValueError("damaged")
        return element(self.at["next"])


@pytest.mark.parametrize("on_error", ["skip", "replace"])
@pytest.mark.parametrize("buffer", [0, 3, 7])
@pytest.mark.parametrize("stops", [[1, 1], [3, 4], [5, 0]])
def test_elements_that_fail_are_left_out_again(on_error: str, buffer: int, stops: list[int]) -> None:
    check(Failing, 60, stops, [INLINE] * 3, on_error=on_error, shuffle_buffer=buffer)


def test_failures_in_a_row_are_counted_across_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    class OnlyFailing(Failing):
        def __next__(self) -> Any:
            self.at["next"] += 1
            if self.at["next"] > 4:
                raise ValueError("damaged")
            return element(self.at["next"])

    monkeypatch.setattr("feedline.reading.stream_reader.FAILURES_IN_A_ROW", 7)
    loader = loader_of(OnlyFailing, 10**9, INLINE, on_error="skip")
    list(itertools.islice(iter(loader), 2))  # [1, 2, 3] and [4] with two failures
    again = loader_of(OnlyFailing, 10**9, INLINE, on_error="skip")
    again.load_state_dict(saved(loader))
    with pytest.warns(UserWarning, match="failed 7 times in a row"):
        assert list(again) == []
    assert [len(each.errors()) for each in (loader, again)] == [2, 5]


class Breaking(Keeping):
    def __iter__(self) -> Iterator[Any]:
        for number, found in enumerate(super().__iter__()):
            if number == 4:
                raise ValueError("torn")
            yield found


@pytest.mark.parametrize("buffer", [0, 2])
def test_a_generator_that_broke_stays_broken(buffer: int) -> None:
    """Python ends it at its first error, so that is where the uninterrupted run ended too."""

    def rest(iterator: Iterator[Any]) -> list[Any]:
        found: list[Any] = []
        while True:
            try:
                found += plain([next(iterator)])
            except ValueError as error:
                found.append(str(error))
            except StopIteration:
                return found

    whole = rest(iter(loader_of(Breaking, 12, INLINE, shuffle_buffer=buffer)))
    loader = loader_of(Breaking, 12, INLINE, shuffle_buffer=buffer)
    iterator = iter(loader)
    for stop, _ in enumerate(whole):
        try:
            next(iterator)
        except ValueError:
            again = loader_of(Breaking, 12, INLINE, shuffle_buffer=buffer)
            again.load_state_dict(saved(loader))
            assert rest(iter(again)) == whole[stop + 1 :]


def test_a_state_does_not_change_with_the_loader() -> None:
    loader = loader_of(Keeping, 40, INLINE)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    text = json.dumps(state)
    list(iterator)
    assert json.dumps(state) == text


def test_an_uncopyable_stream_says_with_how_many_workers_to_go_on() -> None:
    def numbers() -> Iterator[int]:
        yield from range(40)

    with DataLoader(numbers(), batch_size=2, **FORK) as loader:
        iterator = iter(loader)
        with pytest.warns(UserWarning, match=WHOLE):
            next(iterator)
        state = saved(loader)
    with DataLoader(numbers(), batch_size=2) as again:
        again.load_state_dict(state)
        with pytest.warns(UserWarning, match=AGAIN), pytest.raises(StateError, match="num_workers=2"):
            list(again)


@pytest.mark.parametrize("options", [{"batch_size": 4}, {"shuffle_buffer": 2}])
def test_a_stream_read_in_another_way_is_refused(options: dict[str, Any]) -> None:
    state = saved(loader_of(Keeping, 40, INLINE))
    with pytest.raises(StateError, match=r"the stream was read in another way .*: 'batch_size=3, shuffle_buffer=0'"):
        loader_of(Keeping, 40, INLINE, **options).load_state_dict(state)


def test_a_dataset_that_has_changed_its_mind_is_refused() -> None:
    _, state = part(loader_of(Keeping, 40, INLINE), None, 2)
    state["sampler"] = "Stream"
    with pytest.raises(StateError, match="Stream or its iterator, which cannot load it now"):
        part(loader_of(Stream, 40, INLINE), state, None)
    _, state = part(loader_of(Asking, 40, THREADS), None, 2)
    state["sampler"] = "Stream"
    with pytest.raises(StateError, match="each worker read its own share, and now each reads the whole"):
        part(loader_of(Stream, 40, THREADS), state, None)


def test_a_true_length_is_not_complained_about_in_a_continued_epoch() -> None:
    class Honest(Keeping):
        def __len__(self) -> int:
            return self.length

    for drop in (False, True):
        _, state = part(loader_of(Honest, 11, INLINE, drop_last=drop), None, 2)
        part(loader_of(Honest, 11, THREADS, drop_last=drop), state, None)


def test_a_batch_that_is_wanted_again_is_not_opened_with_a_later_place() -> None:
    """As after the death of a worker whose last outcome had just come in."""
    task = Task(3, 0, 5, None, shards=1)
    reader = StreamReader(KeepingIterator(40), task, 3, 0, lambda task: None)
    expected = [number for number, *_ in reader.take(task).elements]
    later = task._replace(place=reader.record())
    again = StreamReader(KeepingIterator(40), later, 3, 0, lambda task: None)
    assert [number for number, *_ in again.take(later).elements] == expected == [9, 10, 11]


class Killer(KeepingShare):
    """Kills its process once, at an element."""

    def __init__(self, length: int, flag: Path) -> None:
        super().__init__(length)
        self.flag = flag

    def __iter__(self) -> Iterator[Any]:
        for found in super().__iter__():
            if found[0] == 30 and not self.flag.exists():
                self.flag.touch()
                os.kill(os.getpid(), signal.SIGKILL)
            yield found, min(READS)


@pytest.mark.parametrize("shards", [2, 3])
def test_a_worker_that_dies_is_replaced_by_one_that_goes_on(tmp_path: Path, shards: int) -> None:
    flag = tmp_path / "killed"
    flag.touch()
    with DataLoader(Killer(60, flag), batch_size=3, seed=5, **{**FORK, "num_workers": shards}) as loader:
        whole = [plain([batch])[0] for batch, _ in loader]
    with DataLoader(Killer(60, flag), batch_size=3, seed=5, **{**FORK, "num_workers": shards}) as loader:
        iterator = iter(loader)
        first = [plain([next(iterator)[0]])[0] for _ in range(4)]
        state = saved(loader)
    flag.unlink()
    READS.clear()
    with DataLoader(Killer(60, flag), batch_size=3, seed=5, **FORK) as again:
        again.load_state_dict(state)
        with pytest.warns(UserWarning, match="A new worker takes its place"):
            found = list(again)
    assert flag.exists()
    assert first + [plain([batch])[0] for batch, _ in found] == whole
    least = {int(batch[0][0]): int(reads.min()) for batch, reads in found}
    assert min(least.values()) >= 4 * 3 - shards  # nobody began from the beginning
    assert min(reads for number, reads in least.items() if number > 30 and number % shards == 0) >= 27


class Forty(IterableDataset):
    at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 40:
            self.at += 1
            yield self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


@pytest.mark.parametrize(
    "damage",
    [
        {"shards": 10**8},
        {"batches": [[0, 10**12]]},
        {"batches": [[1]]},
        {"batches": [[-1, 2]]},
        {"kept": "AAA="},
        {"seq": 10**9},
    ],
)
def test_a_damaged_state_of_a_stream_is_refused_and_does_not_hang(damage: dict[str, Any]) -> None:
    loader = DataLoader(Forty(), batch_size=2, shuffle_buffer=4)
    batches = iter(loader)
    for _ in range(10):
        next(batches)
    state = saved(loader)
    if "shards" in damage:
        state |= damage
    else:
        state["streams"]["0"]["shuffle"] |= damage
    with pytest.raises(StateError, match="damaged"):
        DataLoader(Forty(), batch_size=2, shuffle_buffer=4).load_state_dict(state)


class Sticky:
    """As Hugging Face's streams: every later iteration begins where a state was loaded, until another one is."""

    def __init__(self) -> None:
        self.at = self.begin = 0

    def __iter__(self) -> Iterator[int]:
        self.at = self.begin
        while self.at < 60:
            self.at += 1
            yield self.at - 1

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = self.begin = state["at"]


@pytest.mark.parametrize("how", ["read to the end", "left in the middle", "an epoch before", "another loader"])
def test_later_epochs_are_whole_where_a_state_is_loaded_into_a_dataset_that_has_been_read(how: str) -> None:
    data = Sticky()
    loader = DataLoader(data, batch_size=4, seed=1)
    if how == "an epoch before":
        assert sum(map(len, loader)) == 60
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    if how == "left in the middle":
        next(iterator)
        del iterator
    else:
        assert sum(map(len, iterator)) == 48
    if how == "another loader":
        loader = DataLoader(data, batch_size=4, seed=1)
    loader.load_state_dict(state)
    assert [sum(map(len, loader)) for _ in range(3)] == [48, 60, 60]
