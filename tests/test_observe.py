"""What stats() and trace() say is what happened, for every kind of worker."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import warnings
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS, few, quick_kinds

from feedline import DataLoader, EpochStats, IterableDataset, OptionError, OptionTypeError, Stats, TooManyErrors
from feedline.collate import pad
from feedline.observe.exposition import Metric, exposition


class Numbers:
    def __init__(self, length: int = 40) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return int(np.sin(np.arange(2000)).sum() * 0) + index


class Killing(Numbers):
    """One worker kills itself at sample 21, once."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def __getitem__(self, index: int) -> int:
        if index == 21 and not self.file.exists():
            self.file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


class Failing(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise ValueError("damaged")
        return index


def events_in(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["traceEvents"]


def spans_in(path: Path, *names: str) -> list[dict[str, Any]]:
    return [event for event in events_in(path) if event["ph"] == "X" and event["name"] in names]


def check(flow: EpochStats) -> None:
    """What holds for any numbers."""
    assert 0 <= flow.waiting <= flow.seconds
    assert 0 <= flow.waiting_share <= 1
    assert 0 <= flow.utilisation <= 1
    stages = flow.fetching, flow.collating, flow.sending, flow.transferring, flow.delivering
    assert all(stage >= 0 for stage in stages)
    assert flow.transferring + flow.delivering <= flow.waiting
    assert flow.queued >= 0


# ── stats ─────────────────────────────────────────────────────────────────────────────────────────────────


@quick_kinds
def test_an_epochs_numbers_fit_together(kind):
    with DataLoader(Numbers(), batch_size=6, **kind) as loader:
        for _ in range(2):
            assert sum(len(batch) for batch in loader) == 40
        stats = loader.stats()
    for flow in (stats.epoch, *stats.epochs, stats.total):
        check(flow)
    assert [(flow.number, flow.batches, flow.samples) for flow in stats.epochs] == [(0, 7, 40), (1, 7, 40)]
    assert stats.epoch == stats.epochs[-1]
    assert (stats.total.batches, stats.total.samples) == (14, 80)
    assert stats.total.seconds == pytest.approx(sum(flow.seconds for flow in stats.epochs))
    assert stats.total.fetching == pytest.approx(sum(flow.fetching for flow in stats.epochs))
    assert stats.epoch.num_workers == kind.get("num_workers", 0)
    assert stats.epoch.fetching > 0
    assert stats.epoch.collating > 0
    assert stats.epoch.bytes == 40 * 8
    assert stats.epoch.restarts == stats.errors == 0
    assert "epoch 1: 7 batches, 40 samples" in str(stats)


@given(length=st.integers(1, 60), size=st.integers(1, 9), taken=st.integers(1, 9), drop=st.booleans())
@settings(max_examples=few(40))
@pytest.mark.parametrize("kind", [INLINE, THREADS], ids=["inline", "threads"])
def test_what_was_delivered_is_counted_exactly_also_half_way(kind, length, size, taken, drop):
    with DataLoader(Numbers(length), batch_size=size, drop_last=drop, **kind) as loader:
        got = [len(batch) for batch, _ in zip(loader, range(taken), strict=False)]
        gc.collect()  # the iterator
        flow = loader.stats().epoch
        check(flow)
        more = min(taken + 1, len(loader))  # zip takes one more from the loader before it finds the range at its end
        sizes = [min(size, length - start) for start in range(0, length, size)][:more]
        assert flow.batches == len(sizes)
        assert flow.samples == sum(sizes)
        assert got == sizes[:taken]


def test_time_spent_waiting_for_an_error_is_waiting():
    loader = DataLoader(Failing(), batch_size=4)
    batches = iter(loader)
    next(batches)
    before = loader.stats().epoch.waiting
    with pytest.raises(ValueError, match="damaged"):
        next(batches)
    check(loader.stats().epoch)
    assert loader.stats().epoch.waiting > before
    assert len(list(batches)) == 8
    check(loader.stats().epoch)
    assert loader.stats().epoch.batches == 9


def test_an_epoch_that_gave_nothing_has_no_time():
    class Broken(Numbers):
        def __getitem__(self, index: int) -> int:
            raise ValueError

    loader = DataLoader(Broken(4), batch_size=4)
    assert loader.stats() == Stats()
    with pytest.raises(ValueError):
        next(iter(loader))
    flow = loader.stats().epoch
    check(flow)
    assert (flow.batches, flow.samples, flow.samples_per_second) == (0, 0, 0)


def test_whoever_asks_while_the_first_batch_is_being_made_gets_no_nonsense():
    class Asking(Numbers):
        def __getitem__(self, index: int) -> int:
            seen.append(self.loader.stats().epoch)
            return index

    seen: list[EpochStats] = []
    dataset = Asking(4)
    loader = dataset.loader = DataLoader(dataset)
    assert len(list(loader)) == 4
    assert [flow.batches for flow in seen] == [0, 1, 2, 3]
    for flow in seen:
        check(flow)


def test_killed_workers_are_counted(tmp_path):
    with DataLoader(Killing(tmp_path / "killed"), batch_size=4, **FORK) as loader:
        with pytest.warns(UserWarning, match="SIGKILL"):
            assert sum(len(batch) for batch in loader) == 40
        assert loader.stats().epoch.restarts == 1
        assert sum(len(batch) for batch in loader) == 40
        assert [flow.restarts for flow in loader.stats().epochs] == [1, 0]
        assert loader.stats().total.restarts == 1
        check(loader.stats().total)


def test_a_loop_that_is_left_lets_its_workers_go_at_once_and_is_counted():
    loader = DataLoader(Numbers(), batch_size=4, **FORK)
    gc.collect()
    gc.disable()
    try:
        for _ in loader:
            pids = [pid for _, pid in loader._session._latest().processes()]
            break
        assert len(pids) == 2
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    finally:
        gc.enable()
    flow = loader.stats().epoch
    assert flow.batches == 1
    assert flow.fetching > 0


def test_only_the_last_epochs_are_kept_one_by_one_and_all_are_counted():
    loader = DataLoader(range(2))
    for _ in range(103):
        assert len(list(loader)) == 2
    stats = loader.stats()
    assert [flow.number for flow in stats.epochs] == list(range(3, 103))
    assert (stats.total.batches, stats.total.number) == (206, 102)


# ── on_epoch_end, scalars, prometheus ─────────────────────────────────────────────────────────────────────


@quick_kinds
def test_the_callback_is_told_at_each_epochs_end(kind):
    told: list[Stats] = []
    loader = DataLoader(Numbers(), batch_size=8, on_epoch_end=told.append, **kind)
    for epoch in range(2):
        for _ in loader:
            assert len(told) == epoch
    for _ in loader:
        break  # whose end has not been met
    assert [(stats.epoch.number, stats.epoch.samples) for stats in told] == [(0, 40), (1, 40)]
    loader.close()
    for _ in DataLoader(Numbers(8), on_epoch_end=told.append):  # nobody else holds this loader
        pass
    assert told[-1].epoch.samples == 8


def test_what_the_callback_raises_is_raised():
    def refuse(stats: Stats) -> None:
        raise TooManyErrors("enough")

    with pytest.raises(TooManyErrors, match="enough"):
        list(DataLoader(range(3), on_epoch_end=refuse))
    with pytest.raises(OptionTypeError, match="on_epoch_end"):
        DataLoader(range(3), on_epoch_end="print")


def some_stats() -> Stats:
    samples = [np.ones(size, np.float32) for size in (1, 4, 2, 2)]
    with DataLoader(samples, batch_size=2, collate=pad(0), **FORK) as loader:
        for _ in loader:
            pass
        return loader.stats()


def test_scalars_are_named_numbers():
    stats = some_stats()
    scalars = stats.scalars()
    assert all(type(value) is float for value in scalars.values())
    assert scalars["loader/samples_per_second"] == stats.epoch.samples_per_second
    assert scalars["loader/waiting_share"] == stats.epoch.waiting_share
    assert scalars["loader/memory_bytes"] == sum(worker.total for worker in stats.workers) > 0
    assert scalars["loader/padding"] == stats.collate.padding == pytest.approx(3 / 12)
    assert "loader/padding" not in Stats().scalars()


def parsed(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parser = pytest.importorskip("prometheus_client.parser")
    families = list(parser.text_string_to_metric_families(text))
    assert all(family.documentation and family.type in ("counter", "gauge") for family in families)
    return {(one.name, tuple(one.labels.items())): one.value for family in families for one in family.samples}


def test_prometheus_reads_what_is_written_for_it():
    stats = some_stats()
    found = parsed(stats.prometheus(loader='tr"a\\in\n'))
    label = ("loader", 'tr"a\\in\n')
    assert found["feedline_samples_total", (label,)] == 4
    assert found["feedline_waiting_seconds_total", (label,)] == stats.total.waiting
    assert found["feedline_stage_seconds_total", (label, ("stage", "fetching"))] == stats.total.fetching
    assert found["feedline_worker_memory_bytes", (label, ("worker", "1"))] == stats.workers[1].total
    assert found["feedline_padding_ratio", (label,)] == stats.collate.padding
    assert parsed(Stats().prometheus())["feedline_batches_total", ()] == 0
    for name in ("a-b", "1a", "__a", ""):
        with pytest.raises(OptionError, match="label"):
            stats.prometheus(**{name: "x"})


@given(st.text(), st.floats(allow_nan=False))
@settings(max_examples=few(30))
def test_any_label_and_number_come_back_from_prometheus(text, value):
    metric = Metric("size", "gauge", "A size.", ((value, {"of": text}),))
    assert parsed(exposition([metric], {})) == {("feedline_size", (("of", text),)): value}


# ── trace ─────────────────────────────────────────────────────────────────────────────────────────────────


@quick_kinds
def test_a_trace_has_each_batch_where_it_was_made(kind, tmp_path):
    path = tmp_path / "run.json"
    with DataLoader(Numbers(), batch_size=6, shuffle=True, seed=3, **kind) as loader:
        with loader.trace(path):
            delivered = [batch.tolist() for _ in range(2) for batch in loader]
    fetched = spans_in(path, "fetch")
    by_batch = {}  # whose pieces may have been made by several
    for span in fetched:
        by_batch.setdefault((span["args"]["epoch"], span["args"]["batch"]), []).extend(span["args"]["indices"])
    expected = {divmod(number, 7): [str(i) for i in batch] for number, batch in enumerate(delivered)}
    assert by_batch == expected
    waits = [(span["args"]["epoch"], span["args"]["batch"], span["args"]["samples"]) for span in spans_in(path, "wait")]
    assert waits == [(*key, len(indices)) for key, indices in expected.items()]
    assert len(spans_in(path, "collate")) == len(fetched) >= 14
    assert len(spans_in(path, "compute")) == 12
    assert sorted(int(span["args"]["index"]) for span in spans_in(path, "sample")) == sorted([*range(40)] * 2)
    rows = {event["args"]["name"] for event in events_in(path) if event["name"] == "thread_name"}
    workers = {"loading"} if kind == INLINE else {"worker 0", "worker 1"}
    assert {"training loop"} < rows <= {"training loop"} | workers
    slots = [event["args"] for event in events_in(path) if event["name"] == "slots"]
    assert all(set(one) == {"working", "held", "free"} and min(one.values()) >= 0 for one in slots)


@quick_kinds
def test_spans_of_a_row_follow_each_other_and_samples_lie_within_their_batch(kind, tmp_path):
    path = tmp_path / "run.json"
    with DataLoader(Numbers(), batch_size=6, **kind) as loader, loader.trace(path):
        for _ in loader:
            pass
    rows: dict[tuple[int, bool], list[tuple[float, float]]] = defaultdict(list)
    for event in events_in(path):
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            is_sample = event["name"] == "sample"
            rows[event["tid"], is_sample].append((event["ts"], event["ts"] + event["dur"]))
    for spans in rows.values():
        spans.sort()
        assert all(after[0] >= before[1] - 0.01 for before, after in pairwise(spans))
    for row, is_sample in rows:
        for start, end in rows[row, True] if is_sample else ():
            assert any(low - 0.01 <= start and end <= high + 0.01 for low, high in rows[row, False])


@quick_kinds
def test_a_batch_that_failed_is_in_the_trace_as_far_as_it_came(kind, tmp_path):
    path = tmp_path / "run.json"
    with DataLoader(Failing(12), batch_size=3, **kind) as loader, loader.trace(path):
        batches = iter(loader)
        next(batches)
        with pytest.raises(ValueError, match="damaged"):
            next(batches)
        assert len(list(batches)) == 2
    fetched = {span["args"]["batch"] for span in spans_in(path, "fetch")}
    assert fetched == {0, 1, 2, 3}
    assert {int(span["args"]["index"]) for span in spans_in(path, "sample")} == set(range(12))


def test_a_stream_is_traced_without_indices(tmp_path):
    class Stream(IterableDataset):
        def __iter__(self):
            return iter(range(10))

    loader = DataLoader(Stream(), batch_size=4)
    with loader.trace(tmp_path / "run.json"):
        assert len(list(loader)) == 3
    assert [span["args"] for span in spans_in(tmp_path / "run.json", "fetch")][:3] == [
        {"batch": batch, "epoch": 0} for batch in range(3)
    ]


def test_restarts_are_in_the_trace(tmp_path):
    with DataLoader(Killing(tmp_path / "killed"), batch_size=4, **FORK) as loader, loader.trace(tmp_path / "run.json"):
        with pytest.warns(UserWarning, match="SIGKILL"):
            assert sum(len(batch) for batch in loader) == 40
    (event,) = [event for event in events_in(tmp_path / "run.json") if event["ph"] == "i"]
    assert "SIGKILL" in event["args"]["text"]
    assert len(spans_in(tmp_path / "run.json", "wait")) == 10


def test_recording_begins_and_ends_when_told_on_persistent_workers_too(tmp_path):
    path = tmp_path / "run.json"
    with DataLoader(Numbers(8), batch_size=4, persistent_workers=True, **FORK) as loader:
        assert len(list(loader)) == 2
        recorder = loader.trace(path)
        before = loader.stats().workers
        assert [len(list(loader)) for _ in range(2)] == [2, 2]
        recorder.stop()
        text = path.read_text()
        assert len(list(loader)) == 2
        recorder.stop()
        assert path.read_text() == text
        assert len(before) == 2
    epochs = [span["args"]["epoch"] for span in spans_in(path, "fetch")]
    assert set(epochs) == {1, 2}  # and a batch that took long may have been made in pieces


def test_a_recorder_that_was_stopped_within_an_epoch_writes_no_more(tmp_path):
    path = tmp_path / "run.json"
    loader = DataLoader(range(4))
    recorder = loader.trace(path)
    batches = iter(loader)
    assert [next(batches) for _ in range(4)] == [0, 1, 2, 3]
    recorder.stop()
    assert len(spans_in(path, "wait")) == 4
    path.unlink()
    assert list(batches) == []
    assert not path.exists()


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK, FORK | {"persistent_workers": True}])
def test_the_file_is_there_after_each_epoch_also_one_that_was_left(kind, tmp_path):
    path = tmp_path / "run.json"
    with DataLoader(Numbers(), batch_size=4, **kind) as loader:
        recorder = loader.trace(path)
        assert spans_in(path, "wait") == []
        for _ in loader:
            break
        assert len(spans_in(path, "wait")) == 1
        for batch in loader:
            kept = batch
            assert len(spans_in(path, "wait")) == 1
        assert len(kept) == 4
        assert len(spans_in(path, "wait")) == 11
        recorder.stop()
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.json"]


def test_whoever_holds_a_recorder_holds_no_loader(tmp_path):
    loader = DataLoader(Numbers(8), batch_size=4, persistent_workers=True, **FORK)
    recorder = loader.report(tmp_path / "run.html")
    assert len(list(loader)) == 2
    pids = [worker.pid for worker in loader.stats().workers]
    gc.collect()
    gc.disable()
    try:
        del loader
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    finally:
        gc.enable()
    recorder.stop()
    assert "8 samples" in (tmp_path / "run.html").read_text()


@pytest.mark.parametrize("kind", ["trace", "report"])
def test_a_path_that_cannot_be_written_is_an_error_at_once(kind, tmp_path):
    loader = DataLoader(range(3))
    with pytest.raises(FileNotFoundError):
        getattr(loader, kind)(tmp_path / "missing" / "run.json")
    with pytest.raises(IsADirectoryError):
        getattr(loader, kind)(tmp_path)
    assert len(list(loader)) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["trace", "report"])
