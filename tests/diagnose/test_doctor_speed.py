"""Threads, and samples that are slow: seen and not made up; what is slow is not stuck."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Any

import pytest
from examining import examined, found, one
from sick import Map

from feedline.diagnose.doctor import speed
from feedline.diagnose.doctor.evidence import LoaderSetting
from feedline.machine.gil import Looks


class Waits(Map):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.03)
        return super().__getitem__(index)


class Computes(Map):
    def __getitem__(self, index: int) -> Any:
        sum(range(600_000))
        return super().__getitem__(index)


def test_threads_help_who_waits() -> None:
    seen = examined(Waits(16), "samples", "threads")
    assert seen.looks is not None
    assert seen.looks.on_cpu < 0.9
    (finding,) = speed.check_threads(replace(seen, looks=Looks(64, 1, 0.3, 0.01)))  # as it is on a quiet machine
    assert finding.id == "threads-help"


def test_threads_do_not_help_python() -> None:
    seen = examined(Computes(16), "samples", "threads")
    assert seen.looks is not None
    assert seen.looks.held > 0
    quiet = replace(seen, looks=Looks(64, 62, 0.3, 0.3), setting=LoaderSetting(threads=True))
    (finding,) = speed.check_threads(quiet)
    assert (finding.id, finding.severity) == ("python-bound", "warning")


class SlowStart(Map):
    ready = False

    def __getitem__(self, index: int) -> Any:
        if not self.ready:
            time.sleep(1.2)
            self.ready = True
        return super().__getitem__(index)


def test_a_worker_that_loads_something_first_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SLOW_START", 1.0)
    finding = one(SlowStart(), "samples", seconds=6)  # a sample may take 1 s, the first one 3
    assert (finding.id, finding.severity) == ("slow-start", "note")
    assert finding.evidence["first"] > 1.1


class ImportsFirst(Map):
    """Whichever sample comes first in a worker takes long."""

    first = True

    def __getitem__(self, index: int) -> Any:
        if self.first:
            self.first = False
            time.sleep(0.3)
        return super().__getitem__(index)


def test_the_first_sample_of_a_worker_is_no_slow_one() -> None:
    assert found(ImportsFirst(), "samples", "repeats", "slow") == []


class SlowTogether(Map):
    """Hangs whenever two threads read it."""

    def __getitem__(self, index: int) -> Any:
        while threading.current_thread() is not threading.main_thread():
            time.sleep(0.01)
        time.sleep(0.002)
        return super().__getitem__(index)


def test_what_hangs_in_a_trial_of_ours_is_no_sample() -> None:
    assert found(SlowTogether(), "samples", "threads", seconds=9) == []


class NeverReady(Map):
    def __getitem__(self, index: int) -> Any:
        while True:
            time.sleep(0.01)


def test_a_dataset_that_is_stuck_from_the_first_sample_on() -> None:
    finding = found(NeverReady(), "samples", seconds=1)[0]
    assert finding.id == "stuck-samples"
    assert finding.evidence["limit"] == 0.5
