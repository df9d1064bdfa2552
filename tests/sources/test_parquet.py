"""Parquet and Arrow files: rows by number and as a stream, columns, filters, bounded memory, and what is damaged."""

from __future__ import annotations

import json
import multiprocessing
import pickle
import shutil
import threading
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq
import pytest
from contract import MapContract, StreamContract, as_list, flat, plain
from hypothesis import given
from hypothesis import strategies as st
from kinds import FORK, THREADS
from tables import ROWS, sample, table, write

import feedline
from feedline import BlockSampler, DataLoader, OptionError, SourceError, StateError
from feedline.sources import ParquetDataset, ParquetStream
from feedline.sources.located import Located, locate
from feedline.sources.parquet import groups as parquet_groups
from feedline.sources.parquet.opening import PlaceFile
from feedline.sources.places import Folder


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return write(tmp_path)


@pytest.fixture
def expected() -> list[dict[str, Any]]:
    return [sample(number) for number in range(ROWS)]


class TestParquetDataset(MapContract):
    @pytest.fixture
    def source(self, files: list[Path]) -> ParquetDataset:
        return ParquetDataset(files, cache_bytes=0)


class TestParquetStream(StreamContract):
    @pytest.fixture
    def source(self, tmp_path: Path, files: list[Path]) -> ParquetStream:
        return ParquetStream(f"{tmp_path}/*.parquet")


class TestFilteredStream(StreamContract):
    """Of one row group, which all workers share by rows."""

    @pytest.fixture
    def source(self, tmp_path: Path) -> ParquetStream:
        return ParquetStream(write(tmp_path, (ROWS,), ROWS), filters=[("even", "=", True)])

    @pytest.fixture
    def expected(self) -> list[dict[str, Any]]:
        return [sample(number) for number in range(0, ROWS, 2)]


class TestArrowFile(MapContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> ParquetDataset:
        with pa.ipc.new_file(tmp_path / "a.arrow", table().schema) as writer:
            writer.write_table(table(), max_chunksize=5)
        return ParquetDataset(tmp_path / "a.arrow")


class Elsewhere:
    """A place that is no folder: read by ranges, which are counted."""

    def __init__(self, path: Path) -> None:
        self.folder = Folder(path)
        self.asked: list[int] = []

    def read_range(self, name: str, start: int, end: int) -> bytes:
        self.asked.append(end - start)
        return self.folder.read_range(name, start, end)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.folder, name)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    """`locate` finds every file there."""
    place = Elsewhere(tmp_path)

    def found(urls: Any, what: str) -> list[Located]:
        return [each._replace(place=place) for each in locate(urls, what)]

    monkeypatch.setattr(parquet_groups, "locate", found)
    return place


def ids(samples: Any) -> list[int]:
    return [int(each["id"]) for each in samples]


# Rows and columns ----------------------------------------------------------------------------------------------


def test_through_a_place(elsewhere: Elsewhere, files: list[Path], tmp_path: Path) -> None:
    data = ParquetDataset(files, filters=[("id", ">=", 3)])
    assert plain(data.__getitems__([0, 19, 7])) == plain([sample(3), sample(22), sample(10)])
    assert plain(list(ParquetStream(files))) == plain([sample(number) for number in range(ROWS)])
    assert plain(pickle.loads(pickle.dumps(data))[0]) == plain(sample(3))
    with pa.ipc.new_file(tmp_path / "a.arrow", table().schema) as writer:
        writer.write_table(table(), max_chunksize=5)
    assert plain(ParquetDataset(tmp_path / "a.arrow")[22]) == plain(sample(22))
    assert elsewhere.asked


def test_only_the_columns_that_are_wanted_are_read(elsewhere: Elsewhere, tmp_path: Path) -> None:
    big = pa.table(
        {"id": range(100), "picture": [np.random.default_rng(number).bytes(10_000) for number in range(100)]}
    )
    pq.write_table(big, tmp_path / "a.parquet", row_group_size=50)
    with pa.ipc.new_file(tmp_path / "a.arrow", big.schema) as writer:
        writer.write_table(big, max_chunksize=50)
    for name in ("a.parquet", "a.arrow"):
        elsewhere.asked.clear()
        data = ParquetDataset(tmp_path / name, ["id"])
        assert data[60] == {"id": 60}
        assert [row["id"] for row in ParquetStream(tmp_path / name, ["id"], [("id", ">", 97)])] == [98, 99]
        assert sum(elsewhere.asked) < 200_000
    assert [*ParquetDataset(tmp_path / "a.arrow", ["picture", "id"])[60]] == ["picture", "id"]


