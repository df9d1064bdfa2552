"""What a stranger found wrong with stats, traces and reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kinds import SPAWN, THREADS

from feedline import DataLoader, IterableDataset
from feedline.machine.cpus import Cpus
from feedline.messages.marks import Marks
from feedline.messages.progress import COLLATING
from feedline.observe import recording as recordings
from feedline.observe.meter import Meter, Spent
from feedline.observe.recording import Recording, Slots, sample_times
from feedline.observe.report import page_of
from feedline.observe.report import report_page as page
from feedline.observe.report.measured import composition
from feedline.observe.stats import Stats
from feedline.observe.trace import trace_of


class Shared(IterableDataset):
    """Ends at different times in each worker."""

    def __init__(self, numbers: range = range(24)) -> None:
        self.numbers = numbers

    def shard(self, index: int, count: int) -> Shared:
        return Shared(self.numbers[index::count])

    def __iter__(self) -> Any:
        return iter(self.numbers)


def spans(path: Path, name: str) -> list[dict[str, Any]]:
    events = json.loads(path.read_text())["traceEvents"]
    return [event for event in events if event["name"] == name]


def test_a_stream_that_ends_is_traced(tmp_path: Path) -> None:
    """A worker that is asked once more, and finds nothing, has no place to tell of."""
    with DataLoader(Shared(), batch_size=4, **THREADS) as loader, loader.trace(tmp_path / "run.json"):
        assert sum(len(batch) for batch in loader) == 24
    assert len(spans(tmp_path / "run.json", "wait")) == 6


def test_an_error_in_worker_init_fn_is_not_hidden_by_a_trace(tmp_path: Path) -> None:
    def fail(worker: int) -> None:
        raise ZeroDivisionError("of the user")

    with DataLoader(range(8), batch_size=4, worker_init_fn=fail, **THREADS) as loader:
        recorder = loader.trace(tmp_path / "run.json")
        with pytest.raises(ZeroDivisionError, match="of the user"):
            list(loader)
        recorder.stop()


def test_a_fault_in_writing_a_recording_does_not_end_a_training(tmp_path: Path) -> None:
    def broken(*_: Any) -> str:
        raise KeyError("a fault of ours")

    loader = DataLoader(range(6), batch_size=2)
    recorder = loader.trace(tmp_path / "run.json")
    recorder._render = broken
    with pytest.warns(UserWarning, match="could not be written to .*run.json: KeyError"):
        assert [len(list(loader)) for _ in range(2)] == [3, 3]


def test_two_iterations_of_one_epoch_are_two_in_the_trace(tmp_path: Path) -> None:
    loader = DataLoader(range(6), batch_size=2)
    with loader.trace(tmp_path / "run.json"):
        for _ in range(2):
            loader.set_epoch(4)
            assert len(list(loader)) == 3
    computed = [span["args"]["batch"] for span in spans(tmp_path / "run.json", "compute")]
    assert computed == [0, 1, 0, 1]  # what came after batch 2 was no computing on it


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


def test_after_a_hundred_epochs_the_last_line_does_not_count_them_wrongly() -> None:
    loader = DataLoader(range(2))
    for _ in range(101):
        list(loader)
    assert str(loader.stats()).splitlines()[-1].startswith("all epochs: ")


def test_labels_that_are_texts_are_in_the_report(tmp_path: Path) -> None:
    data = [{"x": 1.0, "label": "<dog>" if number % 3 else "cat"} for number in range(12)]
    loader = DataLoader(data, batch_size=4)
    with loader.report(tmp_path / "run.html"):
        list(loader)
    text = (tmp_path / "run.html").read_text()
    assert "&lt;dog&gt;" in text
    assert "<dog>" not in text
    mixed = [recordings.labels_in((None, labels), 2) for labels in (["b", "a"], np.array([3, 3]))]
    assert mixed == [(("a", 1), ("b", 1)), ((3, 2),)]
    given = [recordings.Delivered(0, 0, seq, 2, 0, 1, 0, Slots(), labels) for seq, labels in enumerate(mixed)]
    assert composition(given).labels == ("3", "a", "b")  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["trace", "report"])
def test_a_path_that_cannot_be_written_is_named_as_it_was_given(kind: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing/run\.html'$"):
        getattr(DataLoader(range(3)), kind)(tmp_path / "missing" / "run.html")
    with pytest.raises(OSError, match=r"too long.*aaa\.html'$"):
        getattr(DataLoader(range(3)), kind)(tmp_path / f"{'a' * 250}.html")


def test_the_verdict_counts_the_cpus_of_the_container(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(page, "look", lambda: Cpus(host=64, allowed=64, quota=3.0, version=2))
    loader = DataLoader(range(40), batch_size=2)
    with loader.report(tmp_path / "run.html"):
        list(loader)
    assert "num_workers=3 (3 CPUs here)" in (tmp_path / "run.html").read_text()
