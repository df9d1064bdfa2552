"""Tar shards that are damaged, hostile or strange: each is named, and what can be read is."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import warnings
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from contract import as_list, flat
from hypothesis import given
from hypothesis import strategies as st
from tars import SAMPLES, add, members, write

from feedline import DataLoader, OptionError, SourceError
from feedline.sources import Decoders, TarDataset, TarStream
from feedline.sources.places import Folder
from feedline.sources.tar.members import _is_sound


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    return write(tmp_path / "a-%03d.tar", max_count=4)


def damaged(tmp_path: Path, kind: str) -> tuple[Path, str]:
    [shard] = write(tmp_path / "bad.tar", index=False)
    data = shard.read_bytes()
    with tarfile.open(shard) as tar:
        at = tar.getmember("set.a/005.cls").offset
    content, message = {
        "cut in data": (data[: at + 512 + 100], rf"is cut off.*set\.a/005.* at offset {at}"),
        "cut in a header": (data[: at + 100], rf"is cut off: it ends at or before offset {at}"),
        "cut between samples": (data[:at], rf"is cut off: it ends at or before offset {at}.*end mark.*set\.a/004"),
        "damaged header": (data[: at + 3] + b"?" + data[at + 4 :], rf"is damaged: at offset {at} there is no header"),
        "no tar": (b"hello " * 1000, "is not a tar archive"),
        "short": (b"hello", "is cut off: it ends at or before offset 0"),
        "empty file": (b"", r"bad\.tar is empty \(0 bytes\)"),
        "bzip2": (b"BZh91AY" + bytes(1000), "is compressed with bzip2"),
        "xz": (b"\xfd7zXZ\0" + bytes(1000), "is compressed with xz"),
        "zstd": (b"\x28\xb5\x2f\xfd" + bytes(1000), "is compressed with zstd"),
        "cut gzip": (gzip.compress(data)[:60], "is cut off"),
        "damaged gzip": (b"\x1f\x8b" + b"?" * 1000, "its gzip data is damaged"),
        "gzip of no tar": (gzip.compress(b"hello " * 1000), "is not a tar archive"),
    }[kind]
    shard.write_bytes(content)
    return shard, message


DAMAGES = ["cut in data", "cut in a header", "cut between samples", "damaged header", "no tar", "short", "empty file"]
PACKED = ["bzip2", "xz", "zstd", "cut gzip", "damaged gzip", "gzip of no tar"]


@pytest.mark.parametrize("kind", [*DAMAGES, *PACKED])
def test_damage_is_named_and_the_next_shard_follows(tmp_path: Path, kind: str) -> None:
    shard, message = damaged(tmp_path, kind)
    with pytest.raises(SourceError, match=message):
        list(TarStream(shard))
    if kind in DAMAGES:
        with pytest.raises(SourceError, match=message):
            TarDataset(shard)
    [good] = write(tmp_path / "good.tar")
    with DataLoader(TarStream([shard, good]), 100, collate_fn=as_list, on_error="skip") as loader:
        keys = [sample["__key__"] for sample in flat(loader)]
        assert len(loader.errors()) == 1
        assert "bad.tar" in loader.errors()[0].error
    before = [sample["__key__"] for sample in SAMPLES[:5]] if kind in DAMAGES[:4] else []
    before = before[:-1] if kind in DAMAGES[1:4] else before  # whether it was whole is not known
    assert keys == before + [sample["__key__"] for sample in SAMPLES]


def test_after_an_error_a_state_goes_on_behind_it(tmp_path: Path) -> None:
    shard, _ = damaged(tmp_path, "damaged header")
    [good] = write(tmp_path / "good.tar")
    reading = iter(TarStream([shard, good]))
    list(islice(reading, 4))
    with pytest.raises(SourceError):
        next(reading)
    again = iter(TarStream([shard, good]))
    again.load_state_dict(reading.state_dict())
    assert [sample["__key__"] for sample in again] == [sample["__key__"] for sample in SAMPLES]


def test_missing_shards(tmp_path: Path, shards: list[Path]) -> None:
    with pytest.raises(SourceError, match=r"none\.tar: there is no such file"):
        TarDataset(tmp_path / "none.tar")
    with DataLoader(TarStream([tmp_path / "none.tar", *shards]), 3, collate_fn=as_list, on_error="skip") as loader:
        assert len(flat(loader)) == 10
        assert "none.tar: there is no such file" in loader.errors()[0].error


def test_an_archive_without_samples(tmp_path: Path, shards: list[Path]) -> None:
    [empty] = write(tmp_path / "empty.tar", [])
    with tarfile.open(empty) as tar:
        assert tar.getmembers() == []
    assert list(TarStream(empty)) == []
    assert len(TarDataset([empty, *shards, empty])) == 10
    assert TarDataset([empty, *shards])[9]["txt"] == "text 9"
    with pytest.raises(SourceError, match=r"no sample in .*empty\.tar"):
        TarDataset(empty)


@pytest.mark.parametrize(
    ("names", "message", "others"),
    [
        (["1.cls", "2.cls", "1.txt", "3.cls"], r"'1' at offset 2048: its key came earlier", ["1", "2", "3"]),
        (["1.cls", "1.CLS", "2.cls"], r"'1' at offset 0: it has two members with the suffix 'cls'", ["2"]),
    ],
)
def test_what_comes_twice(tmp_path: Path, names: list[str], message: str, others: list[str]) -> None:
    shard = members(tmp_path / "a.tar", *names)
    with pytest.raises(SourceError, match=message):
        TarDataset(shard)
    with DataLoader(TarStream(shard), 10, collate_fn=as_list, on_error="skip") as loader:
        assert [sample["__key__"] for sample in flat(loader)] == others
        assert len(loader.errors()) == 1
    with pytest.raises(SourceError, match=message):
        list(TarStream(shard))


def test_what_cannot_be_decoded(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for key in "123":
            add(tar, f"{key}.json", b"{]" if key == "2" else b"[]")
    data, stream = TarDataset(tmp_path / "a.tar"), TarStream(tmp_path / "a.tar")
    with pytest.raises(SourceError, match=r"a\.tar: 2: its 'json': is not JSON"):
        data[1]
    with pytest.raises(SourceError, match=r"'2' at offset 1024: its 'json': is not JSON"):
        list(stream)
    with pytest.raises(SourceError, match=r"a\.tar: 1: its 'json': cannot be decoded: ValueError: invalid literal"):
        TarDataset(tmp_path / "a.tar", decode=lambda data, suffix: int(data))[0]
    for source in (data, stream):
        with DataLoader(source, 10, collate_fn=as_list, on_error="skip") as loader:
            assert [sample["__key__"] for sample in flat(loader)] == ["1", "3"]


def test_decoders_of_files_say_it_once(tmp_path: Path) -> None:
    write(tmp_path / "a.tar", [{"__key__": "1", "json": b"{]", "seg.png": b"?", "xyz": b""}])
    for suffix, told in (
        ("json", r"its 'json': is not JSON"),
        ("seg.png", r"its 'seg\.png': is not a picture"),
        ("xyz", r"its 'xyz': no decoder is known .*decoders=\{'\.xyz'"),
    ):
        with pytest.raises(SourceError, match=rf"a\.tar: 1: {told}"):
            TarDataset(tmp_path / "a.tar", [suffix], Decoders())[0]
    assert TarDataset(tmp_path / "a.tar", ["xyz"], Decoders(decoders={".xyz": len}))[0]["xyz"] == 0


def test_what_is_no_file_is_left_out_with_one_warning(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "folder", type=tarfile.DIRTYPE)
        add(tar, "1.cls", b"1")
        add(tar, "1.link", type=tarfile.SYMTYPE, linkname="/etc/passwd")
        add(tar, "1.hard", type=tarfile.LNKTYPE, linkname="1.cls")
        add(tar, "1.txt", b"one")
        add(tar, "LICENSE", b"free")
        add(tar, "2.pipe", type=tarfile.FIFOTYPE)
        add(tar, "2.cls", b"2")
    said = r"hard link \('1.hard'\), link \('1.link'\), name without suffix \('LICENSE'\), pipe \('2.pipe'\)"
    with pytest.warns(UserWarning, match=said) as warned:
        data = TarDataset(tmp_path / "a.tar")
    assert len(warned) == 1
    with pytest.warns(UserWarning, match=said) as warned:
        assert [sample["cls"] for sample in TarStream(tmp_path / "a.tar")] == [1, 2]
    assert len(warned) == 1
    assert (data[0]["cls"], data[0]["txt"], data[1]["cls"]) == (1, "one", 2)


def test_no_name_in_an_archive_is_a_path_here(tmp_path: Path) -> None:
    evil = ["../escaped.txt", "/tmp/feedline-escaped.txt", "a/../../escaped.cls", "C:\\x.txt", "~/x.txt"]
    (tmp_path / "in").mkdir()
    with tarfile.open(tmp_path / "in" / "a.tar", "w") as tar:
        for name in evil:
            add(tar, name, b"1")
    before = sorted(tmp_path.rglob("*"))
    keys = [sample["__key__"] for sample in TarStream(tmp_path / "in" / "a.tar")]
    data = TarDataset(tmp_path / "in" / "a.tar")
    assert keys == [data[index]["__key__"] for index in range(5)] == [name.rpartition(".")[0] for name in evil]
    assert sorted(tmp_path.rglob("*")) == before
    assert not Path("/tmp/feedline-escaped.txt").exists()


def test_a_member_says_nothing_of_key_and_url(tmp_path: Path) -> None:
    shard = members(tmp_path / "a.tar", "1.cls", "1.__key__", "1.__url__")
    with pytest.warns(UserWarning, match="left out"):
        assert list(TarStream(shard)) == [{"__key__": "1", "__url__": str(shard), "cls": 1}]


def test_sparse_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        add(tar, "1.bin", b"1", pax_headers={"GNU.sparse.major": "1"})
    with pytest.raises(SourceError, match="offset 0 is a sparse file"):
        TarDataset(path)
    with tarfile.open(path, "w", format=tarfile.GNU_FORMAT) as tar:
        add(tar, "1.bin", b"1", type=tarfile.GNUTYPE_SPARSE)
    with pytest.raises(SourceError, match="offset 0 is a sparse file"):
        TarDataset(path)


def test_large_numbers_and_a_header_that_asks_for_everything(tmp_path: Path) -> None:
    """GNU's binary sizes; a size beyond the file is damage, and no memory is taken for it."""
    path = tmp_path / "a.tar"
    info = tarfile.TarInfo("1.bin")
    info.size = 1 << 40
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(2048))
    with pytest.raises(SourceError, match="is cut off"):
        list(TarStream(path))
    info = tarfile.TarInfo("1.bin")
    info.size = 1 << 40
    path.write_bytes(info.tobuf(tarfile.PAX_FORMAT) + bytes(2048))
    with pytest.raises(SourceError, match="is cut off"):
        list(TarStream(path))