def test_a_place_as_a_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    file = PlaceFile(locate(tmp_path / "a", "files")[0])
    assert (file.read(3), file.tell(), file.seek(-2, 2), file.read(), file.read(), file.size()) == (
        b"012", 3, 8, b"89", b"", 10,
    )  # fmt: skip
    assert (file.seek(1), file.seek(2, 1), file.read(100)) == (1, 3, b"3456789")


def test_columns_and_transform(files: list[Path]) -> None:
    for source in (ParquetDataset(files, ["text", "id"]), ParquetStream(files, ["text", "id"])):
        first = source[0] if isinstance(source, ParquetDataset) else next(iter(source))
        assert list(first.items()) == [("text", "text 0"), ("id", 0)]
    data = ParquetDataset(files, ["id"], transform=lambda row: row["id"] * 10)
    assert (data[3], data.__getitems__([5, 1])) == (30, [50, 10])
    assert data.__getbatch__(np.array([5, 1]), np.empty) is NotImplemented
    with DataLoader(data, 2) as loader:
        assert next(iter(loader)).tolist() == [0, 10]
    assert list(islice(ParquetStream(files, ["id"], transform=lambda row: row["id"] * 10), 3)) == [0, 10, 20]


@pytest.mark.parametrize("format", ["parquet", "arrow"])
@pytest.mark.parametrize("chunks", [1, 2])
def test_values_of_all_kinds(tmp_path: Path, chunks: int, format: str) -> None:
    import datetime
    import decimal

    day = datetime.date(2026, 1, 2)
    columns: dict[str, tuple[Any, Any]] = {
        "dictionary": (pa.array(["a", "b", None]).dictionary_encode(), ["a", "b", None]),
        "date": (pa.array([day, None, day]), [day, None, day]),
        "decimal": (pa.array([decimal.Decimal("1.5")] * 3), [decimal.Decimal("1.5")] * 3),
        "struct": (pa.array([{"a": 1}, None, {"a": 2}]), [{"a": 1}, None, {"a": 2}]),
        "nested": (pa.array([[[1], [2, 3]], [], None]), [[[1], [2, 3]], [], None]),
        "texts": (pa.array([["a"], [], ["b", "c"]]), [["a"], [], ["b", "c"]]),
        "lists": (pa.array([[1, 2], None, [3]]), [np.array([1, 2]), None, np.array([3])]),
        "holes": (pa.array([[1, None], [2], [None, 4]]), [[1, None], np.array([2]), [None, 4]]),
        "fixed with holes": (pa.array([[1.0, None], [2.0, 3.0]] * 2, pa.list_(pa.float64(), 2)).slice(0, 3),
                             [[1.0, None], np.array([2.0, 3.0]), [1.0, None]]),
        "codes": (pa.array([7, 8, 7]).dictionary_encode(), [np.int64(7), np.int64(8), np.int64(7)]),
        "fixed": (pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2)),
                  [np.array([1, 2], np.float32), None, np.array([3, 4], np.float32)]),
        "bools": (pa.array([True, None, False]), [np.bool_(True), None, np.bool_(False)]),
        "large": (pa.array([2**63, None, 2**64 - 1], pa.uint64()), [np.uint64(2**63), None, np.uint64(2**64 - 1)]),
    }  # fmt: skip
    rows = pa.table({name: column for name, (column, _) in columns.items()})
    rows = pa.concat_tables([rows] * chunks)
    if format == "parquet":
        pq.write_table(rows, tmp_path / "a.parquet")
    else:
        with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as writer:
            writer.write_table(rows)
    data = ParquetDataset(tmp_path / f"a.{format}")
    for row in range(3 * chunks):
        assert plain(data[row]) == plain({name: values[row % 3] for name, (_, values) in columns.items()})
        for name, (_, values) in columns.items():
            assert type(data[row][name]) is type(values[row % 3])


