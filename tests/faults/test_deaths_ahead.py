"""Workers die at the next epoch's batches: this one never hears of it, and that one lacks nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pytest
from kinds import FORK
from noted import Noted, Reads, stacked

from feedline import DataLoader, WorkerDied

ORDER: dict[str, Any] = {"batch_size": 2, "shuffle": True, "seed": 4}
KEPT: dict[str, Any] = {**FORK, **ORDER, "persistent_workers": True, "collate_fn": stacked}
SIZE = 12


def plain(size: int = SIZE, draws: bool = True, **options: Any) -> DataLoader:
    same = {name: KEPT[name] for name in ("batch_size", "shuffle", "seed")}
    return DataLoader(Noted(size, draws=draws), **{**same, **options})


def lists(batches: Any) -> list[Any]:
    return [batch.tolist() for batch in batches]


class Deadly(Noted):
    """The sample that draws `deadly` ends its worker; the one that draws `last` waits until that one is buried."""

    def __init__(self, folder: Path, deadly: int, last: int, once: bool) -> None:
        super().__init__(SIZE)
        self.note = str(folder / "pid")
        self.deadly, self.last, self.once = deadly, last, once

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        if sample[1] == self.deadly and not (self.once and os.path.exists(self.note)):
            Path(self.note + "-").write_text(str(os.getpid()))
            os.rename(self.note + "-", self.note)
            os.kill(os.getpid(), signal.SIGKILL)
        if sample[1] == self.last:
            while not os.path.exists(self.note) or is_there(int(Path(self.note).read_text())):
                time.sleep(0.001)
        return sample


def is_there(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def deadly(folder: Path, once: bool) -> tuple[Deadly, list[Any], list[Any]]:
    """Deadly is the second batch of the second epoch, and that is seen while the last of the first is waited for."""
    loader = plain()
    first, second = lists(loader), lists(loader)
    return Deadly(folder, second[1][0][1], first[-1][0][1], once), first, second


def test_a_worker_dies_at_an_early_batch_and_that_is_told_in_its_epoch(tmp_path: Path) -> None:
    data, first, second = deadly(tmp_path, once=True)
    with DataLoader(data, **KEPT) as loader:
        assert lists(loader) == first  # and no warning: that would be an error
        with pytest.warns(
            UserWarning, match=r"(?s)was killed by SIGKILL while reading .* of epoch 1.*no batch is lost"
        ):
            assert lists(loader) == second


def test_an_early_death_counts(tmp_path: Path) -> None:
    data, first, second = deadly(tmp_path, once=False)
    with DataLoader(data, max_deaths=2, **KEPT) as loader:
        assert lists(loader) == first
        iterator = iter(loader)
        with pytest.warns(UserWarning, match="was killed by SIGKILL") as told:
            assert next(iterator).tolist() == second[0]
        with pytest.raises(WorkerDied, match="has killed 2 workers"):
            next(iterator)
        assert len(told) == 1
        assert lists(iterator) == second[2:]


def test_a_death_nobody_asks_for_is_not_told(tmp_path: Path) -> None:
    data, first, _ = deadly(tmp_path, once=True)
    with DataLoader(data, **KEPT) as loader:
        assert lists(loader) == first


@pytest.mark.parametrize("epoch", [1, 5])
def test_all_workers_die_between_two_epochs(epoch: int) -> None:
    reads, again = Reads(), plain(draws=False)
    with DataLoader(Noted(SIZE, reads.writing, draws=False), **KEPT) as loader:
        assert lists(loader) == lists(again)
        reads.take(SIZE + 8)
        for process in loader.stats().workers:
            os.kill(process.pid, signal.SIGKILL)
        again.set_epoch(epoch)
        loader.set_epoch(epoch)
        with pytest.warns(UserWarning, match="was killed by SIGKILL"):
            assert lists(loader) == lists(again)
    reads.rest()


class Killer(Noted):
    def __getitem__(self, index: int) -> Any:
        if index == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)


def is_last_and_first(seed: int) -> bool:
    """Is sample 0 in the last batch of the first epoch and in the first of the second?"""
    loader = plain(8, seed=seed)
    return all(0 in [sample[0] for sample in batch] for batch in (lists(loader)[-1], next(iter(loader)).tolist()))


def test_a_sample_given_up_in_this_epoch_is_avoided_in_early_batches() -> None:
    seed = next(seed for seed in range(10_000) if is_last_and_first(seed))
    again = plain(8, seed=seed)
    expected = [[[s for s in batch if s[0]] for batch in lists(again)] for _ in range(2)]
    with warnings.catch_warnings(), DataLoader(Killer(8), **{**KEPT, "seed": seed, "on_error": "skip"}) as loader:
        warnings.simplefilter("ignore")  # how many die depends on who is quicker
        for epoch in expected:
            assert [[s[:2] for s in batch] for batch in lists(loader)] == [[s[:2] for s in batch] for batch in epoch]
