"""Writing tar shards: whole or not at all, the same bytes, nothing that could not be read back; values by suffix."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import plain
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few
from tars import SAMPLES, write
from warm_host import host

from feedline import OptionError, SourceError
from feedline.sources import TarDataset, TarStream, TarWriter, decode_plain, write_index

HERE = f"import sys; sys.path.append({str(Path(__file__).parent)!r})\n"
sizes = st.lists(st.integers(0, 3000), min_size=1, max_size=6)


@settings(max_examples=few(40))  # each shard is synced to the disk
@given(sizes, st.sampled_from([None, 1, 3]), st.sampled_from([None, 8192]))
def test_shards_are_full_but_not_too_full(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], count: int | None, size: int | None
) -> None:
    folder = tmp_path_factory.mktemp("t")
    samples = [{"__key__": str(number), "bin": bytes(each)} for number, each in enumerate(sizes)]
    shards = write(folder / "%d.tar", samples, max_count=count, max_size=size)
    found = [list(TarStream(shard)) for shard in shards]
    assert [sample["__key__"] for samples in found for sample in samples] == [sample["__key__"] for sample in samples]
    for shard, samples, after in zip(shards, found, [*found[1:], None], strict=True):
        assert count is None or len(samples) <= count
        assert size is None or shard.stat().st_size <= size
        if after is not None:  # the next sample would not have fitted
            more = 512 + -(-len(after[0]["bin"]) // 512) * 512
            assert len(samples) == count or (size is not None and shard.stat().st_size + more > size)
    shutil.rmtree(folder)


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    [first] = write(tmp_path / "a.tar")
    backwards = [dict(reversed(sample.items())) for sample in SAMPLES]
    script = "import os, sys; os.umask(0o77); from feedline.sources import TarWriter; from tars import *; "
    script += f"write({str(tmp_path / 'b.tar')!r})"
    environment = os.environ | {"TZ": "Asia/Tokyo"}
    host("feedline").run(["-c", HERE + script], env=environment, check=True)
    [third] = write(tmp_path / "c.tar", backwards)
    assert first.read_bytes() == (tmp_path / "b.tar").read_bytes() == third.read_bytes()
    assert Path(f"{first}.idx").read_bytes() == Path(f"{tmp_path}/b.tar.idx").read_bytes()
    assert (tmp_path / "b.tar").stat().st_mode & 0o777 == 0o600


def test_a_shard_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    writer = TarWriter(tmp_path / "a-%d.tar", max_count=2)
    with contextlib.suppress(ZeroDivisionError), writer:
        for sample in SAMPLES[:3]:
            writer.write(sample)
        assert len(list(tmp_path.iterdir())) == 3  # and one that is unfinished
        raise ZeroDivisionError
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-0.tar", "a-0.tar.idx"]
    assert writer.shards == [tmp_path / "a-0.tar"]
    with pytest.raises(OptionError, match="closed"):
        writer.write(SAMPLES[0])


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o002])
def test_shards_and_their_indices_respect_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        (tmp_path / "any").write_bytes(b"")
        write(tmp_path / "a.tar", SAMPLES[:2])
        write(tmp_path / "b.tar", SAMPLES[:2], index=False)
        write_index(tmp_path / "b.tar")
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode for path in tmp_path.iterdir()}
    assert sorted(modes) == ["a.tar", "a.tar.idx", "any", "b.tar", "b.tar.idx"]
    assert set(modes.values()) == {modes["any"]}


KILLED = """
import time
from feedline.sources import TarWriter
from tars import SAMPLES
writer = TarWriter({path!r})
writer.write(SAMPLES[0])
writer._shard._file.flush()
print("written", flush=True)
time.sleep(1000)
"""


def test_a_writer_that_is_killed_leaves_no_shard(tmp_path: Path) -> None:
    command = ["-c", HERE + KILLED.format(path=str(tmp_path / "a.tar"))]
    reading, writing = os.pipe()
    with open(reading) as said, host("feedline").start(command, writing, 2) as process:
        os.close(writing)
        assert said.readline() == "written\n"
        process.send_signal(signal.SIGKILL)
        assert process.wait(600) == -signal.SIGKILL
    assert list(tmp_path.glob("*.tar")) == []


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        ({"txt": "a"}, "'__key__'"),
        ({"__key__": 3, "txt": "a"}, "'__key__'"),
        ([1], "must be a dict"),
        ({"__key__": "a"}, "no field"),
        ({"__key__": "a.b", "txt": "a"}, "no dot"),
        ({"__key__": "a/", "txt": "a"}, "would not be read back"),
        ({"__key__": "", "txt": "a"}, "would not be read back"),
        ({"__key__": "../a", "txt": "a"}, "relative path"),
        ({"__key__": "/a", "txt": "a"}, "relative path"),
        ({"__key__": "a", "TXT": "a"}, "upper case"),
        ({"__key__": "a", "a/b": b""}, "would not be read back"),
        ({"__key__": "a", "jpg": "text"}, "'jpg' is a str"),
        ({"__key__": "a", "cls": 1.5}, "not a whole number"),
        ({"__key__": "a", "txt": 3}, "'txt' cannot be encoded from a int"),
        ({"__key__": "a", "json": {1, 2}}, "'json' cannot be encoded from a set"),
        ({"__key__": "a", "npy": np.array([object()])}, "'npy' cannot be encoded from a ndarray"),
        ({"__key__": "set.a/000", "cls": 1}, "is already in .*"),
    ],
)
def test_what_could_not_be_read_back_is_not_written(tmp_path: Path, sample: Any, message: str) -> None:
    with TarWriter(tmp_path / "a.tar") as writer:
        writer.write(SAMPLES[0])
        with pytest.raises((OptionError, TypeError), match=message):
            writer.write(sample)
        writer.write(SAMPLES[1])
    assert len(TarDataset(tmp_path / "a.tar")) == 2  # what was refused has left nothing behind


def test_options_of_the_writer(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"train-%06d\.tar"):
        TarWriter(tmp_path / "a.tar", max_count=3)
    with pytest.raises(OptionError, match="max_size"):
        TarWriter(tmp_path / "a-%d.tar", max_size=0)
    with pytest.raises(OptionError, match="no folder"):
        write(tmp_path / "none" / "a.tar")


def test_other_percent_signs_stay(tmp_path: Path) -> None:
    (tmp_path / "50%off %s").mkdir()
    shards = write(tmp_path / "50%off %s" / "a-%02d.tar", max_count=6)
    assert [shard.name for shard in shards][:2] == ["a-00.tar", "a-01.tar"]


ARRAYS = [np.arange(6).reshape(2, 3), np.asfortranarray(np.eye(3)), np.float16(2), np.zeros((0, 3))]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}{array.shape}")
def test_arrays(tmp_path: Path, array: Any) -> None:
    [shard] = write(tmp_path / "a.tar", [{"__key__": "1", "npy": array}])
    found = TarDataset(shard)[0]["npy"]
    assert plain(found) == plain(np.asarray(array))
    found[...] = 1  # its own memory


def test_arrays_that_lie() -> None:
    stream = io.BytesIO()
    np.save(stream, np.arange(10))
    good = stream.getvalue()
    for wrong in (good[:-1], good.replace(b"(10,), }         ", b"(99999999999,), }")):
        with pytest.raises(SourceError, match="is cut short"):
            decode_plain(wrong, "npy")
    stream = io.BytesIO()
    np.save(stream, np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(SourceError, match="only unpickling can read"):
        decode_plain(stream.getvalue(), "npy")
    assert decode_plain(b"cposix\nsystem\n", "pkl") == b"cposix\nsystem\n"


def test_a_shard_that_could_not_be_finished_is_not_replaced_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    writer = TarWriter(tmp_path / "%03d.tar", max_count=1)
    writer.write({"__key__": "a", "cls": 0})
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        writer.write({"__key__": "b", "cls": 1})
    monkeypatch.undo()
    with pytest.raises(OptionError, match="the TarWriter is closed"):
        writer.write({"__key__": "c", "cls": 2})
    writer.close()
    assert not [*tmp_path.iterdir()]
