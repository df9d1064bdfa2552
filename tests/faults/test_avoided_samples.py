"""Tasks that say which positions not to read, or to read one by one; and what a dataset says of its samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch.utils.data
from damaged import BatchDamaged, Damaged, Keyed, ManyDamaged, OnlyMany

import feedline
from feedline import ArrayDataset, ConcatDataset, Dataset, StackDataset, Subset
from feedline.datasets import described, reads_one
from feedline.messages.outcome import Outcome
from feedline.messages.progress import INDEX, PLACE, Row, unwatched
from feedline.messages.task import Task
from feedline.randomness.task_generators import BorrowedGenerators
from feedline.workers.body import Body
from feedline.workers.job import Job
from feedline.workers.wire import dump_task, load_task


def run(dataset: Any, task: Task, on_error: str = "raise", sampler: Any = None, row: Row | None = None) -> Outcome:
    options = feedline.DataLoader(dataset, batch_size=4, sampler=sampler).options
    names = ("dataset", "stream", "batched", "drop_last", "collate_fn", "worker_init_fn", "shuffle_buffer", "seed")
    given = {name: getattr(options, name) for name in names}
    job = Job(**given, batch_size=4, num_workers=0, on_error=on_error)
    body = Body(job, None, BorrowedGenerators(()), own_process=False, row=row)
    body.start()
    try:
        return body.run(task, np.empty)
    finally:
        body.stop()


def task_of(*indices: int, **care: Any) -> Task:
    return Task(3, 0, 0, np.array(indices, np.int64), **care)


def test_what_is_avoided_is_not_read_and_told_as_bad() -> None:
    data = Recording(10, ())
    outcome = run(data, task_of(4, 5, 6, 7, avoid=((1, "killed worker 0"),)), "skip")
    assert outcome.batch.tolist() == [4, 6, 7]
    assert data.read == [4, 6, 7]
    (bad,) = outcome.bad
    assert (bad.index, bad.place, bad.what, bad.error, bad.trace) == (5, 1, "photos/5.jpg", "killed worker 0", "")
    assert (bad.seq, bad.epoch, outcome.size) == (3, 0, 3)


class Recording(Damaged):
    def __init__(self, size: int, bad: Any) -> None:
        super().__init__(size, bad)
        self.read: list[int] = []

    def __getitem__(self, index: int) -> Any:
        self.read.append(index)
        return super().__getitem__(index)


def test_a_neighbour_that_is_avoided_too_is_no_replacement() -> None:
    data = Recording(10, ())
    outcome = run(data, task_of(4, 5, 6, avoid=((0, "killed"), (1, "killed"))), "replace")
    assert outcome.batch.tolist() == [3, 6, 6]
    assert not {4, 5}.intersection(data.read)


class Watched(Damaged):
    """Looks at its worker's row while it is read."""

    def __init__(self, size: int, bad: Any) -> None:
        super().__init__(size, bad)
        self.row = unwatched()
        self.seen: list[tuple[Any, int, int]] = []

    def __getitem__(self, index: Any) -> Any:
        self.seen.append((index, self.row[PLACE], self.row[INDEX]))
        return super().__getitem__(index)


def test_a_neighbour_that_is_being_read_is_in_the_row() -> None:
    data = Watched(10, {5, 6})
    data.row[INDEX] = 77  # left by a worker that was killed
    outcome = run(data, task_of(4, 5, 7), "replace", row=data.row)
    assert outcome.batch.tolist() == [4, 4, 7]
    assert data.seen == [(4, 0, 0), (5, 1, 0), (7, 2, 0), (6, 1, 7), (4, 1, 5)]
    assert data.row[INDEX] == 0


class Leaving(Watched):
    def __getitem__(self, index: Any) -> Any:
        if index == 6:
            raise SystemExit
        return super().__getitem__(index)


def test_and_not_in_it_any_more_however_that_ended() -> None:
    data = Leaving(10, {5})
    with pytest.raises(SystemExit):
        run(data, task_of(4, 5), "replace", row=data.row)
    assert (data.row[PLACE], data.row[INDEX]) == (1, 0)


class WatchedNames(Watched):
    def __len__(self) -> int:
        raise TypeError


@pytest.mark.parametrize("other", ["b", -3, 1 << 70, 2.5])
def test_one_that_is_no_number_of_a_row_is_not(other: Any) -> None:
    data = WatchedNames(0, {"a"})
    outcome = run(data, Task(0, 0, 0, ["a", other], 0), "replace", sampler=["a"], row=data.row)
    assert data.seen == [("a", 0, 0), (other, 1, 0), (other, 0, 0)]
    assert [bad.replacement for bad in outcome.bad] == [other]


def test_nor_is_one_of_the_same_batch() -> None:
    data = RecordingNames()
    task = Task(0, 0, 0, ["a", "b", "c"], 0, avoid=((0, "killed"), (1, "killed")))
    outcome = run(data, task, "replace", sampler=["a"])
    assert outcome.batch.tolist() == [3, 3, 3]
    assert set(data.read) == {"c"}


class RecordingNames(Keyed):
    def __init__(self) -> None:
        self.read: list[str] = []

    def __getitem__(self, name: str) -> Any:
        self.read.append(name)
        return super().__getitem__(name)


