"""The clock that leaves out what a thread waits for a CPU."""

from __future__ import annotations

import pytest

from feedline.machine import cpu_clock


def test_a_wait_between_the_two_readings_is_left_out_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was counted twice: what began just then seemed shorter by the wait, and a slow sample seemed quick."""
    waits = iter([1, 4, 4])  # seconds; three of them pass after the first was read
    monkeypatch.setattr(cpu_clock, "text_of", lambda _: f"0 {next(waits) * 10**9} 0")
    monkeypatch.setattr(cpu_clock.time, "perf_counter", lambda: 10.0)
    assert cpu_clock.now() == 6.0


def test_without_the_kernels_word_it_is_an_ordinary_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_clock, "text_of", lambda _: "")
    monkeypatch.setattr(cpu_clock.time, "perf_counter", lambda: 10.0)
    assert cpu_clock.now() == 10.0
