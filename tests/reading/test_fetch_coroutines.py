"""Datasets with `async def __getitem__` or `__getitems__`: awaited many at a time, on a loop of the worker's own."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few, quick_kinds

import feedline
from feedline import (
    ConcatDataset,
    DataLoader,
    Dataset,
    Mixture,
    OptionError,
    StackDataset,
    Subset,
    get_worker_info,
    rng,
)
from feedline.reading.fetch_coroutines import COROUTINES, FetchLoop
from feedline.supervise import watchdog

PATIENCE = 600.0


class Drawing:
    """What each sample draws, from everything there is to draw from, with turns of the others in between."""

    def __len__(self) -> int:
        return 23

    def draw(self, index: int, first: float) -> Any:
        np.random.rand()
        return index, rng().random(), first, np.random.rand(), random.random()

    def __getitem__(self, index: int) -> Any:
        return self.draw(index, random.random())


class Awaited(Drawing):
    async def __getitem__(self, index: int) -> Any:  # type: ignore[override]
        first = random.random()
        for _ in range(index % 4):
            await asyncio.sleep(0)
        return self.draw(index, first)


class Does:
    """Sample i awaits what `do(i)` does."""

    def __init__(self, do: Callable[[int], Awaitable[Any]], length: int = 12) -> None:
        self.do, self.length = do, length

    def __len__(self) -> int:
        return self.length

    async def __getitem__(self, index: int) -> Any:
        done = await self.do(index)
        return index if done is None else done


class AtOnce(Dataset[Any]):
    """Reads whole batches, each sample by a task of its own."""

    def __len__(self) -> int:
        return 9

    async def _one(self, index: int) -> Any:
        for _ in range(index % 3):
            await asyncio.sleep(0)
        return index, rng(index).random()

    async def __getitems__(self, indices: list[int]) -> list[Any]:
        return list(await asyncio.gather(*map(self._one, indices)))


class Both(AtOnce):
    async def __getitem__(self, index: int) -> Any:
        return await self._one(index)


def batches(dataset: Any, **options: Any) -> list[Any]:
    with DataLoader(dataset, seed=3, **{"batch_size": 4, **options}) as loader:
        return [np.asarray(batch).tolist() for batch in loader]


ALONE = batches(Drawing(), batch_size=7, fetch_threads=1)
PLAIN = batches(Drawing(), batch_size=7)


@given(count=st.integers(0, 9), kind=st.sampled_from([INLINE, THREADS]))
@settings(max_examples=few(60))
def test_what_a_sample_draws_is_what_it_draws_in_a_thread_of_its_own(count: int, kind: dict[str, Any]) -> None:
    assert batches(Awaited(), batch_size=7, fetch_threads=count, **kind) == ALONE


def test_so_it_is_in_processes() -> None:
    assert batches(Awaited(), batch_size=7, **FORK) == ALONE


@quick_kinds
def test_so_many_at_a_time_and_no_more(kind: dict[str, Any]) -> None:
    came = left = 0

    async def do(index: int) -> int:
        nonlocal came, left
        came += 1
        until, now = (came + 2) // 3 * 3, came - left
        while came < until:  # until there are three of them
            await asyncio.sleep(0)
        left += 1
        return now

    options = {**kind, "num_workers": 1} if kind else kind
    found = batches(Does(do), batch_size=6, fetch_threads=3, **options)
    assert max(max(batch) for batch in found) == 3


def test_without_a_number_of_the_users_there_is_one() -> None:
    most, now = 0, 0

    async def do(index: int) -> None:
        nonlocal most, now
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    batches(Does(do, 3 * COROUTINES), batch_size=3 * COROUTINES)
    assert most == COROUTINES


@quick_kinds
def test_the_loop_stays_the_same_so_that_sessions_stay_open(kind: dict[str, Any]) -> None:
    class Session:
        loops: set[int] = set()  # noqa: RUF012

        def __len__(self) -> int:
            return 12

        async def __getitem__(self, index: int) -> Any:
            self.loops.add(id(asyncio.get_running_loop()))
            return len(self.loops)

    options = {**kind, "num_workers": 1, "persistent_workers": True} if kind else kind
    with DataLoader(Session(), 4, **options) as loader:
        epochs = [max(max(batch.tolist()) for batch in loader) for _ in range(2 if kind else 1)]
    assert set(epochs) == {1}


def test_where_a_loop_is_running_already() -> None:
    async def notebook() -> Any:
        before = threading.active_count()
        found = batches(Awaited(), batch_size=7), batches(AtOnce())
        watchdog.rest()
        assert threading.active_count() == before
        return found

    first, at_once = asyncio.run(notebook())
    assert first == ALONE
    assert at_once == batches(AtOnce())


@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_a_loader_inside_a_coroutine_is_its_own(kind: dict[str, Any]) -> None:
    async def draw() -> list[float]:
        await asyncio.sleep(0)
        return [rng().random(), random.random()]

    async def twice(index: int) -> list[float]:
        return await draw() + await draw()

    async def with_others_between(index: int) -> list[float]:
        before = await draw()
        worker = get_worker_info()
        assert batches(Awaited(), batch_size=7) == ALONE
        assert batches(Drawing(), batch_size=7) == PLAIN
        assert batches(Does(lambda index: same_as(worker)), batch_size=12) == [[1] * 12]
        return before + await draw()

    async def same_as(worker: Any) -> int:
        return int(get_worker_info() is worker)

    expected = batches(Does(twice, 4), **kind)
    assert batches(Does(with_others_between, 4), **kind) == expected


@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_many_at_once(kind: dict[str, Any]) -> None:
    drawn = [[[*range(first, min(first + 4, 9))]] for first in (0, 4, 8)]
    found = batches(AtOnce(), **kind)
    assert [batch[0] for batch in found] == [batch[0] for batch in drawn]
    assert found == batches(Both(), **kind)
    assert found == batches(Subset(AtOnce(), range(9)), **kind)


@pytest.mark.parametrize("dataset", [Awaited(), AtOnce(), Both(), Subset(Awaited(), range(5))])
def test_without_batches(dataset: Any) -> None:
    found = [float(sample[1]) for sample in DataLoader(dataset, batch_size=None, seed=3)]
    whole = batches(Drawing(), batch_size=1)
    assert found == [batch[1][0] for batch in whole][: len(found)]


def test_joined_and_chosen() -> None:
    """Through feedline's wrappers, with others beside them."""
    plain, awaited = Drawing(), Awaited()
    for wrap in (
        lambda data: Subset(data, [5, 2, 21]),
        lambda data: ConcatDataset([plain, data]),
        lambda data: ConcatDataset([data, Subset(data, [1])]),
        lambda data: Mixture({"a": plain, "b": data}, with_source=True),
        lambda data: Subset(ConcatDataset([data, plain]), [3, 30]),
    ):
        expected, found = ([str(batch) for batch in DataLoader(wrap(data), 4, seed=3)] for data in (plain, awaited))
        assert [batch.split(",")[:2] for batch in found] == [batch.split(",")[:2] for batch in expected]


