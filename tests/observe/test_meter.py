"""What is counted while batches are asked for and given: bytes, and time."""

from __future__ import annotations

import numpy as np
import pytest
from kinds import SPAWN

from feedline import DataLoader
from feedline.observe import meter as metering
from feedline.observe.meter import Meter, Spent


def test_bytes_are_estimated_and_never_go_back() -> None:
    meter = Meter(0, 0, Spent())
    before = true = 0
    for number in range(200):
        batch = np.zeros(max(1, 1000 - 10 * number), np.uint8)
        meter.asked()
        meter.gave(4, batch)
        now = meter.flow().bytes
        assert now >= before + (batch.nbytes if number < 2 else 0)
        before, true = now, true + batch.nbytes
    assert before < 2 * true


def test_starting_workers_is_waiting() -> None:
    with DataLoader(range(8), batch_size=4, **SPAWN) as loader:
        batches = iter(loader)
        started = batches._meter.starting
        list(batches)
        flow = loader.stats().epoch
        assert flow.waiting >= started / 1e9 > 0
        assert flow.seconds >= flow.waiting
        assert flow.delivering <= flow.waiting - started / 1e9


def test_a_step_before_a_batch_is_moved_is_a_step_where_the_next_is_asked_for_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A batch is moved to a device one ahead: num_workers="auto" must see the loop's step, and not its end."""
    now = 1000
    monkeypatch.setattr(metering, "clock", lambda: now)
    meter = Meter(0, 1, Spent())
    meter.asked()
    meter.gave(1, None)
    meter.whole_step()
    steps = []
    for _ in range(3):
        now += 500  # the user's step
        now += 20  # the batch made ready before is waited for
        meter.moved(20)
        meter.asked()
        now += 5
        meter.gave(1, None)
        steps.append(meter.whole_step())
    assert steps == [500, 500, 500]
    assert meter.flow().waiting == pytest.approx(3 * 25e-9)