def test_what_is_given_is_its_own(files: list[Path]) -> None:
    data = ParquetDataset(files)
    data[3]["pair"][0] = 99
    data[3]["tokens"][0] = 99
    data.__getitems__([3])[0]["pair"][0] = 99
    assert data.__getitems__([3, 4])[0]["pair"].base is None  # kept, it keeps no other row
    with DataLoader(ParquetDataset(files, ["pair"]), 4) as loader:
        for batch in loader:
            batch["pair"][...] = 99
    assert plain(data[3]) == plain(sample(3))


@pytest.mark.parametrize(
    "columns", [["id", "half", "even", "pair"], ["id", "text"], ["pair", "maybe"], ["tokens", "id"]]
)
def test_whole_batches_are_what_collating_gives(files: list[Path], columns: list[str]) -> None:
    order = [22, 0, 3, 9, 10, 3]
    data = ParquetDataset(files, columns)
    batch = data.__getbatch__(np.array(order), np.empty)
    if "pair" in columns and "id" in columns:
        assert plain(batch) == plain(feedline.default_collate([data[index] for index in order]))
        assert {name: array.dtype for name, array in batch.items()} == {
            "id": np.int32, "half": np.float32, "even": np.bool_, "pair": np.int64,
        }  # fmt: skip
    else:
        assert batch is NotImplemented


# Filters -------------------------------------------------------------------------------------------------------

tests = st.lists(
    st.one_of(
        st.tuples(st.just("id"), st.sampled_from(["=", "!=", "<", ">", "<=", ">="]), st.integers(-1, 25)),
        st.tuples(st.just("maybe"), st.sampled_from(["<", ">", "=", "!="]), st.integers(-1, 25)),
        st.tuples(st.just("text"), st.sampled_from(["in", "not in"]), st.just(["text 3", "text 17", "text 99"])),
        st.tuples(st.just("even"), st.just("=="), st.booleans()),
    ),
    min_size=1,
    max_size=3,
)


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write(tmp_path_factory.mktemp("files"))


@given(filters=st.one_of(tests, st.lists(tests, min_size=1, max_size=2)))
def test_filters_are_exact(lasting: list[Path], filters: Any) -> None:
    wanted = pq.read_table(lasting, filters=filters)["id"].to_pylist()
    assert ids(ParquetStream(lasting, ["id"], filters)) == wanted
    data = ParquetDataset(lasting, ["id"], filters)
    assert ids(data.__getitems__(list(range(len(data))))) == wanted
    assert sum(data.block_sizes) == len(data) == len(wanted)
    assert 0 not in data.block_sizes
    for index, number in enumerate(wanted):
        row = number if number < 10 else number - 10
        assert data.describe(index).endswith(f"{0 if number < 10 else 1}.parquet: row {row}")


def test_row_groups_that_are_ruled_out_are_not_read(elsewhere: Elsewhere, tmp_path: Path) -> None:
    big = pa.table({"id": range(1000), "noise": [np.random.default_rng(number).bytes(1000) for number in range(1000)]})
    pq.write_table(big, tmp_path / "a.parquet", row_group_size=10, write_statistics=["id"])
    stream = ParquetStream(tmp_path / "a.parquet", filters=[("id", ">=", 985)])
    assert ids(stream) == list(range(985, 1000))
    assert len(stream._groups.list) == 2
    assert sum(elsewhere.asked) < 200_000


# Memory and order ----------------------------------------------------------------------------------------------