def test_what_is_named_twice_is_left_out_for_good_and_its_first_error_is_kept() -> None:
    outcome = run(Damaged(10, ()), task_of(4, 5, avoid=((1, "killed"), (1, "killed again"))), "replace")
    assert outcome.batch.tolist() == [4]
    assert [(bad.index, bad.error, bad.replacement) for bad in outcome.bad] == [(5, "killed", None)]


def test_all_avoided_is_no_batch() -> None:
    data = Recording(10, ())
    outcome = run(data, task_of(4, 5, avoid=((0, "killed"), (1, "killed"))), "skip")
    assert (outcome.size, outcome.failure, len(outcome.bad)) == (0, None, 2)
    assert data.read == []


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
@pytest.mark.parametrize("dataset", [ManyDamaged, OnlyMany, BatchDamaged])
def test_alone_is_one_by_one(dataset: Any, on_error: str) -> None:
    calls: list[list[int]] = []

    class Watched(dataset):  # type: ignore[misc]
        def __getitems__(self, indices: list[int]) -> Any:
            calls.append(indices)
            return list(indices)

        def __getbatch__(self, indices: Any, empty: Any) -> Any:
            calls.append(indices.tolist())
            return np.array(indices)

    together = run(Watched(10, ()), task_of(4, 5, 6), on_error)
    assert [len(call) for call in calls] == [3]
    calls.clear()
    alone = run(Watched(10, ()), task_of(4, 5, 6, alone=True), on_error)
    assert alone.batch.tolist() == together.batch.tolist() == [4, 5, 6]
    assert all(len(call) == 1 for call in calls)


@pytest.mark.parametrize("care", [{}, {"alone": True}, {"avoid": ((1, "killed"), (2, "stuck"))}])
def test_the_wire_carries_it(care: dict[str, Any]) -> None:
    there, _ = load_task(dump_task(task_of(4, 5, 6, **care)))
    assert there._replace(indices=None) == task_of(4, 5, 6, **care)._replace(indices=None)
    assert there.indices is not None
    assert there.indices.tolist() == [4, 5, 6]
    listed = Task(1, 2, 3, ["a"], 7, **care)
    assert load_task(dump_task(listed, (3, 4096))) == (listed, (3, 4096))


def test_which_datasets_are_read_one_by_one() -> None:
    class Torchs(torch.utils.data.Dataset[Any]):
        def __getitems__(self, indices: list[int]) -> Any:
            return indices

    class Own(Torchs):
        def __getitem__(self, index: int) -> Any:
            return index

    assert not reads_one(Torchs())
    assert not reads_one(OnlyMany(1, ()))
    assert not reads_one(object())
    assert all(map(reads_one, (Own(), [1], np.arange(3), ArrayDataset([1]), Damaged(1, ()))))


def test_joined_and_chosen_datasets_ask_the_one_inside() -> None:
    data = Damaged(4, {1})
    assert described(Subset(data, [3, 1]), 0) == "photos/3.jpg"
    assert described(Subset(["a"], [0]), 0) == ""
    assert described(ConcatDataset([["a", "b"], data]), 3) == "photos/1.jpg"
    assert described(ConcatDataset([["a", "b"], data]), 0) == ""
    assert described(StackDataset(data, list("abcd"), data), 2) == "photos/2.jpg, photos/2.jpg"
    loader = feedline.DataLoader(Subset(data, [1, 3]), batch_size=2, on_error="skip")
    assert [batch.tolist() for batch in loader] == [[3]]
    assert loader.errors()[0].what == "photos/1.jpg"


class Odd(Damaged):
    def __init__(self, say: Any) -> None:
        super().__init__(2, {1})
        self.say = say

    def describe(self, index: int) -> Any:
        return self.say(index)


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("say", "told"),
    [
        (lambda index: f"photos/{index}.jpg", " (photos/1.jpg)"),
        (lambda index: ("shard", index), " (('shard', 1))"),
        (lambda index: None, ""),
        (lambda index: 1 // 0, ""),
        (lambda: "takes no index", ""),
        (lambda index: Unprintable(), ""),
    ],
)
def test_an_error_names_what_the_dataset_says_and_never_hides(say: Any, told: str) -> None:
    with pytest.raises(ValueError, match="truncated: 1") as caught:
        list(feedline.DataLoader(Odd(say), batch_size=2))
    assert caught.value.__notes__[0] == f"feedline: raised by dataset[1]{told}"


class Forwarding(Dataset[Any]):
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_a_wrapper_that_forwards_attributes_is_not_asked_with_its_own_index() -> None:
    assert described(Forwarding(Damaged(4, ())), 1) == ""


class TooLong(Damaged):
    def __getitem__(self, index: int) -> Any:
        return list(range(300))[index]


def test_a_length_that_is_too_large_is_told_and_one_that_is_not_is_not_blamed() -> None:
    with pytest.raises(IndexError) as caught:
        list(feedline.DataLoader(TooLong(640, ())))
    assert "feedline: __len__ says 640, index 300 failed: IndexError: list index out of range" in caught.value.__notes__
    with pytest.raises(IndexError) as caught:
        list(feedline.DataLoader(TooLong(200, ()), sampler=[300]))
    assert "feedline: raised by dataset[300] (photos/300.jpg); the dataset's __len__ says 200" in caught.value.__notes__
