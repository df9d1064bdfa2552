"""Tar shards: by index and from front to back, shared out and resumed; the index beside them."""

from __future__ import annotations

import gzip
import json
import shutil
import tarfile
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import MapContract, StreamContract, as_list, flat
from hypothesis import given
from hypothesis import strategies as st
from kinds import FORK, THREADS
from tars import SAMPLES, add, as_read, write

import feedline
from feedline import DataLoader, OptionError, SourceError, StateError
from feedline.sources import TarDataset, TarStream, write_index
from feedline.sources.located import Located
from feedline.sources.places import Folder, StoredFile
from feedline.sources.tar import index as tar_index


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    return write(tmp_path / "a-%03d.tar", max_count=4)


@pytest.fixture
def expected(shards: list[Path]) -> list[dict[str, Any]]:
    return as_read(shards, [4, 4, 2])


class TestTarDataset(MapContract):
    @pytest.fixture
    def source(self, tmp_path: Path, shards: list[Path]) -> TarDataset:
        return TarDataset(f"{tmp_path}/a-{{000..002}}.tar")


class TestTarStream(StreamContract):
    @pytest.fixture
    def source(self, tmp_path: Path, shards: list[Path]) -> TarStream:
        return TarStream(f"{tmp_path}/a-*.tar")


class TestOneGzippedShardForAllWorkers(StreamContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> TarStream:
        [shard] = write(tmp_path / "a.tar")
        packed = tmp_path / "a.tar.gz"
        half = shard.stat().st_size // 2
        data = shard.read_bytes()
        packed.write_bytes(gzip.compress(data[:half]) + gzip.compress(data[half:]))  # as `cat` makes it
        return TarStream(packed)

    @pytest.fixture
    def expected(self, tmp_path: Path) -> list[dict[str, Any]]:
        return as_read([tmp_path / "a.tar.gz"], [10])


class Remote(Folder):
    """A place that is not asked one by one, and counts what it is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[tuple[str, int, int]] = []

    def read_range(self, name: str, start: int, end: int) -> bytes:
        self.asked.append((name, start, end))
        return super().read_range(name, start, end)


def test_suffixes_and_decoding(tmp_path: Path, shards: list[Path]) -> None:
    for source in (TarDataset(shards, ["txt", ".CLS"]), TarStream(shards, ["txt", ".CLS"])):
        sample = next(iter(source[index] for index in [3])) if isinstance(source, TarDataset) else list(source)[3]
        assert {name: value for name, value in sample.items() if name != "__url__"} == {
            "__key__": "set.a/003",
            "txt": "text 3",
            "cls": 0,
        }
    assert TarDataset(shards, decode=None)[3]["cls"] == b"0"
    assert TarDataset(shards, ["cls"], decode=lambda data, suffix: (suffix, data))[3]["cls"] == ("cls", b"0")
    with pytest.raises(SourceError, match=r"set\.a/003.* has no wav; it has cls, txt, x\.npy"):
        TarDataset(shards, ["wav"])[3]
    with pytest.raises(SourceError, match=r"'set\.a/000' at offset 0 has no wav; it has cls, txt, x\.npy"):
        next(iter(TarStream(shards, ["wav"])))
    for wrong in ("txt", [], [3]):
        with pytest.raises(TypeError, match="suffixes"):
            TarDataset(shards, wrong)


def test_only_the_bytes_that_are_wanted_are_read(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [{"__key__": "0", "cls": 1, "mp4": bytes(100_000)}])
    data = TarDataset(tmp_path / "a.tar", ["cls"])
    place = Remote(tmp_path)
    data._shards = [each._replace(place=place) for each in data._shards]
    assert data[0]["cls"] == 1
    assert [end - start for _, start, end in place.asked] == [513]


def test_samples_that_lie_together_are_read_together(tmp_path: Path, shards: list[Path]) -> None:
    data = TarDataset(shards)
    assert not feedline.datasets.reads_many(data)  # a disk answers at once
    place = Remote(tmp_path)
    data._shards = [each._replace(place=place) for each in data._shards]
    order = [9, 2, 0, 3, 2, 5]
    assert [each["__key__"] for each in data.__getitems__(order)] == [SAMPLES[index]["__key__"] for index in order]
    assert [name for name, _, _ in place.asked] == ["a-000.tar", "a-001.tar", "a-002.tar"]


def test_rng_belongs_to_the_sample_when_many_are_read_at_once(tmp_path: Path, shards: list[Path]) -> None:
    def drawn(data: bytes, suffix: str) -> float:
        return float(feedline.rng().random())

    class AtOnce(TarDataset):
        def _reads_many(self) -> bool:
            return True

    def draws(data: TarDataset, size: int) -> list[float]:
        with DataLoader(data, size, collate_fn=list, seed=1) as loader:
            return [sample["cls"] for batch in loader for sample in batch]

    assert draws(TarDataset(shards, ["cls"], drawn), 3) == draws(AtOnce(shards, ["cls"], drawn), 4)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=5), st.integers(1, 5), st.integers(1, 3), st.integers(0, 4))
def test_any_counts_of_shards_workers_and_ranks(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], workers: int, ranks: int, buffer: int
) -> None:
    folder = tmp_path_factory.mktemp("t")
    keys = []
    for number, size in enumerate(sizes):
        keys += [f"{number}-{at}" for at in range(size)]
        write(folder / f"{number}.tar", [{"__key__": key, "cls": 1} for key in keys[-size:]], index=False)
    kind: dict[str, Any] = {"num_workers": workers, "workers": "thread"} if workers > 1 else {}
    seen = []
    for rank in range(ranks):
        stream = TarStream(f"{folder}/*.tar", shuffle=True, num_replicas=ranks, rank=rank)
        with DataLoader(stream, 2, collate_fn=as_list, shuffle_buffer=buffer, **kind) as loader:
            seen += [sample["__key__"] for sample in flat(loader)]
    assert sorted(seen) == sorted(keys)
    shutil.rmtree(folder)


@pytest.mark.parametrize("buffer", [0, 3])
@pytest.mark.parametrize("kind", [{}, THREADS, FORK])
def test_resumed_to_the_sample_with_shuffled_shards(shards: list[Path], kind: dict[str, Any], buffer: int) -> None:
    options: dict[str, Any] = {"collate_fn": as_list, "shuffle_buffer": buffer, **kind}
    with DataLoader(TarStream(shards, shuffle=True), 1, seed=4, **options) as loader:
        list(loader)  # an epoch before
        batches = iter(loader)
        list(islice(batches, 5))
        state = json.loads(json.dumps(loader.state_dict()))
        rest = list(batches)
    with DataLoader(TarStream(shards, shuffle=True), 1, **options) as loader:
        loader.load_state_dict(state)
        assert list(loader) == rest


def test_to_go_on_nothing_before_is_read_again(tmp_path: Path) -> None:
    big = [{"__key__": str(number), "bin": bytes(300_000)} for number in range(10)]
    [shard] = write(tmp_path / "a.tar", big)
    reading = iter(TarStream(shard))
    list(islice(reading, 8))
    state = reading.state_dict()
    stream = TarStream(shard)
    place = Remote(tmp_path)
    stream._shards = [each._replace(place=place) for each in stream._shards]
    again = iter(stream)
    again.load_state_dict(state)
    assert [sample["__key__"] for sample in again] == ["8", "9"]
    begin = min(start for _, start, end in place.asked if end - start > 6)  # besides a look at what kind of file it is
    assert len(place.asked) < 4
    assert begin == state["place"]["offset"] > 8 * 300_000


def test_a_state_for_a_shard_that_changed_is_refused(tmp_path: Path) -> None:
    [shard] = write(tmp_path / "a.tar")
    reading = iter(TarStream(shard))
    next(reading)
    state = reading.state_dict()
    write(shard, SAMPLES[:3])
    again = iter(TarStream(shard))
    with pytest.raises(StateError, match=r"a\.tar has .* bytes, but had"):
        again.load_state_dict(state)


def test_a_shard_that_changed_is_no_bad_sample(tmp_path: Path) -> None:
    """It would be left out with all its samples."""
    shards = write(tmp_path / "a-%d.tar", max_count=4)
    with DataLoader(TarStream(shards), 2, collate_fn=as_list) as loader:
        next(iter(loader))
        state = loader.state_dict()
    write(shards[0], SAMPLES[:7])
    with DataLoader(TarStream(shards), 2, collate_fn=as_list, on_error="skip") as loader:
        loader.load_state_dict(state)
        with pytest.raises(StateError, match=r"a-0\.tar has .* bytes, but had"):
            list(loader)
    shards[0].unlink()
    with DataLoader(TarStream(shards), 2, collate_fn=as_list, on_error="skip") as loader:
        loader.load_state_dict(state)
        assert len(flat(loader)) == len(SAMPLES) - 4
        assert "a-0.tar: there is no such file" in loader.errors()[0].error


def test_a_state_knows_the_folders_of_shards(tmp_path: Path) -> None:
    for folder in "xy":
        (tmp_path / "one" / folder).mkdir(parents=True)
        write(tmp_path / "one" / folder / "0.tar")
    reading = iter(TarStream([tmp_path / "one" / folder / "0.tar" for folder in "xy"]))
    next(reading)
    with pytest.raises(StateError, match="other files"):
        iter(TarStream([tmp_path / "one" / folder / "0.tar" for folder in "yx"])).load_state_dict(reading.state_dict())
    (tmp_path / "one").rename(tmp_path / "two")  # they may all be moved
    again = iter(TarStream([tmp_path / "two" / folder / "0.tar" for folder in "xy"]))
    again.load_state_dict(reading.state_dict())
    assert len(list(again)) == 2 * len(SAMPLES) - 1


def test_an_index_is_used_and_equals_the_one_the_writer_made(tmp_path: Path, shards: list[Path]) -> None:
    beside = [Path(f"{shard}.idx") for shard in shards]
    written = [path.read_bytes() for path in beside]
    assert write_index(f"{tmp_path}/a-*.tar") == beside
    assert [path.read_bytes() for path in beside] == written
    place = Remote(tmp_path)
    opened = TarDataset(shards[0])
    place.asked.clear()
    assert len(opened) == 4
    assert not place.asked  # no header was read


def test_a_stale_index_is_noticed(tmp_path: Path) -> None:
    [shard] = write(tmp_path / "a.tar")
    old = Path(f"{shard}.idx").read_bytes()
    write(shard, SAMPLES[:3])
    Path(f"{shard}.idx").write_bytes(old)
    with pytest.warns(UserWarning, match=r"a\.tar\.idx is out of date: it is for a shard of .* bytes.*write_index"):
        data = TarDataset(shard)
    assert len(data) == 3
    assert data[2]["txt"] == "text 2"


def test_what_is_added_to_a_shard_is_not_left_out(tmp_path: Path) -> None:
    """Archives are padded: a small sample makes one no longer."""
    shard = tmp_path / "a.tar"
    for number in range(3):
        with tarfile.open(shard, "a") as tar:
            add(tar, f"{number}.cls", b"%d" % number)
        if number < 2:
            write_index(shard)
            assert len(TarDataset(shard)) == number + 1
    assert shard.stat().st_size == 10240
    with pytest.warns(UserWarning, match=r"a\.tar\.idx is out of date: it is for a shard to which members were added"):
        data = TarDataset(shard)
    assert [data[place]["cls"] for place in range(len(data))] == [0, 1, 2]


def test_a_shard_of_the_same_length_but_changed_is_noticed(tmp_path: Path) -> None:
    [shard] = write(tmp_path / "a.tar")
    data = TarDataset(shard)
    other = [{**sample, "__key__": sample["__key__"].replace("a", "b")} for sample in SAMPLES]
    size = shard.stat().st_size
    write(shard, other, index=False)
    assert shard.stat().st_size == size
    with pytest.raises(SourceError, match=r"a\.tar has changed since its index was made: at offset 0 .*set\.b/000"):
        data[0]
    shard.write_bytes(b"\1" * size)
    with pytest.raises(SourceError, match=r"at offset 0 there is no header"):
        data[0]
    shard.write_bytes(b"")
    with pytest.raises(SourceError, match=r"has changed|cut off"):
        data[3]


@pytest.mark.parametrize("content", [b"", b"PK\3\4", b'{"a": 1}'])
def test_a_damaged_index_is_named(tmp_path: Path, content: bytes) -> None:
    [shard] = write(tmp_path / "a.tar")
    Path(f"{shard}.idx").write_bytes(content)
    with pytest.raises(SourceError, match=r"a\.tar\.idx is not an index .*write_index"):
        TarDataset(shard)


def test_an_index_of_another_version_is_refused(tmp_path: Path) -> None:
    [shard] = write(tmp_path / "a.tar")
    with np.load(f"{shard}.idx") as kept:
        columns = dict(kept)
    columns["about"][0] = 2
    with open(f"{shard}.idx", "wb") as file:
        np.savez(file, **columns)
    with pytest.raises(SourceError, match="version 2, not 1"):
        TarDataset(shard)


def test_an_index_never_unpickles(tmp_path: Path) -> None:
    [shard] = write(tmp_path / "a.tar")
    np.savez(tmp_path / "x.npz", about=np.array([object()], dtype=object))
    (tmp_path / "x.npz").rename(f"{shard}.idx")
    with pytest.raises(SourceError, match="allow_pickle"):
        TarDataset(shard)


def test_an_index_is_for_folders(tmp_path: Path) -> None:
    class Elsewhere:
        def read(self, name: str) -> bytes:
            raise FileNotFoundError(name)

        def size(self, name: str) -> int:
            return 0

        def list(self, prefix: str = "") -> list[StoredFile]:
            return []

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tar_index, "locate", lambda urls, what: [Located(Elsewhere(), "a.tar", "s3://b/a.tar")])
        with pytest.raises(OptionError, match=r"s3://b/a\.tar: an index can only be written into a local folder"):
            write_index("s3://b/a.tar")
