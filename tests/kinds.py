"""Every kind of worker, for tests that hold for all of them."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

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
    pytest.param(FORKSERVER, id="forkserver"),
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


def few(examples: int) -> int:
    """So many examples of a property when there is time for all of them; FEEDLINE_EXAMPLES=100 (percent) takes it."""
    return max(6, examples * int(os.environ.get("FEEDLINE_EXAMPLES", "10")) // 100)


def named(value: Any) -> str:
    """A test's name for a value: the same in each of the processes that share the tests."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
