"""Across epochs: persistent workers make the next epoch's first batches, and nobody can tell but by the clock."""

from __future__ import annotations

import itertools
import json
import multiprocessing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, THREADS, few
from noted import Noted, Reads, stacked

from feedline import BatchSampler, DataLoader, DistributedSampler, Sampler, StratifiedBatchSampler
from feedline.engine.ledger import Ledger, Part
from feedline.engine.next_epoch import same
from feedline.loader import _job
from feedline.messages.task import Task
from feedline.workers.processes import ProcessWorkers

KEPT: dict[str, Any] = {**FORK, "persistent_workers": True, "collate_fn": stacked}
OUT = 4
"""Tasks that may be out: two workers, two each."""


def lists(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


def orders(loader: DataLoader, epochs: int) -> list[list[int]]:
    """The indices of each epoch, from a loader without workers."""
    return [[sample[0] for batch in lists(loader) for sample in batch] for _ in range(epochs)]


@pytest.mark.parametrize("batch_size", [2, None])
def test_the_next_epoch_is_read_before_it_begins_and_only_once(batch_size: int | None) -> None:
    options: dict[str, Any] = {"batch_size": batch_size, "shuffle": True, "seed": 5}
    first, second, third = orders(DataLoader(Noted(20), **{**options, "batch_size": 1}), 3)
    reads, early = Reads(), OUT * (batch_size or 1)
    with DataLoader(Noted(20, reads.writing, draws=False), **options, **KEPT) as loader:
        for expected in (first + second[:early], second[early:] + third[:early]):
            for _ in loader:
                pass
            assert sorted(reads.take(20 + early if expected[:20] == first else 20)) == sorted(expected)
    assert reads.rest() == []  # no more than there is credit for


def test_all_of_a_short_epoch_is_read_ahead_and_no_more_than_one_epoch() -> None:
    reads = Reads()
    with DataLoader(Noted(3, reads.writing, draws=False), batch_size=2, **KEPT) as loader:
        list(loader)
        assert sorted(reads.take(6)) == [0, 0, 1, 1, 2, 2]
        list(loader)
        assert sorted(reads.take(3)) == [0, 1, 2]
    assert reads.rest() == []


@pytest.mark.parametrize(
    "options", [{**KEPT, "prefetch_next_epoch": False}, {**THREADS, "persistent_workers": True}, FORK]
)
def test_nothing_is_read_ahead(options: dict[str, Any]) -> None:
    reads = Reads()
    with DataLoader(Noted(10, reads.writing, draws=False), batch_size=2, **options) as loader:
        list(loader)
    assert sorted(reads.rest()) == list(range(10))


def test_this_epochs_batches_and_the_next_ones_share_one_credit() -> None:
    reads = Reads()
    with DataLoader(Noted(8, reads.writing, draws=False), batch_size=2, **KEPT) as loader:
        batches = iter(loader)
        next(batches)
        assert sorted(reads.take(10)) == [0, 0, 1, 1, 2, 3, 4, 5, 6, 7]
        batches.close()
    assert reads.rest() == []


def test_new_workers_are_sent_all_of_it() -> None:
    again = DataLoader(Noted(8), batch_size=2, seed=6)
    with DataLoader(Noted(8), batch_size=2, seed=6, **KEPT) as loader:
        for _ in range(3):
            assert lists(loader) == lists(again)
            loader.close()


@pytest.mark.parametrize("leave", ["close", "drop", "keep"])
def test_an_epoch_that_nothing_was_asked_of_can_begin_once_more(leave: str) -> None:
    again = DataLoader(Noted(20), batch_size=2, seed=6)
    with DataLoader(Noted(20), batch_size=2, seed=6, **KEPT) as loader:
        assert lists(loader) == lists(again)
        batches = iter(loader)  # its first batches are out already, and are not taken over before one is asked for
        if leave == "close":
            batches.close()
        elif leave == "drop":
            del batches
        loader.set_epoch(1)
        assert lists(loader) == lists(again)
        assert lists(loader) == lists(again)


def test_after_an_epoch_that_was_not_foreseen_there_is_a_rest() -> None:
    reads = Reads()
    with DataLoader(Noted(12, reads.writing, draws=False), batch_size=2, shuffle=True, **KEPT) as loader:
        list(loader)
        reads.take(20)
        loader.set_epoch(5)
        list(loader)
        assert sorted(reads.take(12)) == list(range(12))
    assert reads.rest() == []


def test_forever_goes_on_without_a_gap() -> None:
    reads = Reads()
    with DataLoader(Noted(6, reads.writing, draws=False), batch_size=2, seed=3, shuffle=True, **KEPT) as loader:
        endless = loader.forever(batches_per_epoch=3)
        again = DataLoader(Noted(6, draws=False), batch_size=2, seed=3, shuffle=True).forever(batches_per_epoch=3)
        for seen in (12, 6, 6):
            assert lists(endless) == lists(again)
            assert sorted(reads.take(seen)) == sorted([*range(6)] * (seen // 6))
    assert reads.rest() == []


def samplers(kind: str, size: int) -> dict[str, Any]:
    """Fresh ones: they may be told epochs."""
    if kind == "stratified":
        return {"batch_sampler": StratifiedBatchSampler(np.arange(size) % 2, batch_size=3)}
    if kind == "ranks":
        return {"sampler": DistributedSampler(range(size), num_replicas=2, rank=1), "batch_size": 2}
    if kind == "ranks in batches":
        inner = DistributedSampler(range(size), num_replicas=2, rank=0)
        return {"batch_sampler": BatchSampler(inner, 3, drop_last=False)}
    if kind == "foreign":
        return {"sampler": [*range(size)], "batch_size": 3}
    if kind == "foreign, shared out":
        return {"sampler": DistributedSampler(set(range(size)), num_replicas=2, rank=0), "batch_size": 2}
    return {"shuffle": kind == "shuffle", "batch_size": 3}


KINDS = ["shuffle", "in order", "stratified", "ranks", "ranks in batches", "foreign", "foreign, shared out"]


@pytest.mark.parametrize("kind", ["stratified", "ranks", "ranks in batches"])
def test_every_sampler_of_ours_is_foreseen(kind: str) -> None:
    plain = DataLoader(Noted(24), seed=7, **samplers(kind, 24))
    first, second = lists(plain), lists(plain)
    early = [sample[0] for batch in second[:OUT] for sample in batch]
    reads = Reads()
    with DataLoader(Noted(24, reads.writing), seed=7, **samplers(kind, 24), **KEPT) as loader:
        assert lists(loader) == first
        expected = [sample[0] for batch in first for sample in batch] + early
        assert sorted(reads.take(len(expected))) == sorted(expected)
        batches = iter(loader)
        assert lists(itertools.islice(batches, len(second) - OUT)) == second[:-OUT]  # all are out, and nothing else
        expected = [sample[0] for batch in second[OUT:] for sample in batch]
        assert sorted(reads.take(len(expected))) == sorted(expected)
        batches.close()  # type: ignore[attr-defined]
    assert reads.rest() == []


ACTIONS = st.one_of(
    st.just(("whole", 0)),
    st.just(("whole", 0)),
    st.tuples(st.sampled_from(["take", "set_epoch", "tell"]), st.integers(0, 4)),
    st.tuples(st.sampled_from(["save", "load", "reload", "close"]), st.just(0)),
)


class Run:
    """One loader, to which things are done; what it gave and said."""

    def __init__(self, kind: str, size: int, **options: Any) -> None:
        self.loader = DataLoader(Noted(size), seed=7, **samplers(kind, size), **options)
        self.sampler = getattr(self.loader.batch_sampler, "sampler", self.loader.sampler)
        self.saved = json.dumps(self.loader.state_dict())
        self.seen: list[Any] = []

    def do(self, action: str, number: int) -> None:
        loader = self.loader
        if action == "whole":
            self.seen.append(lists(loader))
        elif action == "take":
            self.seen.append(lists(itertools.islice(iter(loader), number)))
        elif action == "set_epoch":
            loader.set_epoch(number)
        elif action == "tell" and isinstance(self.sampler, DistributedSampler):
            self.sampler.set_epoch(number)
        elif action == "save":
            self.saved = json.dumps(loader.state_dict())
        elif action == "load":
            loader.load_state_dict(json.loads(self.saved))
        elif action == "reload":
            loader.load_state_dict(loader.state_dict())
        elif action == "close":
            loader.close()
        self.seen.append(loader.state_dict())
        self.seen.append(loader.epoch)


@settings(max_examples=few(40))
@given(
    st.sampled_from(KINDS),
    st.integers(3, 24),
    st.sampled_from([None, stacked]),
    st.lists(ACTIONS, min_size=2, max_size=6),
)
def test_whatever_is_done_the_batches_and_states_are_those_without(
    kind: str, size: int, collate_fn: Any, actions: list[tuple[str, int]]
) -> None:
    plain, ahead = Run(kind, size), Run(kind, size, **{**KEPT, "collate_fn": collate_fn})
    with ahead.loader:
        for action in actions:
            plain.do(*action)
            ahead.do(*action)
            assert ahead.seen == plain.seen


class FailsIn(Noted):
    """Fails at one sample in one epoch, which it knows by what `rng()` draws there."""

    def __init__(self, size: int, drawn: tuple[int, ...]) -> None:
        super().__init__(size)
        self.drawn = drawn

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        if sample[1] in self.drawn:
            raise ValueError(f"sample {index} is damaged")
        return sample


def test_an_early_error_is_raised_when_its_turn_comes() -> None:
    options: dict[str, Any] = {"batch_size": 2, "shuffle": True, "seed": 2}
    plain = DataLoader(Noted(12), **options)
    epochs = [lists(plain) for _ in range(3)]
    bad = tuple(epochs[1][place][0][1] for place in (0, 2))
    with DataLoader(FailsIn(12, bad), **options, **KEPT) as loader:
        assert lists(loader) == epochs[0]
        iterator, got = iter(loader), []
        for place in range(6):
            if place in (0, 2):
                with pytest.raises(ValueError, match="is damaged"):
                    next(iterator)
            else:
                got.append(next(iterator).tolist())
        assert got == [batch for place, batch in enumerate(epochs[1]) if place not in (0, 2)]
        assert next(iterator, None) is None
        assert lists(loader) == epochs[2]


class Counted:
    """A sampler of somebody else's, which knows how often it was asked."""

    asked = 0

    def __len__(self) -> int:
        return 12

    def __iter__(self) -> Any:
        self.asked += 1
        return iter(range(12))


def test_a_foreign_sampler_is_asked_once_an_epoch_also_when_it_is_shared_out() -> None:
    for sampler in (alone := Counted(), DistributedSampler(shared := Counted(), num_replicas=2, rank=0)):
        with DataLoader(Noted(12), batch_size=2, sampler=sampler, **KEPT) as loader:
            list(loader)
    assert (alone.asked, shared.asked) == (1, 1)


def test_workers_drop_what_was_sent_early_if_it_is_not_wanted() -> None:
    ledger = Ledger()
    ledger.begin()
    workers = ProcessWorkers(_job(DataLoader(Noted(4), **KEPT).options), ledger, "fork")
    workers.resize(1)
    try:
        workers.send(ledger.whole(ledger.add_early(Task(0, 1, 0, np.array([0])))))
        ledger.begin()
        ledger.drop_early()
        workers.drop_before(ledger.run)
        workers.send(ledger.whole(ledger.add(Task(7, 2, 0, np.array([1])))))
        while ledger.following is None:
            for part in workers.receive(None):
                assert isinstance(part, Part)
                ledger.take(part)
        assert ledger.following.task.seq == 7
        assert not ledger.out
    finally:
        workers.stop()


class EndsAfter(Sampler):
    """Has no order for the second epoch."""

    def order(self, seed: int, epoch: int) -> Any:
        if epoch == 1:
            raise ValueError("no order for that")
        return np.arange(6)


def test_an_error_of_the_sampler_is_raised_in_its_epoch() -> None:
    with DataLoader(Noted(6), batch_size=2, sampler=EndsAfter(), **KEPT) as loader:
        assert len(list(loader)) == 3
        with pytest.raises(ValueError, match="no order for that"):
            list(loader)
        assert len(list(loader)) == 3


def test_a_recording_has_no_batch_that_was_made_before_it_began(tmp_path: Path) -> None:
    reads = Reads()
    with DataLoader(Noted(12, reads.writing, draws=False), batch_size=2, **KEPT) as loader:
        recorder = loader.trace(tmp_path / "first.json")
        list(loader)
        reads.take(20)
        recorder.stop()
        with loader.trace(tmp_path / "second.json"):
            list(loader)
    reads.rest()
    for name in ("first", "second"):
        events = json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"]
        spans = [event for event in events if event["name"] == "fetch"]
        read = [(span["args"]["batch"], index) for span in spans for index in span["args"]["indices"]]
        assert sorted(read) == sorted((index // 2, str(index)) for index in range(12))
        assert all(span["ts"] >= 0 for span in spans)


class Told(Noted):
    """Knows its epoch by a value that the training loop sets."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self.epoch = multiprocessing.Value("i", 0)

    def __getitem__(self, index: int) -> Any:
        return np.array([index, self.epoch.value])


def test_a_dataset_that_is_told_between_epochs_is_not_read_ahead() -> None:
    data = Told(8)
    with DataLoader(data, batch_size=2, **KEPT) as loader:
        for epoch in range(3):
            data.epoch.value = epoch
            assert [batch.tolist() for batch in loader] == [[[i, epoch], [i + 1, epoch]] for i in range(0, 8, 2)]


@pytest.mark.parametrize(
    "other",
    [
        {"seq": 1},
        {"epoch": 1},
        {"seed": 1},
        {"indices": np.array([0, 2])},
        {"indices": np.array([0, 1, 2])},
        {"indices": np.array([0, 1], np.int32)},
        {"indices": [0, 1]},
        {"first": 0},
        {"avoid": ((0, "killed a worker"),)},
        {"alone": True},
        {"stride": 2},
    ],
    ids=str,
)
def test_tasks_that_differ_in_anything_are_not_the_same(other: dict[str, Any]) -> None:
    task = Task(0, 0, 0, np.array([0, 1]))
    assert same(task, Task(0, 0, 0, np.array([0, 1])))
    assert not same(task, task._replace(**other))


def test_lists_of_plain_numbers_are_compared_and_nothing_else() -> None:
    assert same(Task(0, 0, 0, [3, 4]), Task(0, 0, 0, [3, 4]))
    for one, other in (([3, 4], [3, 5]), ([3], [3, 4]), ([True], [1]), ([1.0], [1.0]), ([[1]], [[1]]), ((1,), (1,))):
        assert not same(Task(0, 0, 0, one), Task(0, 0, 0, other))