def test_a_disk_that_fills_later_is_one_warning_and_an_error_when_stopped(kind, tmp_path):
    folder = tmp_path / "runs"
    folder.mkdir()
    loader = DataLoader(range(3))
    recorder = getattr(loader, kind)(folder / "run")
    (folder / "run").unlink()
    folder.rmdir()
    with pytest.warns(UserWarning, match="could not be written") as caught:
        assert [len(list(loader)) for _ in range(3)] == [3, 3, 3]
    assert len(caught) == 1
    with pytest.raises(OSError):
        recorder.stop()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(loader)) == 3


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path):
    """A file system of 64 kB, if this machine lets us make one."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.system(f"mount -t tmpfs -o size=64k none {disk} 2>/dev/null"):
        pytest.skip("no right to mount a small file system")
    try:
        loader = DataLoader(Numbers(600))
        recorder = loader.trace(disk / "run.json")
        with pytest.warns(UserWarning, match="No space left on device"):
            assert len(list(loader)) == 600
        assert events_in(disk / "run.json")  # whole, if old
        with pytest.raises(OSError, match="No space left"):
            recorder.stop()
        assert [entry.name for entry in disk.iterdir()] == ["run.json"]
    finally:
        os.system(f"umount {disk}")


def test_a_forked_child_that_ends_leaves_the_file_alone(tmp_path):
    loader = DataLoader(range(4))
    recorder = loader.trace(tmp_path / "run.json")
    assert len(list(loader)) == 4
    before = (tmp_path / "run.json").stat().st_ino
    child = os.fork()
    if not child:
        try:
            recorder.stop()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "run.json").stat().st_ino == before
    recorder.stop()
    assert (tmp_path / "run.json").stat().st_ino != before


def test_the_page_about_it_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parent.parent / "docs" / "seeing.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block.replace("time.sleep(0.010)", "pass").replace("1600", "160"), names)
    printed = capsys.readouterr().out
    said = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1]
    digits = re.compile(r"[\d.,]+")
    assert [digits.sub("0", line)[:20] for line in said.splitlines()] == [
        digits.sub("0", line)[:20] for line in printed.splitlines()
    ]
    assert set(Path().iterdir()) == {Path("run.json"), Path("run.html")}
    assert "loader/waiting_share" in names["scalars"]
    assert 'feedline_batches_total{loader="train"} 0' in names["text"]
