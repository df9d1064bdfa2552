"""Datasets written ahead: nothing is made twice, and what comes back is what went in, or was refused by name."""

from __future__ import annotations

import re
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import MapContract, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import few

from feedline import OptionError, OptionTypeError, cached, materialize
from feedline.sources import ParquetDataset, ParquetStream, TarDataset


def rows(number: int) -> dict[str, Any]:
    return {"x": np.arange(4, dtype=np.float32) + number, "label": number, "name": f"n{number}"}


class Rows:
    """Samples that are made anew each time; a file says which."""

    fail_at = -1

    def __init__(self, read: Path, count: int) -> None:
        self.read, self.count = str(read), count

    def __len__(self) -> int:
        return self.count

    def reads(self) -> int:
        return len(Path(self.read).read_text().split())

    def __getitem__(self, index: int) -> Any:
        with open(self.read, "a") as file:
            file.write(f"{index}\n")
        if index == Rows.fail_at:
            raise KeyboardInterrupt
        return rows(index)


@pytest.fixture
def fails_at() -> Iterator[Any]:
    yield lambda number: setattr(Rows, "fail_at", number)
    Rows.fail_at = -1


@pytest.mark.parametrize("format", ["cache", "tar", "parquet"])
@pytest.mark.parametrize("threads", [1, 3])
def test_what_was_written_ahead_is_not_read_again(tmp_path: Path, fails_at: Any, format: str, threads: int) -> None:
    data, out = Rows(tmp_path / "read", 200), tmp_path / "out"
    options: dict[str, Any] = {"format": format, "per_shard": 64, "num_threads": threads, "progress": False}
    fails_at(150)
    with pytest.raises(KeyboardInterrupt):
        materialize(data, out, key="rows", **options)
    fails_at(-1)
    done = materialize(data, out, key="rows", **options)
    assert done.samples == 200
    assert done.found == 128
    assert done.bytes > 200 * 16
    assert re.search(r"; read in \S+ s instead of \S+ s each epoch \(one thread\)$", str(done))
    again = materialize(data, out, key="rows", **options)
    assert (again.found, str(again).split(";")[0]) == (200, "0 samples written, 200 were there")
    if format == "cache":
        before = data.reads()
        assert plain(list(cached(data, out, key="rows"))) == plain([rows(number) for number in range(200)])
        assert data.reads() == before
    elif format == "parquet":
        read = ParquetDataset(f"{out}/*.parquet")
        assert plain([read[number] for number in range(200)]) == plain([rows(number) for number in range(200)])
    else:
        shards = TarDataset(f"{out}/*.tar")
        got = [(each["x.npy"], each["label.cls"], each["name.txt"]) for each in map(shards.__getitem__, range(200))]
        assert plain(got) == plain([tuple(rows(number).values()) for number in range(200)])
    assert not [*out.glob("*.new")]


SHARDS: dict[str, Any] = {"per_shard": 4, "progress": False}


