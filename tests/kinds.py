"""Every kind of worker, for tests that hold for all of them."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

ALL_TESTS = bool(os.environ.get("FEEDLINE_ALL"))
"""`make test-all` sets it: every kind of worker in every test, every example of a property, and what takes minutes."""
thorough = pytest.mark.thorough

INLINE: dict[str, Any] = {}
THREADS: dict[str, Any] = {"num_workers": 2, "workers": "thread"}
FORK: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "fork"}
SPAWN: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "spawn"}
FORKSERVER: dict[str, Any] = {"num_workers": 2, "multiprocessing_context": "forkserver"}

ALL = [
    pytest.param(INLINE, id="inline"),
    pytest.param(THREADS, id="threads"),
    pytest.param(FORK, id="fork"),
    pytest.param(SPAWN, id="spawn"),
    # Our workers of "spawn" come from a server, too: what holds for one rarely fails for the other alone.
    pytest.param(FORKSERVER, id="forkserver", marks=thorough),
]
WORKING = ALL[1:]
"""The kinds that really have workers."""
PROCESSES = ALL[2:]
QUICK = ALL[:3]
"""One of each family, for tests that run many examples."""

every_kind = pytest.mark.parametrize("kind", ALL)
every_worker = pytest.mark.parametrize("kind", WORKING)
every_process = pytest.mark.parametrize("kind", PROCESSES)
quick_kinds = pytest.mark.parametrize("kind", QUICK)
four_kinds = pytest.mark.parametrize("kind", ALL[:4])
"""For promises that have nothing to do with how a process is started: its data was sent (spawn) or was there (fork)."""


def ours(told: Any) -> list[Any]:
    """Of the warnings caught, those that are not Python's own about a fork (from 3.12 on)."""
    return [each for each in told if not issubclass(each.category, DeprecationWarning)]


def few(examples: int) -> int:
    """So many examples of a property under `make test-all`, and a tenth of them under `make test`."""
    return examples if ALL_TESTS else max(6, examples // 10)


def named(value: Any) -> str:
    """A test's name for a value: the same in each of the processes that share the tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