def with_a_large_member(path: Path, size: int) -> Path:
    """Samples a, b and c, of which b has, beside its text and its label, so many zeros in a member between them."""
    with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
        add(tar, "a.txt", b"first")
        add(tar, "b.aaa", b"second")
        add(tar, "b.bin", bytes(size))
        add(tar, "b.txt", b"third")
        add(tar, "c.txt", b"fourth")
    return path


@pytest.mark.parametrize("name", ["a.tar", "a.tar.gz"])
def test_a_sample_that_is_too_large_is_named_and_the_next_one_follows(tmp_path: Path, name: str) -> None:
    shard = with_a_large_member(tmp_path / name, 3_000_000)
    message = (
        rf"{name}.*'?b'?.*: its member 'b\.bin' has 3,000,000 bytes beside 6 of others, more than max_bytes=2,000,000"
    )
    sources = [TarStream(shard, max_bytes=2_000_000)]
    if name == "a.tar":
        sources.append(TarDataset(shard, max_bytes=2_000_000))  # type: ignore[arg-type]
    for source in sources:
        with pytest.raises(SourceError, match=message):
            list(source)
        with DataLoader(source, 1, collate_fn=as_list, on_error="skip") as loader:
            assert [sample["__key__"] for [sample] in loader] == ["a", "c"]
            assert "raise max_bytes= to read it" in loader.errors()[0].error
    assert [len(sample.get("bin", "")) for sample in TarStream(shard)] == [0, 3_000_000, 0]


