"""A trace says what happened, where and when, for every kind of worker."""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from kinds import FORK, INLINE, THREADS, quick_kinds
from traced import Failing, Killing, Numbers, events_in, spans_in

from feedline import DataLoader, IterableDataset


@quick_kinds
def test_a_trace_has_each_batch_where_it_was_made(kind, tmp_path):
    path = tmp_path / "run.json"
    with DataLoader(Numbers(), batch_size=6, shuffle=True, seed=3, **kind) as loader:
        with loader.trace(path):
            delivered = [batch.tolist() for _ in range(2) for batch in loader]
    fetched = spans_in(path, "fetch")
    by_batch = {}  # whose pieces may have been made by several
    for span in fetched:
        by_batch.setdefault((span["args"]["epoch"], span["args"]["batch"]), []).extend(span["args"]["indices"])
    expected = {divmod(number, 7): [str(i) for i in batch] for number, batch in enumerate(delivered)}
    assert by_batch == expected
    waits = [(span["args"]["epoch"], span["args"]["batch"], span["args"]["samples"]) for span in spans_in(path, "wait")]
    assert waits == [(*key, len(indices)) for key, indices in expected.items()]
    assert len(spans_in(path, "collate")) == len(fetched) >= 14
    assert len(spans_in(path, "compute")) == 12
    assert sorted(int(span["args"]["index"]) for span in spans_in(path, "sample")) == sorted([*range(40)] * 2)
    rows = {event["args"]["name"] for event in events_in(path) if event["name"] == "thread_name"}
    workers = {"loading"} if kind == INLINE else {"worker 0", "worker 1"}
    assert {"training loop"} < rows <= {"training loop"} | workers
    slots = [event["args"] for event in events_in(path) if event["name"] == "slots"]
    assert all(set(one) == {"working", "held", "free"} and min(one.values()) >= 0 for one in slots)


@quick_kinds
def test_spans_of_a_row_follow_each_other_and_samples_lie_within_their_batch(kind, tmp_path):
    path = tmp_path / "run.json"
    with DataLoader(Numbers(), batch_size=6, **kind) as loader, loader.trace(path):
        for _ in loader:
            pass
    rows: dict[tuple[int, bool], list[tuple[float, float]]] = defaultdict(list)
    for event in events_in(path):
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            is_sample = event["name"] == "sample"
            rows[event["tid"], is_sample].append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        spans.sort()
        assert all(after[0] >= before[1] - 0.01 for before, after in pairwise(spans))
    for row, is_sample in rows:
        for start, end in rows[row, True] if is_sample else ():
            assert any(low - 0.01 <= start and end <= high + 0.01 for low, high in rows[row, False])


@quick_kinds
def test_a_batch_that_failed_is_in_the_trace_as_far_as_it_came(kind, tmp_path):
    path = tmp_path / "run.json"
    with DataLoader(Failing(12), batch_size=3, **kind) as loader, loader.trace(path):
        batches = iter(loader)
        next(batches)
        with pytest.raises(ValueError, match="damaged"):
            next(batches)
        assert len(list(batches)) == 2
    fetched = {span["args"]["batch"] for span in spans_in(path, "fetch")}
    assert fetched == {0, 1, 2, 3}
    assert {int(span["args"]["index"]) for span in spans_in(path, "sample")} == set(range(12))


def test_a_stream_is_traced_without_indices(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(10))

    loader = DataLoader(Stream(), batch_size=4)
    with loader.trace(tmp_path / "run.json"):
        assert len(list(loader)) == 3
    assert [span["args"] for span in spans_in(tmp_path / "run.json", "fetch")][:3] == [
        {"batch": batch, "epoch": 0} for batch in range(3)
    ]


def test_restarts_are_in_the_trace(tmp_path):
    with DataLoader(Killing(tmp_path / "killed"), batch_size=4, **FORK) as loader, loader.trace(tmp_path / "run.json"):
        with pytest.warns(UserWarning, match="SIGKILL"):
            assert sum(len(batch) for batch in loader) == 40
    (event,) = [event for event in events_in(tmp_path / "run.json") if event["ph"] == "i"]
    assert "SIGKILL" in event["args"]["text"]
    assert len(spans_in(tmp_path / "run.json", "wait")) == 10


class Shared(IterableDataset):
    """Ends at different times in each worker."""

    def __init__(self, numbers: range = range(24)) -> None:
        self.numbers = numbers

    def shard(self, index: int, count: int) -> Shared:
        return Shared(self.numbers[index::count])

    def __iter__(self) -> Any:
        return iter(self.numbers)


def test_a_stream_that_ends_is_traced(tmp_path: Path) -> None:
    """A worker that is asked once more, and finds nothing, has no place to tell of."""
    with DataLoader(Shared(), batch_size=4, **THREADS) as loader, loader.trace(tmp_path / "run.json"):
        assert sum(len(batch) for batch in loader) == 24
    assert len(spans_in(tmp_path / "run.json", "wait")) == 6


def test_an_error_in_worker_init_fn_is_not_hidden_by_a_trace(tmp_path: Path) -> None:
    def fail(worker: int) -> None:
        raise ZeroDivisionError("of the user")

    with DataLoader(range(8), batch_size=4, worker_init_fn=fail, **THREADS) as loader:
        recorder = loader.trace(tmp_path / "run.json")
        with pytest.raises(ZeroDivisionError, match="of the user"):
            list(loader)
        recorder.stop()


def test_two_iterations_of_one_epoch_are_two_in_the_trace(tmp_path: Path) -> None:
    loader = DataLoader(range(6), batch_size=2)
    with loader.trace(tmp_path / "run.json"):
        for _ in range(2):
            loader.set_epoch(4)
            assert len(list(loader)) == 3
    computed = [span["args"]["batch"] for span in spans_in(tmp_path / "run.json", "compute")]
    assert computed == [0, 1, 0, 1]  # what came after batch 2 was no computing on it
