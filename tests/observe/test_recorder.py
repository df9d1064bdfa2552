"""The file of a trace or report: there after each epoch, whole, and never in the way of a training."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path
from typing import Any

import pytest
from kinds import FORK, INLINE, THREADS
from traced import Numbers, events_in, spans_in

from feedline import DataLoader


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


def test_a_fault_in_writing_a_recording_does_not_end_a_training(tmp_path: Path) -> None:
    def broken(*_: Any) -> str:
        raise KeyError("a fault of ours")

    loader = DataLoader(range(6), batch_size=2)
    recorder = loader.trace(tmp_path / "run.json")
    recorder._render = broken
    with pytest.warns(UserWarning, match="could not be written to .*run.json: KeyError"):
        assert [len(list(loader)) for _ in range(2)] == [3, 3]


@pytest.mark.parametrize("kind", ["trace", "report"])
def test_a_path_that_cannot_be_written_is_named_as_it_was_given(kind: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"missing/run\.html'$"):
        getattr(DataLoader(range(3)), kind)(tmp_path / "missing" / "run.html")
    with pytest.raises(OSError, match=r"too long.*aaa\.html'$"):
        getattr(DataLoader(range(3)), kind)(tmp_path / f"{'a' * 250}.html")