def test_row_groups_are_kept_within_bounds(tmp_path: Path) -> None:
    files = write(tmp_path, (ROWS,))
    reads: list[int] = []

    def counted(data: ParquetDataset) -> ParquetDataset:
        reads.clear()
        read = data._groups.read
        data._groups.read = lambda group: (reads.append(group.first), read(group))[1]  # type: ignore[method-assign]
        return data

    none = counted(ParquetDataset(files, cache_bytes=0))
    for index in (0, 1, 5, 0):
        none[index]
    assert reads == [0, 4, 0]  # one is always kept
    none.__getitems__([0, 5, 1, 6, 2])
    assert reads[3:] == [4]  # a batch reads each group once
    size = none._kept[1].bytes
    some = counted(ParquetDataset(files, cache_bytes=2 * size + size // 2))
    for index in (0, 4, 0, 8, 0, 4):  # of three, the one that was used least recently is given up
        some[index]
    assert reads == [0, 4, 8, 4]
    assert sum(each.bytes for each in some._kept.values()) <= 2.5 * size


def test_a_fork_while_a_group_is_decoded(files: list[Path]) -> None:
    data = ParquetDataset(files)
    reader = multiprocessing.get_context("fork").Process(target=data.__getitem__, args=(3,), daemon=True)
    with data._lock:  # as a thread that decodes holds it
        reader.start()
    reader.join(300)
    ended = reader.exitcode
    reader.kill()
    assert ended == 0


def test_threads_decode_a_group_once(files: list[Path]) -> None:
    data = ParquetDataset(files)
    reads: list[int] = []
    read, first = data._groups.read, threading.Event()

    def slow(group: Any) -> Any:
        reads.append(group.first)
        first.wait(300)
        return read(group)

    data._groups.read = slow  # type: ignore[method-assign]
    threads = [threading.Thread(target=data.__getitem__, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    first.set()
    for thread in threads:
        thread.join()
    assert reads == [0]


@pytest.mark.parametrize("kind", [THREADS, FORK])
def test_by_blocks_with_workers_ranks_and_resume(files: list[Path], kind: dict[str, Any]) -> None:
    data = ParquetDataset(files)

    def loader(rank: int, **options: Any) -> DataLoader:
        blocks = BlockSampler(data.block_sizes, window=2)
        sampler = feedline.DistributedSampler(blocks, 2, rank, uneven="exact")
        return DataLoader(data, 3, sampler=sampler, collate_fn=as_list, seed=1, **options)

    seen = []
    for rank in range(2):
        with loader(rank, **kind) as workers, loader(rank) as alone:
            batches = iter(workers)
            first = list(islice(batches, 2))
            state = json.loads(json.dumps(workers.state_dict()))
            rest = list(batches)
            assert first + rest == list(alone)
            alone.load_state_dict(state)
            assert list(alone) == rest
            seen += ids(flat(first + rest))
    assert sorted(seen) == list(range(ROWS))


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    rows=st.integers(1, 5),
    workers=st.integers(1, 4),
    ranks=st.integers(1, 3),
)
def test_a_stream_with_any_counts(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], rows: int, workers: int, ranks: int
) -> None:
    folder = tmp_path_factory.mktemp("t")
    files = write(folder, tuple(sizes), rows)
    kind: dict[str, Any] = {"num_workers": workers, "workers": "thread"} if workers > 1 else {}
    seen = []
    for rank in range(ranks):
        stream = ParquetStream(files, ["id"], shuffle=True, num_replicas=ranks, rank=rank)
        with DataLoader(stream, 2, collate_fn=as_list, shuffle_buffer=3, **kind) as loader:
            seen += ids(flat(loader))
    assert sorted(seen) == list(range(sum(sizes)))
    shutil.rmtree(folder)


def test_groups_larger_than_what_is_decoded_at_a_time(tmp_path: Path) -> None:
    rows = pa.table({"id": range(10_000)})
    pq.write_table(rows, tmp_path / "a.parquet")
    with pa.ipc.new_file(tmp_path / "a.arrow", rows.schema) as writer:
        writer.write_table(rows)
    for path in (tmp_path / "a.parquet", tmp_path / "a.arrow"):
        assert ids(ParquetStream(path)) == list(range(10_000))
        assert ids(ParquetStream(path).shard(1, 3)) == list(range(1, 10_000, 3))


def test_files_are_opened_again_after_a_fork_and_few_at_a_time(tmp_path: Path) -> None:
    paths = write(tmp_path, (1,) * (parquet_groups.OPEN + 3))
    data = ParquetDataset(paths, ["id"])
    assert ids(data.__getitems__(list(range(len(paths))))) == list(range(len(paths)))
    assert len(data._groups._opened) == parquet_groups.OPEN
    before = data._groups.file(5)
    assert data._groups.file(5) is before
    data._groups._pid = -1  # as if this were another process
    assert data._groups.file(5) is not before


def test_resumed_to_the_row_reading_only_its_group(files: list[Path]) -> None:
    stream = ParquetStream(files, ["id"], filters=[("even", "=", True)])
    reading = iter(stream)
    assert ids(islice(reading, 5)) == [0, 2, 4, 6, 8]
    again = iter(ParquetStream(files, ["id"], filters=[("even", "=", True)]))
    opened: list[int] = []
    slices = again._stream._groups.slices
    again._stream._groups.slices = lambda group: (opened.append(group.number), slices(group))[1]
    again.load_state_dict(json.loads(json.dumps(reading.state_dict())))
    assert ids(islice(again, 2)) == [10, 12]
    assert opened == [2, 0]
    # Another filter, which finds something in the same row groups.
    with pytest.raises(StateError, match="other files"):
        iter(ParquetStream(files, ["id"], filters=[("id", "!=", 3)])).load_state_dict(reading.state_dict())


def test_rng_belongs_to_the_row(files: list[Path]) -> None:
    def drawn(row: dict[str, Any]) -> float:
        return float(feedline.rng().random())

    def draws(data: Any, size: int) -> list[float]:
        with DataLoader(data, size, collate_fn=list, seed=1) as loader:
            return [each for batch in loader for each in batch]

    class OneByOne(ParquetDataset):
        def __getitem__(self, index: int) -> Any:
            return super().__getitem__(index)

    alone = draws(OneByOne(files, ["id"], transform=drawn), 3)
    assert draws(ParquetDataset(files, ["id"], transform=drawn), 7) == alone
    assert len(set(alone)) == ROWS


# What is wrong -------------------------------------------------------------------------------------------------

BOTH = pytest.mark.parametrize("source", [ParquetDataset, ParquetStream])


@BOTH
def test_wrong_input(tmp_path: Path, files: list[Path], source: Any) -> None:
    with pytest.raises(SourceError, match=r"none\.parquet: there is no such file"):
        source(tmp_path / "none.parquet")
    with pytest.raises(
        OptionError, match=r"columns: there is no column 'colour' in .*0\.parquet; it has id, half, even"
    ):
        source(files, ["id", "colour"])
    with pytest.raises(OptionError, match="filters: there is no column 'colour'"):
        source(files, ["id"], [("colour", "=", 3)])
    with pytest.raises(OptionError, match=r"filters do not fit the columns \(id is int32\)"):
        source(files, ["id"], [("id", "<", "three")])
    with pytest.raises(OptionError, match="operator must be one of"):
        source(files, ["id"], [("id", "like", 3)])
    for wrong in ("id = 3", [], [3], [("id", "=")], {"id": 3}):
        with pytest.raises(TypeError, match="filters"):
            source(files, ["id"], wrong)
    with pytest.raises(TypeError, match=r"\['id'\]"):
        source(files, "id")
    with pytest.raises(OptionError, match="columns is empty"):
        source(files, [])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "neither a Parquet nor an Arrow file: it is empty"),
        (b"hello world", "neither a Parquet nor an Arrow file: it begins with b'hello '"),
        (b"PAR1" + bytes(100), "cannot be opened as a Parquet file; it is damaged or not complete"),
        (b"PAR1", "cannot be opened as a Parquet file"),
        (b"ARROW1" + bytes(100), "cannot be opened as an Arrow file"),
    ],
)
def test_files_that_are_none(tmp_path: Path, files: list[Path], content: bytes, message: str) -> None:
    (tmp_path / "bad.parquet").write_bytes(content)
    for source in (ParquetDataset, ParquetStream):
        with pytest.raises(SourceError, match=rf"bad\.parquet.*{message}"):
            source([*files, tmp_path / "bad.parquet"])


