"""Fixtures of the tests that talk to object storage; imported by their files, for which they then hold."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

import pytest
from leaving import leftovers

from feedline.sources.object_store import store

__all__ = ["however_busy_the_machine_is", "nothing_left_behind"]


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """As everywhere; but obstore's poller and connections are its own, and it closes them when it likes."""
    here, before = set(threading.enumerate()), ours()
    yield
    gc.collect()
    for thread in set(threading.enumerate()) - here:
        thread.join(100)  # they have been told to end
    after = ours()
    assert not {kind: left for kind in after if (left := after[kind] - before[kind])}


def ours() -> dict[str, set[str]]:
    found = leftovers()
    kept = {each for each in found["descriptors"] if "socket:" not in each and "anon_inode:" not in each}
    return {**found, "descriptors": kept}


@pytest.fixture(autouse=True)
def however_busy_the_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request may take its time."""
    monkeypatch.setattr(store, "FIRST", 60.0)