@pytest.mark.parametrize("named", [False, True])
def test_side_by_side(named: bool) -> None:
    async def one(index: int) -> int:
        if index == 5:
            raise ValueError("no five")  # then the other is not awaited, which Python would complain of
        return index * 10

    async def two(index: int) -> int:
        return index * 100

    parts = {"a": Does(one), "b": list(range(12)), "c": Does(two)}
    data = StackDataset(**parts) if named else StackDataset(*parts.values())
    with DataLoader(data, 4, on_error="skip") as loader:
        found = [tuple(batch.values()) if named else batch for batch in loader]
    first = [part.tolist() for part in found[0]]
    assert first == [[0, 10, 20, 30], [0, 1, 2, 3], [0, 100, 200, 300]]
    assert [bad.index for bad in loader.errors()] == [5]


def test_joined_datasets_that_read_many_are_read_singly() -> None:
    assert batches(ConcatDataset([Both(), Both()]))[0][0] == [0, 1, 2, 3]
    assert batches(StackDataset(Both(), Both()))[0][0][0] == [0, 1, 2, 3]


@quick_kinds
def test_the_first_error_in_order_is_raised_and_what_comes_after_it_is_cancelled(kind: dict[str, Any]) -> None:
    ended: list[int] = []

    async def do(index: int) -> Any:
        if index >= 4:
            return len(ended)  # of the batch before
        if index == 0:
            for _ in range(5):
                await asyncio.sleep(0)
            raise KeyError("the first, later")
        if index == 1:
            await asyncio.sleep(0)  # the others have begun
            raise ValueError("the second, sooner")
        try:
            await asyncio.Event().wait()  # for ever
        finally:
            await asyncio.sleep(0)
            ended.append(index)

    options = {**kind, "num_workers": 1} if kind else kind
    with DataLoader(Does(do), 4, **options) as loader:
        iterator = iter(loader)
        with pytest.raises(KeyError, match="the first") as caught:
            next(iterator)
        assert next(iterator).tolist() == [2, 2, 2, 2]
    assert "raised by dataset[0]" in "\n".join(caught.value.__notes__)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_samples_are_passed_over_as_in_threads(on_error: str) -> None:
    async def do(index: int) -> None:
        await asyncio.sleep(0)
        if index % 5 == 1:
            raise ValueError(f"sample {index}")

    class Plain(Does):
        def __getitem__(self, index: int) -> Any:  # type: ignore[override]
            if index % 5 == 1:
                raise ValueError(f"sample {index}")
            return index

    found = []
    for data in (Plain(do), Does(do)):
        with DataLoader(data, 4, on_error=on_error) as loader:
            given = [batch.tolist() for batch in loader]
        found.append((given, [(bad.index, bad.error, bad.replacement) for bad in loader.errors()]))
    assert found[0] == found[1]


