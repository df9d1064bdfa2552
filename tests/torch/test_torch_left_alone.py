"""torch itself beside our worker threads, and after them: as if feedline had never been imported."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as torchs
from kinds import THREADS
from sameness import Trees
from torch.utils.data import _utils

import feedline.torch as ours
from feedline.torch import worker

CODE = torchs.get_worker_info.__code__
STACK = _utils.collate.default_collate_fn_map[torch.Tensor]
NAMES = set(vars(_utils.worker))


def is_torchs_own() -> bool:
    return (
        torchs.get_worker_info.__code__ is CODE
        and _utils.collate.default_collate_fn_map[torch.Tensor] is STACK
        and set(vars(_utils.worker)) == NAMES
    )


class Who(torchs.Dataset[Any]):
    """Which worker reads it, and is torch as it was?"""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        info = torchs.get_worker_info()
        return (-1 if info is None else info.id), is_torchs_own(), os.getpid()


class Shared(torchs.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = torchs.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 12, step))


class Leaves(BaseException):
    """Neither an error of the user's nor an exit."""


def plain_and_own(**options: Any) -> set[tuple[int, bool]]:
    return {sample[:2] for sample in torchs.DataLoader(Who(), batch_size=None, collate_fn=tuple, **options)}


def test_a_plain_loader_beside_worker_threads_is_torchs_and_after_them_torch_is_as_it_was() -> None:
    assert is_torchs_own()
    with ours.DataLoader(Who(), batch_size=None, collate_fn=tuple, persistent_workers=True, **THREADS) as loader:
        assert {sample[0] for sample in loader} == {0, 1}
        assert not is_torchs_own()
        assert plain_and_own() == {(-1, False)}
        # In a process that torch forks there are no worker threads, and so nothing is replaced.
        assert plain_and_own(num_workers=2, multiprocessing_context="fork") == {(0, True), (1, True)}
        batch = torchs.default_collate([torch.zeros(2), torch.ones(2)])
        assert batch.tolist() == [[0, 0], [1, 1]]
        assert not batch.is_shared()
    assert is_torchs_own()
    assert plain_and_own() == {(-1, True)}
    assert plain_and_own(num_workers=2, multiprocessing_context="fork") == {(0, True), (1, True)}


def test_a_batch_that_torchs_own_worker_makes_is_in_torchs_shared_memory() -> None:
    with ours.DataLoader(Who(), batch_size=None, collate_fn=tuple, persistent_workers=True, **THREADS) as loader:
        list(loader)
        dataset = Trees(2, lambda n: torch.full((4,), n))
        (batch,) = torchs.DataLoader(dataset, 2, num_workers=1, multiprocessing_context="fork")
        assert batch.is_shared()


def test_the_first_of_two_loaders_to_end_takes_nothing_from_the_other() -> None:
    options: Any = {"batch_size": None, "collate_fn": tuple, "persistent_workers": True, **THREADS}
    with ours.DataLoader(Who(), **options) as one:
        list(one)
        with ours.DataLoader(Who(), **options) as two:
            list(two)
        assert {sample[0] for sample in one} == {0, 1}
    assert is_torchs_own()


def test_a_loop_that_is_left_and_one_that_never_begins_leave_torch_as_it_was() -> None:
    batches = iter(ours.DataLoader(Who(), batch_size=None, collate_fn=tuple, **THREADS))
    next(batches)
    del batches
    wait_until_threads_have_ended()
    assert is_torchs_own()

    def leave(worker_id: int) -> None:
        raise Leaves

    loader = ours.DataLoader(Who(), batch_size=None, worker_init_fn=leave, **THREADS)
    with pytest.raises(Leaves):
        list(loader)
    del loader
    wait_until_threads_have_ended()
    assert is_torchs_own()


def test_what_somebody_registers_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def summed(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return sum(batch)

    fn_map: dict[Any, Any] = _utils.collate.default_collate_fn_map
    with ours.DataLoader(Who(), batch_size=None, collate_fn=tuple, persistent_workers=True, **THREADS) as loader:
        list(loader)
        fn_map[torch.Tensor] = summed
    try:
        assert fn_map[torch.Tensor] is summed
        assert torchs.get_worker_info.__code__ is CODE
    finally:
        fn_map[torch.Tensor] = STACK


@pytest.mark.parametrize("known", [True, False])
def test_where_torchs_function_is_another_threads_read_a_stream_as_one_that_does_not_ask(
    known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not known:

        class Callable:
            def __call__(self) -> Any:
                return _utils.worker._worker_info

        monkeypatch.setattr(_utils.worker, "get_worker_info", Callable())
    loader = ours.DataLoader(Shared(), batch_size=3, **THREADS)
    if known:
        found = torch.cat(list(loader)).tolist()
    else:
        with pytest.warns(UserWarning, match="num_workers"):
            found = torch.cat(list(loader)).tolist()
    assert sorted(found) == list(range(12))
    monkeypatch.undo()
    assert is_torchs_own()
    assert worker._stock_code is None


def wait_until_threads_have_ended() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith("feedline-"):
            thread.join(100)