def test_a_file_that_is_cut_off(tmp_path: Path, files: list[Path]) -> None:
    files[0].write_bytes(files[0].read_bytes()[:-50])
    with pytest.raises(SourceError, match=r"0\.parquet: cannot be opened"):
        ParquetDataset(files)


def test_a_damaged_row_group_is_named_and_the_next_one_follows(tmp_path: Path) -> None:
    [path] = write(tmp_path, (ROWS,))
    about = pq.ParquetFile(path).metadata.row_group(2).column(0)
    data = bytearray(path.read_bytes())
    start = about.dictionary_page_offset or about.data_page_offset
    data[start : start + about.total_compressed_size] = b"\xff" * about.total_compressed_size
    path.write_bytes(data)
    rows = ParquetDataset(path)
    assert plain(rows[3]) == plain(sample(3))
    with pytest.raises(SourceError, match=r"0\.parquet: row group 2 cannot be read"):
        rows[9]
    with pytest.raises(SourceError, match=r"0\.parquet: row group 2 cannot be read"):
        list(ParquetStream(path))
    with DataLoader(ParquetStream(path), 4, collate_fn=as_list, on_error="skip") as loader:
        assert ids(flat(loader)) == [*range(8), *range(12, ROWS)]
        assert len(loader.errors()) == 1
    reading = iter(ParquetStream(path))
    list(islice(reading, 8))
    with pytest.raises(SourceError):
        next(reading)
    again = iter(ParquetStream(path))
    again.load_state_dict(reading.state_dict())  # saved after the error: it is not met again
    assert ids(again) == list(range(12, ROWS))
    with DataLoader(rows, 4, collate_fn=as_list, on_error="skip") as loader:
        assert ids(flat(loader)) == [*range(8), *range(12, ROWS)]
        assert [bad.index for bad in loader.errors()] == [8, 9, 10, 11]


