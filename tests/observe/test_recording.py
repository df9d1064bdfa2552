"""What is recorded of a run is bounded."""

from __future__ import annotations

import json

import numpy as np
import pytest

from feedline.messages.marks import Marks
from feedline.messages.progress import COLLATING
from feedline.observe import recording as recordings
from feedline.observe.recording import Recording, Slots, sample_times
from feedline.observe.report import page_of
from feedline.observe.stats import Stats
from feedline.observe.trace import trace_of


def test_what_is_recorded_is_bounded_also_in_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recordings, "SINGLE", 250)
    recording = Recording()
    places = (*range(100), COLLATING)
    for seq in range(4):
        times = tuple(range(1000 * seq, 1000 * seq + 101))
        recording.made(Marks(seq, 0, 1, 1000 * seq, 1000 * seq + 200, tuple(range(100)), places, times))
        recording.gave(0, 0, seq, 100, 1000 * seq, 1, Slots(), (None, np.arange(100)))
    assert [len(sample_times(marks)) for marks in recording.marks] == [100, 100, 0, 0]
    assert [len(marks.indices or ()) for marks in recording.marks] == [100, 100, 64, 64]
    assert [len(one.labels or ()) for one in recording.delivered] == [100, 100, 100, 0]
    (collated,) = {
        event["dur"] for event in json.loads(trace_of(recording))["traceEvents"] if event["name"] == "collate"
    }
    assert collated == 0.1
    assert '"size":[100,100,100,100]' in page_of(recording, Stats(), ())