class TestWrittenAsTar(MapContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Any:
        materialize([rows(number) for number in range(10)], tmp_path, format="tar", **SHARDS)
        return TarDataset(f"{tmp_path}/*.tar")

    @pytest.fixture
    def expected(self, tmp_path: Path) -> list[Any]:
        named = [(number, rows(number)) for number in range(10)]
        own = [{"__key__": f"{number:09}", "__url__": f"{tmp_path}/{number // 4:06}.tar"} for number in range(10)]
        return [{**own[n], "label.cls": row["label"], "name.txt": row["name"], "x.npy": row["x"]} for n, row in named]


class TestWrittenAsParquet(MapContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> Any:
        materialize([rows(number) for number in range(10)], tmp_path, format="parquet", **SHARDS)
        return ParquetDataset(f"{tmp_path}/*.parquet")

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [rows(number) for number in range(10)]


def test_a_folder_that_looks_like_a_pattern_is_written(tmp_path: Path) -> None:
    for format in ("tar", "parquet"):
        done = materialize([{"x": 1}], tmp_path / "a{b,c}" / format, format=format, progress=False)
        assert (done.samples, done.after) == (1, 0)


def test_an_empty_name_is_not_the_current_folder() -> None:
    with pytest.raises(OptionError, match=r'out is an empty text; write "." for the current folder'):
        materialize([1], "", progress=False)


def test_shards_of_something_else_are_refused(tmp_path: Path) -> None:
    materialize([{"a": 1}], tmp_path, format="tar", progress=False)
    with pytest.raises(OptionError, match="has samples of something else: identity differ"):
        materialize([{"a": 2}], tmp_path, format="tar", progress=False)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.tar").write_bytes(b"")
    with pytest.raises(OptionError, match=r"files that materialize did not write"):
        materialize([{"a": 2}], tmp_path / "other", format="tar", progress=False)


@pytest.mark.parametrize(
    ("samples", "format", "match"),
    [
        ([np.ones((2, 2))], "tar", "sample 0 is a ndarray; shards need dicts or tuples"),
        ([{"x": 1}, {2: 1}], "tar", "sample 1 has the field 2; shards need fields with texts as names"),
        ([{"x": None}], "tar", "sample 0 cannot be written: 'x' is a NoneType; .* use format='cache'"),
        ([{"x": [1, 2]}], "tar", "sample 0 cannot be written: 'x' is a list"),
        ([{"x": np.ma.masked_array([1, 2], [0, 1])}], "tar", "sample 0 cannot be written: 'x' is a MaskedArray"),
        ([{"x": bytearray(b"ab")}], "tar", "sample 0 cannot be written: 'x' is a bytearray"),
        ([{"x": np.array([1, "a"], object)}], "tar", "sample 0 cannot be written: 'x' is an array of object"),
        ([{"x.txt": b"ab"}], "tar", "sample 0 cannot be written: 'x.txt' has bytes, which would be read as something"),
        ([{"x": np.ones(2), "__url__": b"ab"}], "tar", "sample 0 cannot be written: '__url__' is a name of its own"),
        ([{"x": 1}, {"y": 1}], "parquet", "sample 1 has other fields"),
        ([{"x": 1}, {"x": 0.5}], "parquet", r"sample 1 has double in 'x', and the first sample has int64"),
        ([{"x": 1}, {"x": None}, {"x": 0.5}], "parquet", r"sample 2 has double in 'x', and the first sample has int64"),
        ([{"x": None}], "parquet", "sample 0 has None in 'x', and the first sample decides"),
        ([{"x": np.ones((2, 2))}, {"x": np.ones((2, 3))}], "parquet", r"sample 1 has .*shape=\[2,3\]"),
        ([{"x": [1, 2]}], "parquet", "sample 0 has a value of type list in 'x'.* use format='cache'"),
    ],
)
def test_samples_that_are_no_rows_are_named(tmp_path: Path, samples: Any, format: str, match: str) -> None:
    with pytest.raises(OptionTypeError, match=match):
        materialize(samples, tmp_path, format=format, progress=False)


def test_two_that_write_the_same_shard_have_files_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the first to finish gives its name to what the other is still writing."""
    parquet = pytest.importorskip("pyarrow.parquet")
    write, given = parquet.write_table, []

    def with_another(table: Any, where: Any, *rest: Any) -> None:
        given.append(where)
        write(table, where, *rest)
        if len(given) == 1:
            materialize([{"x": 1}] * 3, tmp_path, format="parquet", key="same", progress=False)

    monkeypatch.setattr(parquet, "write_table", with_another)
    materialize([{"x": 1}] * 3, tmp_path, format="parquet", key="same", progress=False)
    assert len(given) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000.parquet", "materialized.json"]
    assert len(ParquetDataset(f"{tmp_path}/*.parquet")) == 3


@pytest.mark.parametrize("dtype", ["bfloat16", "int4"])
def test_tar_refuses_numbers_that_would_come_back_as_bytes(tmp_path: Path, dtype: str) -> None:
    array = np.arange(3).astype(getattr(pytest.importorskip("ml_dtypes"), dtype))
    for value in (array, array[0]):
        with pytest.raises(OptionTypeError, match=f"sample 0 cannot be written: 'x' is an array of {dtype}"):
            materialize([{"x": value}], tmp_path, format="tar", key="", progress=False)


# --- what comes back ---

NUMBERS = hnp.boolean_dtypes() | hnp.integer_dtypes(endianness="=") | hnp.unsigned_integer_dtypes(endianness="=")
NUMBERS |= hnp.floating_dtypes(endianness="=", sizes=(16, 32, 64))
SHAPES = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
ODD = st.sampled_from([1 << 63, 1j, [1, 2], {"a": 1}, "\ud800", np.ones(2, ">f4"), np.array(["a"]), object()])
COLUMNS = st.one_of(
    st.just(st.integers(-(1 << 63), (1 << 63) - 1)),
    st.just(st.floats()),
    st.just(st.booleans()),
    st.just(st.text()),
    st.just(st.binary()),
    NUMBERS.map(lambda dtype: hnp.arrays(dtype, ()).map(lambda array: array[()])),
    NUMBERS.map(lambda dtype: hnp.arrays(dtype, st.integers(0, 3))),
    st.tuples(NUMBERS, SHAPES).map(lambda pair: hnp.arrays(*pair)),
)
"""Strategies for the values of one field."""
NAMES = st.text(max_size=4).filter(lambda name: name.isprintable()) | st.sampled_from(["a.b", "list.element", "x"])


@st.composite
def tables(draw: Any) -> list[dict[str, Any]]:
    """Rows that have fields of one type; sometimes None, and rarely a value of another kind."""
    fields = draw(st.dictionaries(NAMES, COLUMNS, min_size=1, max_size=4))
    first = {name: draw(values) for name, values in fields.items()}
    rows = [first]
    for _ in range(draw(st.integers(0, 4))):
        rows.append({name: draw(values | st.none()) for name, values in fields.items()})
    if not draw(st.integers(0, 3)):
        draw(st.sampled_from(rows))[draw(st.sampled_from(list(fields)))] = draw(
            COLUMNS.flatmap(lambda each: each) | ODD
        )
    return rows


def exact(value: Any) -> Any:
    """What must come back: numbers of Python as NumPy's of 64 bits."""
    if isinstance(value, bool | int | float | np.ndarray | np.generic):
        array = np.asarray(value)
        return array.dtype.str, array.shape, array.tobytes()
    return type(value), value


@settings(max_examples=few(300), deadline=None)
@given(rows=tables())
def test_what_parquet_takes_comes_back_and_the_rest_is_refused_by_name(rows: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as out:
        said = ""
        try:
            materialize(rows, out, format="parquet", per_shard=2, key="rows", progress=False)
        except OptionTypeError as error:
            said = str(error)
            rows = rows[: 2 * len([*Path(out).glob("*.parquet")])]
        assert not said or re.match(r"sample \d+ has .* in ['\"]", said, re.DOTALL)
        if not rows:
            return
        expected = [{name: exact(value) for name, value in row.items()} for row in rows]
        data = ParquetDataset(f"{out}/*.parquet")
        for got in ([data[number] for number in range(len(data))], data.__getitems__([*range(len(data))])):
            assert [{name: exact(row[name]) for name in row} for row in got] == expected
        streamed = list(ParquetStream(f"{out}/*.parquet"))
        assert [{name: exact(row[name]) for name in row} for row in streamed] == expected
        batch = data.__getbatch__(np.arange(len(data)), np.empty)
        if batch is not NotImplemented:
            assert all(exact(batch[name][at]) == row[name] for at, row in enumerate(expected) for name in row)


@contextmanager
def short_files(most: int) -> Iterator[None]:
    """Files may have this many bytes, as if the disk were full then. No longer than needed: what pytest prints may go
    into a file, too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("most", [30_000, 82_500])
@pytest.mark.parametrize("format", ["cache", "tar", "parquet"])
def test_a_full_disk_leaves_nothing_that_stays(tmp_path: Path, format: str, most: int) -> None:
    """Full in the middle of a shard, or at its very end, which is still in a buffer when all samples were written."""
    data = [{"x": np.full(3_000, number, np.uint8)} for number in range(40)]
    options: dict[str, Any] = {"format": format, "per_shard": 20, "progress": False}
    with suppress(OSError), short_files(most):
        materialize(data, tmp_path, **options)
    assert not [*tmp_path.glob(".*")]
    assert materialize(data, tmp_path, **options).samples == 40
    assert not [*tmp_path.glob(".*")]


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    for format in ("cache", "tar", "parquet"):
        with pytest.raises(OSError, match="File too large"), short_files(0):
            materialize([{"x": 1}], tmp_path / format, format=format, progress=False)
        assert not [*(tmp_path / format).glob(".*")]
