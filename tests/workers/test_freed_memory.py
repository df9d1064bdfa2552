"""A worker process keeps the memory of freed samples, and the user's own settings of malloc stay."""

from __future__ import annotations

import ctypes
import resource
from types import SimpleNamespace

import numpy as np
import pytest

from feedline import DataLoader
from feedline.workers import freed_memory
from feedline.workers.freed_memory import keep_freed_memory

PAGES_OF_A_SAMPLE = 75


class Faults:
    """Each sample: how often the system had to provide a page for 40 arrays that are made and dropped again."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        arrays = [np.ones(PAGES_OF_A_SAMPLE * resource.getpagesize(), np.uint8) for _ in range(40)]
        del arrays
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library is not glibc")
@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_samples_after_the_first_need_no_new_pages(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GLIBC_TUNABLES", *freed_memory._USERS_OWN):
        monkeypatch.delenv(name, raising=False)
    with DataLoader(Faults(), batch_size=4, num_workers=1, multiprocessing_context=method) as loader:
        [faults] = loader
    assert max(faults[1:]) < 40 * PAGES_OF_A_SAMPLE / 10


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What mallopt is called with, in place of calling it."""
    found: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda name, value: found.append((name, value)))
    monkeypatch.setattr(freed_memory, "ctypes", SimpleNamespace(CDLL=lambda name: library))
    for name in ("GLIBC_TUNABLES", *freed_memory._USERS_OWN):
        monkeypatch.delenv(name, raising=False)
    return found


def test_both_thresholds_are_set(settings: list[tuple[int, int]]) -> None:
    # One alone would end glibc's own raising of the other.
    keep_freed_memory()
    assert settings == [(-1, freed_memory.KEPT), (-3, 32 << 20)]


@pytest.mark.parametrize("name", freed_memory._USERS_OWN)
def test_a_users_variable_stays(name: str, settings: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "4096")
    keep_freed_memory()
    assert settings == []


def test_a_users_tunables_stay(settings: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.nns=4:glibc.malloc.trim_threshold=4096")
    keep_freed_memory()
    assert settings == []


def test_tunables_of_something_else_change_nothing(
    settings: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.rtld.nns=4")
    keep_freed_memory()
    assert len(settings) == 2


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freed_memory, "ctypes", SimpleNamespace(CDLL=lambda name: SimpleNamespace()))
    keep_freed_memory()
