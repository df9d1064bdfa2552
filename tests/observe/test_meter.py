"""What is counted while batches are asked for and given: bytes, and time."""

from __future__ import annotations

import numpy as np
from kinds import SPAWN

from feedline import DataLoader
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