def test_a_sample_that_is_cancelled_by_somebody_else_is_an_error() -> None:
    async def do(index: int) -> None:
        if index == 2:
            raise asyncio.CancelledError

    with DataLoader(Does(do), 4) as loader:
        iterator = iter(loader)
        with pytest.raises(RuntimeError, match=r"dataset\[2\] was cancelled, and not by feedline"):
            next(iterator)
        assert next(iterator).tolist() == [4, 5, 6, 7]


def test_ctrl_c_cancels_what_is_awaited() -> None:
    ended = []

    async def do(index: int) -> None:
        try:
            if index == 2:
                os.kill(os.getpid(), signal.SIGINT)
            await asyncio.Event().wait()
        finally:
            ended.append(index)

    with DataLoader(Does(do), 3) as loader:
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    assert sorted(ended) == [0, 1, 2]


def test_ctrl_c_while_all_wait_cancels_them_too() -> None:
    begun, ended = [], []

    async def do(index: int) -> None:
        begun.append(index)
        if len(begun) == 3:
            # Not before the loop waits: two turns later it does, for there is nothing else to do.
            asyncio.get_running_loop().call_later(0.05, other.start)
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(index)

    other = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT))
    with DataLoader(Does(do), 3) as loader:
        with pytest.raises(KeyboardInterrupt):
            next(iter(loader))
    assert sorted(ended) == [0, 1, 2]
    other.join()


@pytest.mark.parametrize("how", ["closed", "dropped"])
@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_the_loop_ends_with_its_worker_and_what_runs_on_it_is_cancelled(kind: dict[str, Any], how: str) -> None:
    ended: list[str] = []
    loops: list[Any] = []
    kept: list[Any] = []

    async def for_ever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")

    async def do(index: int) -> None:
        if not loops:
            loops.append(asyncio.get_running_loop())
            kept.append(asyncio.ensure_future(for_ever()))
            await asyncio.sleep(0)

    options = {**kind, "num_workers": 1} if kind else kind
    loader: Any = DataLoader(Does(do), 4, **options)
    iterator: Any = iter(loader)
    next(iterator)
    if how == "closed":
        loader.close()
    else:
        del loader, iterator
        gc.collect()
        for thread in threading.enumerate():
            if thread.name.startswith("feedline"):
                thread.join(PATIENCE)
    assert ended == ["cancelled"]
    assert loops[0].is_closed()


def test_what_is_sent_to_a_thread_knows_its_sample() -> None:
    async def do(index: int) -> Any:
        await asyncio.sleep(0)
        return await asyncio.to_thread(lambda: (index, rng().random(), random.random()))

    found = batches(Does(do, 23), batch_size=7)
    assert [batch[:3] for batch in found] == [batch[:3] for batch in ALONE]


def test_as_many_may_be_sent_to_threads_as_are_awaited() -> None:
    meet = threading.Barrier(40)  # Python's own pool has 32 threads at most

    async def do(index: int) -> int:
        await asyncio.to_thread(meet.wait, PATIENCE)
        return index

    assert batches(Does(do, 40), batch_size=40, fetch_threads=40) == [list(range(40))]


@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_a_worker_is_itself_in_its_coroutines(kind: dict[str, Any]) -> None:
    async def do(index: int) -> int:
        await asyncio.sleep(0)
        info = get_worker_info()
        return -1 if info is None else info.num_workers

    assert {number for batch in batches(Does(do), **kind) for number in batch} == ({2} if kind else {-1})


def test_the_number_is_not_for_those_that_read_many_at_once() -> None:
    with pytest.raises(OptionError, match="AtOnce reads many at once"):
        DataLoader(AtOnce(), 4, fetch_threads=2)


@pytest.mark.parametrize("threads", [0, 2])
def test_a_wrapper_that_hands_on_coroutines_is_told_how(threads: int) -> None:
    class Wrapper:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return Awaited()[index]

    with pytest.raises(TypeError, match=r"Wrapper\.__getitem__ gave a coroutine .* `async def __getitem__`"):
        batches(Wrapper(), fetch_threads=threads)


def test_a_forked_copy_makes_a_loop_of_its_own() -> None:
    loop = FetchLoop(2)
    first = loop._ready()
    loop._owner = -1  # as if this were the copy
    assert loop._ready() is not first
    loop.close()
    first.close()


def test_the_doctor_says_that_it_does_not_await() -> None:
    for patient in (Awaited(), DataLoader(Awaited())):
        with pytest.raises(OptionError, match="does not await them yet"):
            feedline.doctor(patient)