def test_what_a_sample_has_between_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does it count: who asks for little may have it out of a large sample."""
    shard = with_a_large_member(tmp_path / "a.tar", 3_000_000)
    wanted = {"suffixes": ["aaa", "txt"], "max_bytes": 1000}
    read: list[int] = []
    monkeypatch.setattr(
        Folder,
        "read_range",
        lambda self, name, start, end, original=Folder.read_range: (
            read.append(end - start) or original(self, name, start, end)
        ),
    )
    data = TarDataset(shard, **wanted)  # type: ignore[arg-type]
    read.clear()
    for sample in (data[1], data.__getitems__([1])[0]):
        assert (sample["aaa"], sample["txt"]) == (b"second", "third")
    assert max(read) < 2000
    stream = iter(TarStream(shard, **wanted))  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=r"'a'.* has no aaa"):
        next(stream)
    assert next(stream)["aaa"] == b"second"


def test_by_default_a_sample_has_a_gigabyte_at_most(tmp_path: Path) -> None:
    """The file has holes: nobody could hold what it promises."""
    size = 1 << 40
    info = tarfile.TarInfo("b.bin")
    info.size = size
    with open(tmp_path / "a.tar", "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT))
        file.truncate(size + 512 + 1024)
    for source in (TarStream, TarDataset):
        with pytest.raises(
            SourceError, match=r"a\.tar.*'b\.bin' has 1,099,511,627,776 bytes, more than max_bytes=1,073,"
        ):
            list(source(tmp_path / "a.tar"))  # type: ignore[operator]


@pytest.mark.parametrize("source", [TarStream, TarDataset])
def test_no_bytes_at_all_is_an_error(tmp_path: Path, shards: list[Path], source: Any) -> None:
    with pytest.raises(OptionError, match="max_bytes must be at least 1"):
        source(shards, max_bytes=0)


def test_names_of_all_formats(tmp_path: Path) -> None:
    """Without webdataset to compare with; its test has more of them."""
    long = "d" * 150 + "/4.txt"
    for format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "a.tar", "w", format=format) as tar:
            add(tar, long, b"1")
            add(tar, "__meta__/info.json", b"?")
            add(tar, "5.txt", b"2")
        with pytest.warns(UserWarning, match="__meta__"):
            data = TarDataset(tmp_path / "a.tar")
        assert [data[index]["__key__"] for index in range(2)] == ["d" * 150 + "/4", "5"]


def test_an_old_archives_folder_is_no_file(tmp_path: Path) -> None:
    """Before 1988 a folder was a file whose name ends in a slash."""
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        add(tar, "a.b/", type=tarfile.AREGTYPE)
        add(tar, "a.b/1.cls", b"1")
    assert [sample["__key__"] for sample in TarStream(tmp_path / "a.tar")] == ["a.b/1"]


def test_an_archive_with_a_single_block_as_its_end(tmp_path: Path) -> None:
    [shard] = write(tmp_path / "a.tar")
    shard.write_bytes(shard.read_bytes()[:-512])
    reading = iter(TarStream(shard))
    assert len(list(islice(reading, 10))) == 10
    again = iter(TarStream(shard))
    again.load_state_dict(reading.state_dict())  # before the end was seen
    assert list(again) == []


def headers(*blocks: tuple[str, bytes, bytes]) -> bytes:
    data = b""
    for name, kind, content in blocks:
        info = tarfile.TarInfo(name)
        info.type, info.size = kind, len(content)
        data += info.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)
    return data + bytes(1024)


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([("x", b"x", b"0 path=a\n")], "offset 0 is a PAX header that cannot be read"),
        ([("x", b"x", b"3 a\n")], "offset 0 is a PAX header that cannot be read"),
        ([("x", b"x", b"nonsense")], "offset 0 is a PAX header that cannot be read"),
        ([("x", b"L", b"n" * (2 << 20))], "offset 0 it has a name or header of 2,097,152 bytes"),
    ],
)
def test_headers_that_cannot_be_right(tmp_path: Path, blocks: list[tuple[str, bytes, bytes]], message: str) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes(headers(*blocks, ("1.cls", b"0", b"1")))
    with pytest.raises(SourceError, match=message):
        list(TarStream(path))


@given(st.integers(0, 9 * 1024), st.integers(0, 255))
def test_a_byte_that_changed_never_hangs_nor_crashes(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int
) -> None:
    folder = tmp_path_factory.mktemp("t")
    [shard] = write(folder / "a.tar", [{"__key__": "ä" * 60 + str(number), "cls": 1} for number in range(3)])
    data = bytearray(shard.read_bytes())
    data[at % len(data)] = byte
    shard.write_bytes(data)
    with warnings.catch_warnings(record=True):
        try:
            found = list(TarStream(shard, decode=None))
        except SourceError:
            found = []
        assert len(found) <= 3
    shutil.rmtree(folder)


def header(name: str, size: bytes, kind: bytes = b"0") -> bytes:
    """A header with a sound checksum, whatever its size is said to be."""
    block = bytearray(tarfile.TarInfo(name).tobuf(tarfile.GNU_FORMAT))
    block[124:136], block[156:157], block[148:156] = size, kind, b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


@pytest.mark.parametrize("size", [b"-0000001000\0", b"-1000      \0", b"0x200      \0", b"+0000001000\0"])
@pytest.mark.parametrize("kind", [b"0", b"L", b"x"])
def test_a_size_that_leads_back_is_damage(tmp_path: Path, size: bytes, kind: bytes) -> None:
    first = header("a.txt", b"%011o\0" % 5) + b"hello".ljust(512, b"\0")
    (tmp_path / "a.tar").write_bytes(first + header("b.txt", size, kind) + bytes(2048))
    for read in (lambda: list(TarStream(tmp_path / "a.tar")), lambda: TarDataset(tmp_path / "a.tar")):
        with pytest.raises(SourceError, match=r"the header at offset 1024 has no size"):
            read()


def test_a_pax_header_that_promises_too_much_is_damage(tmp_path: Path) -> None:
    said = b"99 path=other.txt\n"
    pax = header("pax", b"%011o\0" % len(said), b"x") + said.ljust(512, b"\0")
    (tmp_path / "a.tar").write_bytes(pax + header("a.txt", b"%011o\0" % 5) + b"hello".ljust(512, b"\0") + bytes(1024))
    with pytest.raises(SourceError, match=r"at offset 0 is a PAX header that cannot be read"):
        list(TarStream(tmp_path / "a.tar"))


@pytest.mark.parametrize("filling", [b"\0", b"a", b"\xff"])
@pytest.mark.parametrize("too_much", [0, 1, -1, 65_521, -65_521])
def test_a_checksum_is_the_sum_of_all_bytes(filling: bytes, too_much: int) -> None:
    block = bytearray(filling * 512)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % abs(sum(block) + too_much)
    assert _is_sound(bytes(block)) == (too_much == 0)
