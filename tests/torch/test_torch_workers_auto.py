"""workers="auto" under torch's loader: torch's generator, its get_worker_info(), the same batches."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, _utils, get_worker_info

from feedline import worker_info
from feedline.torch import DataLoader
from feedline.torch.worker import enter_thread
from feedline.workers import choosing
from feedline.workers.choice import Choice, Facts, decide

AUTO: dict[str, Any] = {"num_workers": 2, "workers": "auto", "multiprocessing_context": "fork"}


class Waiting(Dataset[Any]):
    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return torch.full((5_000,), float(index)), index


class Drawing(Waiting):
    def __getitem__(self, index: int) -> Any:
        return torch.rand(8) + super().__getitem__(index)[1]


def test_threads_take_over_and_the_batches_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def decided(facts: Facts) -> Choice | None:  # on a busy machine the looks may say anything
        return Choice("thread", "of the test") if facts.looks is not None and not facts.not_shared else decide(facts)

    monkeypatch.setattr(choosing, "decide", decided)

    def batches(**options: Any) -> list[Any]:
        torch.manual_seed(5)
        with DataLoader(Waiting(0.004 * bool(options)), batch_size=4, shuffle=True, **options) as loader:
            assert loader.workers == options.get("workers", "process")
            found = [(values[:, 7].clone(), labels.clone()) for values, labels in loader]
            kinds.append(loader.stats().kind)
        return found

    kinds: list[str] = []
    for one, other in zip(batches(), batches(**AUTO), strict=True):
        assert all(map(torch.equal, one, other))
    assert kinds == ["", "thread"]


def test_who_draws_from_torchs_generator_stays_in_processes() -> None:
    def batches(**options: Any) -> list[Any]:
        torch.manual_seed(5)
        with DataLoader(Drawing(), batch_size=4, **options) as loader:
            found = [batch.clone() for batch in loader]
            whys.append(loader.stats().why_kind)
        return found

    whys: list[str] = []
    assert all(map(torch.equal, batches(), batches(**AUTO)))
    assert whys == ["", "samples draw from the framework's global generator, of which threads have only one"]


@pytest.fixture
def untouched() -> Any:
    """torch's function as it is before any worker thread, and as it was afterwards."""
    function: Any = _utils.worker.get_worker_info
    before, answer = function.__code__, getattr(_utils.worker, "_feedline_answer", None)

    def stock() -> Any:
        return _worker_info  # type: ignore[name-defined]  # noqa: F821

    def undo() -> None:
        function.__code__ = stock.__code__
        vars(_utils.worker).pop("_feedline_answer", None)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield undo
    sys.setswitchinterval(interval)
    function.__code__ = before
    if answer is not None:
        _utils.worker._feedline_answer = answer  # type: ignore[attr-defined]


def test_threads_that_begin_at_once_all_know_who_they_are(untouched: Any) -> None:
    def be(number: int) -> None:
        info = worker_info.WorkerInfo(number, 4, 0, None)
        worker_info.set_worker_info(info, own_process=False)
        barrier.wait()
        enter_thread(info)
        answer = get_worker_info()
        found.append((number, None if answer is None else answer.id))

    for _ in range(20):
        untouched()
        found: list[Any] = []
        barrier = threading.Barrier(4)
        threads = [threading.Thread(target=be, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == [(number, number) for number in range(4)]