def test_files_that_differ(tmp_path: Path, files: list[Path]) -> None:
    other = table().set_column(0, "id", pa.array(range(ROWS), pa.int64())).drop_columns(["text"])
    pq.write_table(other, tmp_path / "2.parquet")
    with pytest.raises(
        SourceError, match=r"'id' differs .*0\.parquet has it as int32, and .*2\.parquet has it as int64"
    ):
        ParquetDataset([*files, tmp_path / "2.parquet"])
    with pytest.raises(
        SourceError, match=r"'text' differs .* has it as string, and .*2\.parquet has id, half, .* only"
    ):
        ParquetDataset([*files, tmp_path / "2.parquet"], ["text"])
    assert len(ParquetDataset([*files, tmp_path / "2.parquet"], ["half"])) == 2 * ROWS  # those that are read are alike
    backwards = table().select(list(reversed(table().column_names)))
    pq.write_table(backwards, tmp_path / "3.parquet")
    data = ParquetDataset([*files, tmp_path / "3.parquet"])
    assert plain(data[ROWS + 5]) == plain(sample(5))  # columns go by their names


def test_a_transform_that_fails_names_the_row(files: list[Path]) -> None:
    def picky(row: dict[str, Any]) -> Any:
        return 1 // int(row["id"] - 12)

    with pytest.raises(SourceError, match=r"1\.parquet: rows 0 to 3, in row 2: transform failed: ZeroDivision"):
        list(ParquetStream(files, ["id"], transform=picky))
    with DataLoader(ParquetStream(files, ["id"], transform=picky), 30, collate_fn=list, on_error="skip") as loader:
        assert len(flat(loader)) == ROWS - 1
    with DataLoader(ParquetDataset(files, ["id"], transform=picky), 30, collate_fn=list, on_error="skip") as loader:
        assert len(flat(loader)) == ROWS - 1
        assert loader.errors()[0].what.endswith("1.parquet: row 2")


def test_no_rows_at_all(tmp_path: Path) -> None:
    pq.write_table(table(0, 0), tmp_path / "a.parquet")
    assert len(ParquetDataset(tmp_path / "a.parquet")) == 0
    with pq.ParquetWriter(tmp_path / "b.parquet", table().schema) as writer:
        for rows in (table().slice(0, 3), table().slice(0, 0), table().slice(3, 2)):
            writer.write_table(rows)
    assert ParquetDataset(tmp_path / "b.parquet").block_sizes == [3, 2]  # an empty row group is none
    assert list(ParquetStream(tmp_path / "a.parquet")) == []
    [path] = write(tmp_path, (ROWS,))
    assert len(ParquetDataset(path, filters=[("id", ">", 99)])) == 0


# Hugging Face --------------------------------------------------------------------------------------------------


