"""The plan: how many batches, which indices in each, from any place on, and whose turn it is in a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline import (
    ArrayDataset,
    BatchSampler,
    DataLoader,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from feedline.messages.task import Task
from feedline.order.plan import IterablePlan, OrderPlan, Plan, StreamPlan, Tasks, count_batches, plan_of_batch_sampler

LENGTHS = st.integers(0, 200)
SIZES = st.integers(1, 40)


def drained(tasks: Tasks, most: int = 10_000) -> list[Task]:
    made: list[Task] = []
    try:
        while len(made) < most:
            made.append(next(tasks))  # type: ignore[call-overload]
    except StopIteration:
        return made
    raise AssertionError("the plan does not end")


def plain(tasks: list[Task]) -> list[tuple[Any, ...]]:
    return [(task.seq, task.epoch, task.seed, [int(index) for index in task.indices], task.first) for task in tasks]  # type: ignore[union-attr]


def indices_of(plan: Plan, epoch: int = 0) -> list[list[int]]:
    return [[int(index) for index in task.indices] for task in drained(plan.tasks(epoch))]  # type: ignore[union-attr]


def chunks(indices: list[int], size: int, drop_last: bool) -> list[list[int]]:
    batches = [indices[start : start + size] for start in range(0, len(indices), size)]
    return [batch for batch in batches if len(batch) == size or not drop_last]


# --- how many ---


@given(LENGTHS, SIZES)
def test_batches_are_counted_by_ceiling_and_by_floor_when_the_last_is_dropped(n: int, size: int) -> None:
    assert count_batches(n, size, drop_last=False) == len(range(0, n, size))
    assert count_batches(n, size, drop_last=True) == len(range(size, n + 1, size))


def test_counting_is_exact_where_floats_are_not() -> None:
    assert count_batches(2**62 + 1, 2, drop_last=False) == 2**61 + 1
    assert count_batches(2**62 - 1, 2, drop_last=True) == 2**61 - 1


@given(LENGTHS, SIZES, st.booleans(), st.booleans(), st.booleans())
def test_an_epoch_has_as_many_batches_as_len_says_and_every_index_once(
    n: int, size: int, drop_last: bool, shuffle: bool, foreign: bool
) -> None:
    sampler: Any = (RandomSampler if shuffle else SequentialSampler)(n)
    plan: Plan = OrderPlan(sampler, size, drop_last, seed=3)
    if foreign:
        plan = IterablePlan(sampler.order(3, 0)[:n], size, drop_last, seed=3)
    batches = indices_of(plan)
    assert len(batches) == len(plan) == (n // size if drop_last else -(-n // size))
    assert all(len(batch) == size for batch in batches[:-1])
    flat = [index for batch in batches for index in batch]
    assert len(flat) == len(set(flat)) == (n - n % size if drop_last else n)
    assert set(flat) <= set(range(n))
    if not shuffle:
        assert flat == list(range(len(flat)))


@given(st.integers(0, 60), st.integers(1, 20), st.booleans(), st.booleans())
def test_the_loaders_length_is_the_number_of_batches_it_gives(
    n: int, size: int, drop_last: bool, shuffle: bool
) -> None:
    loader = DataLoader(ArrayDataset(np.arange(n)), size, shuffle=shuffle, drop_last=drop_last)
    batches = [batch.tolist() for (batch,) in loader]
    assert len(batches) == len(loader) == count_batches(n, size, drop_last)
    assert len({index for batch in batches for index in batch}) == sum(map(len, batches))


# --- from any place on ---

PLANS: dict[str, Callable[[int, int, bool], Plan]] = {
    "sequential": lambda n, size, drop: OrderPlan(SequentialSampler(n), size, drop, seed=3),
    "shuffled": lambda n, size, drop: OrderPlan(RandomSampler(n), size, drop, seed=3),
    "shuffled by its own seed": lambda n, size, drop: OrderPlan(RandomSampler(n, seed=9), size, drop, seed=3),
    "several shuffles": lambda n, size, drop: OrderPlan(
        RandomSampler(n + 1, num_samples=2 * n + 3), size, drop, seed=3
    ),
    "drawn": lambda n, size, drop: OrderPlan(RandomSampler(n, replacement=True), size, drop, seed=3),
    "weighted": lambda n, size, drop: OrderPlan(WeightedRandomSampler(np.arange(1, 9), n + 1), size, drop, seed=3),
    "subset": lambda n, size, drop: OrderPlan(SubsetRandomSampler(range(0, 3 * n, 3)), size, drop, seed=3),
    "unbatched": lambda n, size, drop: OrderPlan(RandomSampler(n), None, False, seed=3),
    "foreign": lambda n, size, drop: IterablePlan([i * i for i in range(n)], size, drop, seed=3),
    "foreign unbatched": lambda n, size, drop: IterablePlan(range(n), None, False, seed=3),
    "foreign batches": lambda n, size, drop: plan_of_batch_sampler(chunks(list(range(n)), size, drop), seed=3),
    "our batches": lambda n, size, drop: plan_of_batch_sampler(BatchSampler(RandomSampler(n), size, drop), seed=3),
    "our batches of foreign": lambda n, size, drop: plan_of_batch_sampler(BatchSampler(range(n), size, drop), seed=3),
}


@pytest.mark.parametrize("name", PLANS)
@settings(max_examples=few(40))
@given(n=LENGTHS, size=SIZES, drop_last=st.booleans(), epoch=st.integers(0, 5), data=st.data())
def test_a_plan_begun_at_k_is_the_tail_of_the_whole(
    name: str, n: int, size: int, drop_last: bool, epoch: int, data: st.DataObject
) -> None:
    plan = PLANS[name](n, size, drop_last)
    whole = plain(drained(plan.tasks(epoch)))
    assert [task[:3] for task in whole] == [(seq, epoch, 3) for seq in range(len(plan))]
    start = data.draw(st.integers(0, len(whole) + 2))
    again = PLANS[name](n, size, drop_last)
    assert plain(drained(again.tasks(epoch, start))) == whole[start:]
    assert plain(drained(plan.tasks(epoch))) == whole


@pytest.mark.parametrize(
    "make",
    [
        lambda sampler: OrderPlan(sampler, 4, False, seed=3),
        lambda sampler: plan_of_batch_sampler(BatchSampler(sampler, 4), 3),
    ],
    ids=["sampler", "our batch sampler"],
)
def test_a_late_task_is_made_without_those_before_it(make: Callable[[Sampler], Plan]) -> None:
    class Watched(SequentialSampler):
        def order(self, seed: int, epoch: int) -> Any:
            whole = super().order(seed, epoch)

            class Order:
                def __len__(self) -> int:
                    return len(whole)

                def __getitem__(self, span: slice) -> Any:
                    spans.append((span.start, span.stop))
                    return whole[span]

            return Order()

    spans: list[tuple[int, int]] = []
    plan = make(Watched(2**40))
    task = next(plan.tasks(epoch=0, start=2**37))  # type: ignore[call-overload]
    assert task.indices.tolist() == [2**39, 2**39 + 1, 2**39 + 2, 2**39 + 3]
    assert spans == [(2**39, 2**39 + 4)]


# --- which indices ---


@pytest.mark.parametrize("name", ["shuffled", "several shuffles", "drawn", "weighted", "subset", "our batches"])
def test_epochs_and_seeds_differ_and_repeat(name: str) -> None:
    plan = PLANS[name](100, 7, False)
    assert indices_of(plan, 0) == indices_of(plan, 0) != indices_of(plan, 1)


def test_the_loaders_seed_decides_unless_the_sampler_has_its_own() -> None:
    free = [indices_of(OrderPlan(RandomSampler(50), 5, False, seed)) for seed in (1, 2)]
    fixed = [indices_of(OrderPlan(RandomSampler(50, seed=9), 5, False, seed)) for seed in (1, 2)]
    assert free[0] != free[1]
    assert fixed[0] == fixed[1]


def test_the_tasks_seed_is_the_loaders_even_if_the_sampler_has_its_own() -> None:
    assert {task.seed for task in drained(OrderPlan(RandomSampler(9, seed=9), 2, False, seed=3).tasks(0))} == {3}


def test_a_place_is_told_where_an_index_may_come_twice() -> None:
    def places(plan: Plan) -> list[int]:
        return [task.first for task in drained(plan.tasks(0))]

    assert places(OrderPlan(RandomSampler(7), 3, False, 0)) == [-1, -1, -1]
    assert places(OrderPlan(RandomSampler(7, replacement=True), 3, False, 0)) == [0, 3, 6]
    assert places(IterablePlan([1, 1, 1, 1], 3, False, 0)) == [0, 3]
    assert places(plan_of_batch_sampler([[1, 2], [], [1], [5, 5]], 0)) == [0, 2, 2, 3]


def test_our_batch_sampler_gives_the_batches_that_iterating_it_gives() -> None:
    sampler = BatchSampler(RandomSampler(23, seed=5), 4, drop_last=True)
    assert indices_of(plan_of_batch_sampler(sampler, seed=1)) == list(sampler)


def test_a_subclass_of_our_batch_sampler_is_asked_itself() -> None:
    class Reversed(BatchSampler):
        def __iter__(self) -> Iterator[list[int]]:
            return iter([batch[::-1] for batch in super().__iter__()])

    plan = plan_of_batch_sampler(Reversed(SequentialSampler(5), 2), seed=1)
    assert indices_of(plan) == [[1, 0], [3, 2], [4]]


def test_a_foreign_sampler_is_iterated_anew_each_epoch() -> None:
    class Turns:
        turn = 0

        def __iter__(self) -> Iterator[int]:
            self.turn += 1
            return iter([self.turn, self.turn * 10])

    plan = IterablePlan(Turns(), 2, False, seed=0)
    assert [indices_of(plan, epoch) for epoch in range(3)] == [[[1, 10]], [[2, 20]], [[3, 30]]]


def test_keys_of_any_kind_and_batches_of_any_kind_pass() -> None:
    assert [task.indices for task in drained(IterablePlan(["a", ("b", 1)], 1, False, 0).tasks(0))] == [
        ["a"],
        [("b", 1)],
    ]
    batches: list[Any] = [(1, 2), np.array([3, 4]), iter([5]), range(2), {7: 0}]
    assert indices_of(plan_of_batch_sampler(batches, 0)) == [[1, 2], [3, 4], [5], [0, 1], [7]]


def test_batches_of_foreign_samplers_are_taken_only_when_asked_for() -> None:
    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield taken[-1]

    taken: list[int] = []
    tasks = IterablePlan(endless(), 3, False, 0).tasks(0)
    assert taken == []
    assert next(tasks).indices == [0, 1, 2]  # type: ignore[call-overload]
    assert taken == [0, 1, 2]


def test_a_sampler_without_length_leaves_the_plan_without() -> None:
    with pytest.raises(TypeError, match="generator"):
        len(IterablePlan((i for i in range(3)), 2, False, 0))


def test_single_indices_given_as_batches_are_named() -> None:
    with pytest.raises(TypeError, match=r"batch_sampler must give lists of indices, but gave 0.*sampler"):
        drained(plan_of_batch_sampler([0, 1], seed=0).tasks(0))


@pytest.mark.parametrize("batches", [False, True])
def test_a_sampler_that_raises_does_so_after_every_whole_batch_before(batches: bool) -> None:
    def breaking() -> Iterator[Any]:
        for index in range(5):
            yield [index, index] if batches else index
        raise LookupError("no more")

    tasks = IterablePlan(breaking(), None if batches else 2, False, 0, batches=batches).tasks(0)
    for _ in range(5 if batches else 2):
        next(tasks)  # type: ignore[call-overload]
    with pytest.raises(LookupError, match="no more"):
        next(tasks)  # type: ignore[call-overload]


# --- streams: shards in turn ---


@settings(max_examples=few(200))
@given(
    batches=st.lists(st.integers(0, 6), min_size=1, max_size=5),
    ahead=st.integers(1, 8),
    told_with_last=st.booleans(),
    start=st.integers(0, 9),
    data=st.data(),
)
def test_every_open_shard_gets_its_turn_until_it_ends_in_whatever_order(
    batches: list[int], ahead: int, told_with_last: bool, start: int, data: st.DataObject
) -> None:
    """Shard s has batches[s] batches; what is out comes back in any order, and says when its shard has ended."""
    shards = len(batches)
    tasks = StreamPlan(None, 2, False, seed=3, shards=shards).tasks(epoch=4, start=start)
    out: list[int] = []
    made: list[int] = []
    ended: set[int] = set()
    more = True
    while more or out:
        while more and len(out) < ahead:
            try:
                task = next(tasks)  # type: ignore[call-overload]
            except StopIteration:
                more = False
                assert ended == set(range(shards))
                break
            assert task[1:5] == (4, 3, None, -1)
            passed_over = range(made[-1] + 1 if made else start, task.seq)
            assert {seq % shards for seq in passed_over} <= ended
            assert task.seq % shards not in ended
            assert task.seq >= start
            made.append(task.seq)
            out.append(task.seq)
        if out:
            seq = out.pop(data.draw(st.integers(0, len(out) - 1)))
            if seq // shards >= batches[seq % shards] - told_with_last:
                ended.add(seq % shards)
                tasks.ended(seq)
    wanted = {seq for shard in range(shards) for seq in range(shard, shards * batches[shard], shards) if seq >= start}
    assert wanted <= set(made)
    assert made == sorted(set(made))


def test_a_stream_of_one_shard_ends_when_told() -> None:
    tasks = StreamPlan(None, 2, False, seed=0, shards=1).tasks(0)
    assert [next(tasks).seq for _ in range(3)] == [0, 1, 2]  # type: ignore[call-overload]
    tasks.ended(1)
    tasks.ended(2)
    assert drained(tasks) == []


def test_a_map_style_plan_cannot_end_early() -> None:
    with pytest.raises(AssertionError):
        OrderPlan(SequentialSampler(3), 1, False, 0).tasks(0).ended(0)


@given(LENGTHS, SIZES, st.booleans())
def test_a_streams_length_is_counted_from_its_datasets(n: int, size: int, drop_last: bool) -> None:
    assert len(StreamPlan(range(n), size, drop_last, 0, shards=2)) == count_batches(n, size, drop_last)
    assert len(StreamPlan(range(n), None, False, 0, shards=2)) == n


def test_a_stream_of_unknown_length_has_no_len() -> None:
    with pytest.raises(TypeError, match="__len__"):
        len(StreamPlan(iter([1]), 2, False, 0, shards=1))
