"""No test may leave anything behind: process, thread, descriptor or memory segment."""

from __future__ import annotations

import ctypes
import faulthandler
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from multiprocessing import forkserver

import pytest
from hypothesis import HealthCheck, settings
from kinds import ALL_TESTS, few
from leaving import keep_what_multiprocessing_keeps, leftovers, segments
from warm_host import stop_hosts

from feedline.arena import ordinary
from feedline.arena.segment import mappings
from feedline.collate import unshared
from feedline.workers import warm
from feedline.workers.dialect import NUMPY

# A shell that starts the tests in the background has Ctrl-C ignored, which every process they start would inherit.
signal.signal(signal.SIGINT, signal.default_int_handler)

collect_ignore = ["loader/types_of_batches.py"]  # for mypy; what it has at its end cannot be run

# Under `make test` every run tries the same examples: one of a thousand that fails would make it red by chance.
# `make test-all` looks for new ones, ten times as many.
settings.register_profile(
    "feedline",
    deadline=None,
    max_examples=few(100),
    derandomize=not ALL_TESTS,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("feedline")


HANGS = 660
"""A test that takes so many seconds hangs: it is red, with all stacks. On one CPU the longest takes a minute."""
hanging_is_told_to = -1
watched_since = -float(HANGS)


def pytest_configure(config: pytest.Config) -> None:
    global hanging_is_told_to
    with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        hanging_is_told_to = os.dup(2)


def pytest_runtest_logstart() -> None:
    """As pytest's `faulthandler_timeout`, which starts and joins a thread for each test: 10 ms on a busy CPU."""
    global watched_since
    if time.monotonic() - watched_since > 60:
        watched_since = time.monotonic()
        faulthandler.dump_traceback_later(HANGS, exit=True, file=hanging_is_told_to)


def pytest_exception_interact() -> None:
    """pytest has cancelled it, because somebody may debug the failure now."""
    global watched_since
    watched_since = -float(HANGS)


def pytest_unconfigure() -> None:
    faulthandler.cancel_dump_traceback_later()


EXAMPLES_NEED = {
    "feedline.loader.DataLoader.draw": find_spec("matplotlib") is not None,
    # Their last line is a note, which Python 3.10 does not know, and which doctest takes for the message in 3.11.2.
    "feedline.errors.CollateError": sys.version_info >= (3, 11, 7),
    "feedline.errors.CollateTypeError": sys.version_info >= (3, 11, 7),
}
"""Docstrings' examples that do not run on every Python of `make test-pythons`, which has the core alone."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What is marked `thorough` takes long and says little that the others do not: `make test-all` runs it."""
    for item in items:
        if not EXAMPLES_NEED.get(item.name, True):
            item.add_marker(pytest.mark.skip(reason="it needs matplotlib, or a newer Python"))
    if ALL_TESTS:
        return
    left_out = [item for item in items if item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]


@pytest.fixture(scope="module", autouse=True)
def what_was_imported_stays() -> Iterator[None]:
    """The collector need not look at it after every test: with torch and Lightning that takes a tenth of a second.
    What has been freed goes back to the system: a fork copies the page tables of all the memory that a process has."""
    gc.collect()
    gc.freeze()
    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):  # only glibc has it
        trim(0)
    yield
    assert mappings or not segments(), "a test left memory mapped of which nothing knows any more"


@pytest.fixture(scope="session", autouse=True)
def what_multiprocessing_keeps() -> None:
    keep_what_multiprocessing_keeps()


@pytest.fixture(scope="session", autouse=True)
def hosts_end_with_the_tests() -> Iterator[None]:
    yield
    stop_hosts()


@pytest.fixture(scope="session", autouse=True)
def servers_have_imported_what_tests_import() -> None:
    """Or each worker that is not forked from here does, with its dataset's module: half a second, with torch two."""
    imported = ["pytest", "hypothesis", *(["feedline.torch.dialect"] if "torch" in sys.modules else [])]
    for modules in (NUMPY.preload, (*NUMPY.preload, "feedline.torch.dialect")):
        warm._servers[modules] = server = forkserver.ForkServer()
        server.set_forkserver_preload(["feedline.workers.undisturbed", *modules, *imported])


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    here, before = set(threading.enumerate()), leftovers(segments_too=bool(mappings))
    yield
    gc.collect()
    left = since(before)
    for _ in range(20):
        if "threads" not in left:
            break
        # Those that have been told to end may do so. One that has handed over an error may hold it a moment longer, and
        # with it the loop that raised it: then nobody has been told to end until the next collection.
        for thread in set(threading.enumerate()) - here:
            thread.join(0.2)
        gc.collect()
        left = since(before)
    assert not left, f"the test left behind: {left}"


def since(before: dict[str, set[str]]) -> dict[str, list[str]]:
    # The kernel's list of mappings takes longer than all else: it is read where there may be some, and after each file.
    after = leftovers(segments_too=bool(mappings))
    return {kind: sorted(after[kind] - before[kind]) for kind in after if after[kind] - before[kind]}


@pytest.fixture
def everything_in_slots(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of slots. Without workers, batches of a few kilobytes are in slots, as those of over 16 MB are
    (test_ordinary has the others), and new samples are copied, as those that a dataset keeps are (test_unshared)."""
    monkeypatch.setattr(ordinary, "LARGEST", 0)
    monkeypatch.setattr(unshared, "ALONE", -1)