class Rows:
    """Stands for a `datasets.Dataset` (its package is too large to install here for one test): an Arrow table with
    `__len__`, `__getitem__` and `__getitems__`, which gives a list of dicts."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self.asked: list[list[int]] = []

    def __len__(self) -> int:
        return int(self._rows.num_rows)

    def __getitem__(self, index: Any) -> dict[str, Any]:
        raise AssertionError("a batch is asked for at once")

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        self.asked.append(indices)
        return self._rows.take(indices).to_pylist()


def test_hugging_faces_datasets_pass_straight_through() -> None:
    rows = Rows(table().select(["id", "text"]))
    with DataLoader(rows, 8, shuffle=True, seed=1) as loader:
        got = [(number, text) for batch in loader for number, text in zip(batch["id"], batch["text"], strict=True)]
    assert sorted(got) == [(number, f"text {number}") for number in range(ROWS)]
    assert [len(each) for each in rows.asked] == [8, 8, 7]


def with_a_bad_text(path: Path) -> Path:
    """Six rows, of which the third has a text that is no UTF-8."""
    good = pa.array(["aa", "bb", "cc", "dd", "ee", "ff"])
    texts = pa.Array.from_buffers(pa.string(), 6, [*good.buffers()[:2], pa.py_buffer(b"aabb\xff\xffddeeff")])
    pq.write_table(pa.table({"text": texts, "id": range(6)}), path)
    return path


@pytest.mark.parametrize("source", [ParquetDataset, ParquetStream])
def test_a_value_that_cannot_be_read_is_one_row(tmp_path: Path, source: Any) -> None:
    path = with_a_bad_text(tmp_path / "bad.parquet")
    with DataLoader(source(path), batch_size=2, on_error="skip") as loader:
        assert [number for batch in loader for number in batch["id"].tolist()] == [0, 1, 3, 4, 5]
        [error] = loader.errors()
    assert "'text'" in error.error
    if source is ParquetStream:
        assert f"{path}: rows 0 to 5, in row 2" in error.error
        reader = iter(source(path))
        assert [next(reader)["id"] for _ in range(2)] == [0, 1]
        with pytest.raises(SourceError):
            next(reader)
        again = iter(source(path))
        again.load_state_dict(reader.state_dict())
        assert [sample["id"] for sample in again] == [3, 4, 5]
    else:
        with pytest.raises(SourceError, match=r"bad\.parquet: row 2: a value of the column 'text'"):
            source(path)[2]


@pytest.mark.parametrize("source", [ParquetDataset, ParquetStream])
@pytest.mark.parametrize(
    "other",
    [{"id": range(100, 106)}, {"id": range(100, 116)}, {"id": ["text"] * 12}, {"another": range(12)}],
    ids=["fewer rows", "more rows", "another type", "another column"],
)
def test_a_file_replaced_by_another_is_never_read_for_it(tmp_path: Path, source: Any, other: Any) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(12)}), path, row_group_size=4)
    kept = pickle.dumps(source(path))
    pq.write_table(pa.table(other), path, row_group_size=4)
    data = pickle.loads(kept)
    with pytest.raises(SourceError, match=r"a\.parquet: the file has changed"):
        _ = data[0] if source is ParquetDataset else next(iter(data))


def test_what_a_dictionary_unfolds_to_counts(tmp_path: Path) -> None:
    words = pa.array(["x" * 1000] * 3000).dictionary_encode()
    pq.write_table(pa.table({"word": words}), tmp_path / "a.parquet", row_group_size=1000)
    data = ParquetDataset(tmp_path / "a.parquet", cache_bytes=1_500_000)
    for index in (0, 1000, 2000):
        assert data[index]["word"] == "x" * 1000
    assert len(data._kept) == 1


def test_columns_whose_names_are_alike(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [{"b": 1}], "a.b": [2]}), path)
    for source in (ParquetDataset, ParquetStream):
        [sample] = DataLoader(source(path, columns=["a.b"]), batch_size=None)
        assert list(sample) == ["a.b"]
    pq.write_table(pa.Table.from_arrays([pa.array([1]), pa.array([2]), pa.array([3])], ["a", "a", "b"]), path)
    for columns in (None, ["b", "a"]):
        with pytest.raises(OptionError, match=r"several columns with the name 'a'"):
            ParquetDataset(path, columns=columns)
    assert ParquetDataset(path, columns=["b"])[0] == {"b": 3}
