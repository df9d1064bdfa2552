"""SQLDataset: one query, rows as columns; what is bound, shared, and told (SQLite, DuckDB, any DB-API)."""

from __future__ import annotations

import gc
import json
import os
import pickle
import sqlite3
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kinds import FORK, SPAWN, few
from sources.contract import MapContract
from warm_host import host

import feedline
from feedline import DataLoader, OptionError, SourceError, StateError
from feedline.errors.masking import address
from feedline.sources import SQLDataset, SQLStream
from feedline.sources.sql.database import Database
from feedline.sources.sql.parameters import Bound
from feedline.sources.sql.sql_columns import SQLColumns
from feedline.supervise.worker_memory import private_own

ROWS = [(i, f"images/{i:03d}.jpg", i % 3, ("train", "val")[i % 5 == 4], None if i % 4 else i / 2) for i in range(1, 13)]
NAMES = ("id", "path", "label", "split", "weight")
DICTS = [dict(zip(NAMES, row, strict=True)) for row in ROWS]
ALL = "SELECT * FROM samples ORDER BY id"

pytestmark = pytest.mark.usefixtures("adbc_is_there")


def make(path: Path, *statements: str) -> str:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, path TEXT, label INTEGER, split TEXT, weight REAL)")
        db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", ROWS)
        for statement in statements:
            db.execute(statement)
    db.close()
    return f"sqlite:///{path}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return make(tmp_path / "meta.db")


@pytest.fixture
def duck(tmp_path: Path) -> str:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "meta.duckdb")) as db:
        db.execute("CREATE TABLE samples (id INTEGER, path TEXT, label INTEGER, split TEXT, weight DOUBLE)")
        db.executemany("INSERT INTO samples VALUES (?, ?, ?, ?, ?)", ROWS)
    return f"duckdb:///{tmp_path / 'meta.duckdb'}"


class Factory:
    """A DB-API connection that pickles as what makes it."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __call__(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path, check_same_thread=False)


class TestRows(MapContract):
    @pytest.fixture
    def source(self, url: str) -> Any:
        return SQLDataset(url, ALL)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return DICTS


def loaded(row: dict[str, Any]) -> tuple[str, int]:
    return row["path"].upper(), row["label"]


def changed(sample: tuple[str, int]) -> tuple[str, float]:
    return sample[0], sample[1] + feedline.rng().random()


class TestLoadedFromAnyConnection(MapContract):
    @pytest.fixture
    def source(self, url: str) -> Any:
        return SQLDataset(Factory(url.removeprefix("sqlite:///")), ALL, load=loaded)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [loaded(row) for row in DICTS]


def test_duckdb(duck: str) -> None:
    assert list(SQLDataset(duck, ALL)) == DICTS
    assert [
        row["id"] for row in SQLDataset(duck, "SELECT id FROM samples WHERE id < $most ORDER BY id", {"most": 3})
    ] == [1, 2]
    assert not len(pickle.loads(pickle.dumps(SQLDataset(duck, "SELECT id FROM samples WHERE id < ?", (3,))))) - 2
    for query, params, error, words in (
        ("SELECT * FROM nowhere", (), SourceError, "no table nowhere"),
        ("SELECT * FROM params", (), SourceError, "no table params"),  # which is also a variable of ours
        ("SELECT absent FROM samples", (), SourceError, "no column absent"),
        ("SELEC", (), SourceError, "syntax error"),
        ("SELECT * FROM samples WHERE id < ?", (), OptionError, "params do not fit"),
    ):
        with pytest.raises(error, match=words):
            SQLDataset(duck, query, params)


# What is asked


def test_params_are_bound_in_every_style(url: str) -> None:
    hostile = "x' OR '1'='1"
    for query, params in (
        ("SELECT id FROM samples WHERE split = ? AND id < ?", ("train", 4)),
        ("SELECT id FROM samples WHERE split = ?2 AND id < ?1", [4, "train"]),
        ("SELECT id FROM samples WHERE split = :split AND id < :most", {"most": 4, "split": "train", "unused": 0}),
        ("SELECT id FROM samples WHERE split = @split AND id < $most", {"most": 4, "split": "train"}),
    ):
        assert [row["id"] for row in SQLDataset(url, query, params)] == [1, 2, 3], query
    with pytest.warns(UserWarning, match="gave no rows"):
        assert not len(SQLDataset(url, "SELECT id FROM samples WHERE split = ?", (hostile,)))


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ((), "params do not fit the query's placeholders"),
        (("train",), "params do not fit the query's placeholders"),
        (("train", 4, 5), "params do not fit the query's placeholders"),
        ("train", "params must be a tuple .* got a str"),
        (7, "params must be a tuple .* got a int"),
        ((Path("x"), 4), "params do not fit .*PosixPath"),
    ],
)
def test_params_that_do_not_fit(url: str, params: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        SQLDataset(url, "SELECT id FROM samples WHERE split = ? AND id < ?", params)


def test_a_missing_name_is_named(url: str) -> None:
    with pytest.raises(OptionError, match="no value for :most of the query; they have split"):
        SQLDataset(url, "SELECT id FROM samples WHERE split = :split AND id < :most", {"split": "train"})


@given(
    st.lists(st.integers(), max_size=4), st.sampled_from(["qmark", "dollar", "numeric", "named", "format", "pyformat"])
)
def test_placeholders_of_ours_come_after_the_users(given_params: list[int], style: str) -> None:
    bound = Bound(style, tuple(given_params))
    words = [bound.add(f"value {number}") for number in range(2)]
    if isinstance(bound.params, dict):
        assert [bound.params[word[1:]] for word in words] == ["value 0", "value 1"]
    else:
        assert bound.params == (*given_params, "value 0", "value 1")
        first = len(given_params) + 1
        signs = {
            "dollar": [f"${first}", f"${first + 1}"],
            "numeric": [f":{first}", f":{first + 1}"],
            "qmark": ["?", "?"],
        }
        assert words == signs.get(style, ["%s", "%s"])


# What is kept

VALUES = {
    "whole": st.integers(-(2**63), 2**63 - 1) | st.integers(-200, 200),
    "text": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
    | st.sampled_from(["train", "val"]),
    "fraction": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=5),
    "yes": st.booleans(),
}


@settings(max_examples=few(60))
@given(st.data(), st.sampled_from(sorted(VALUES)))
def test_columns_give_back_what_went_in(data: Any, kind: str) -> None:
    batches = data.draw(st.lists(st.lists(st.none() | VALUES[kind], max_size=30), min_size=1, max_size=5))
    everything = [value for batch in batches for value in batch]
    kinds = {
        "whole": pa.int64(),
        "text": pa.string(),
        "fraction": pa.float64(),
        "bytes": pa.binary(),
        "yes": pa.bool_(),
    }
    made = SQLColumns.of([pa.RecordBatch.from_arrays([pa.array(batch, kinds[kind])], ["a"]) for batch in batches])
    assert [row["a"] for row in map(made.row, range(len(made)))] == everything
    assert [row["a"] for row in made.rows(range(len(made)))] == everything
    again = SQLColumns.of([pa.RecordBatch.from_arrays([pa.array(everything, kinds[kind])], ["a"])])
    if kind != "text":  # whether texts repeat is judged by the batch
        assert again.fingerprint() == made.fingerprint()
    if everything:
        place = data.draw(st.integers(0, len(everything) - 1))
        everything[place] = data.draw((st.none() | VALUES[kind]).filter(lambda value: value != everything[place]))
        other = SQLColumns.of([pa.RecordBatch.from_arrays([pa.array(everything, kinds[kind])], ["a"])])
        assert other.fingerprint() != again.fingerprint()
    travelled = pickle.loads(pickle.dumps(made, protocol=5))
    assert travelled.rows(range(len(made))) == made.rows(range(len(made)))
    assert travelled.fingerprint() == made.fingerprint()


@pytest.mark.parametrize("pair", [(1, 2), ("a", "b"), ("a", "a"), (True, False)])
def test_where_a_null_is_counts_in_the_fingerprint(pair: tuple[Any, Any]) -> None:
    places = [[None, *pair], [pair[0], None, pair[1]], [*pair, None]]
    assert len({SQLColumns.of([pa.RecordBatch.from_pydict({"a": each})]).fingerprint() for each in places}) == 3


def test_columns_are_small(tmp_path: Path) -> None:
    query = """WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 199999)
        SELECT i AS id, printf('images/%08d.jpg', i) AS path, i % 1000 AS label,
               CASE i % 10 WHEN 0 THEN 'test' ELSE 'train' END AS split FROM n"""
    data = SQLDataset(make(tmp_path / "empty.db"), query)
    assert [str(column.type).partition("<")[0] for column in data.table.columns] == [
        "int32",
        "string",
        "int16",
        "dictionary",
    ]
    assert data.table.schema.field("split").type.index_type == pa.int8()
    assert data.nbytes < 200_000 * (4 + 19 + 4 + 2 + 1) + 1000
    assert data[199_999] == {"id": 199_999, "path": "images/00199999.jpg", "label": 999, "split": "train"}
    assert data.__getitems__([100_000, 65_536, 65_535])[0] == {
        "id": 100_000, "path": "images/00100000.jpg", "label": 0, "split": "test"
    }  # fmt: skip


def late(values: str) -> str:
    """A column that begins with more rows of one kind than the driver looks at."""
    return f"""WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 70000)
        SELECT CASE WHEN i < 69000 THEN {values} END AS a FROM n"""


def test_types_that_widen_late(url: str) -> None:
    data = SQLDataset(url, late("NULL ELSE 'x' || i"))
    assert (data[68_999], data[69_000], len(data)) == ({"a": None}, {"a": "x69000"}, 70_001)
    data = SQLDataset(url, late("i ELSE i + 0.5"))
    assert (data[7], data[69_000]) == ({"a": 7.0}, {"a": 69000.5})


NUMBERS = st.one_of(st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(st.one_of(st.none(), NUMBERS, st.sampled_from(["", "a", "1.234568e-01", b"", b"\0"])), max_size=5))
@example([0.1234567890123456, "abc"])
@example([0.1234567890123456, b"abc"])
@example([0.5, 2**53 + 1])
@example([1e-300, -1e300, "e+"])
@example([2.0**60, 0.5])
def test_no_digit_is_lost_in_a_column_that_mixes(values: list[Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        with sqlite3.connect(f"{folder}/a.db") as db:
            db.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, x)")
            db.executemany("INSERT INTO t (x) VALUES (?)", [(value,) for value in values])
        db.close()
        url, query = f"sqlite:///{folder}/a.db", f"SELECT x FROM t UNION ALL SELECT NULL WHERE {not values}"
        kinds = {type(value) for value in values} - {type(None)}
        if kinds == {int, float} and any(isinstance(value, int) and abs(value) > 2**53 for value in values):
            with pytest.raises(SourceError, match=r"a column of one type .*outside of the range exactly representable"):
                SQLDataset(url, query)
            return
        data = SQLDataset(url, query)
    for value, row in zip(values, data, strict=False):
        found = row["x"]
        if isinstance(value, int | float) and not isinstance(found, int | float):
            assert type(value)(found) == value
        else:
            assert (found.decode() if isinstance(value, str) and isinstance(found, bytes) else found) == value


def test_digits_of_a_column_that_mixes_late(url: str) -> None:
    data = SQLDataset(url, late("'x' ELSE ?"), (0.1234567890123456,))
    assert float(data[70_000]["a"]) == 0.1234567890123456
    with pytest.raises(SourceError, match="a column of one type"):
        SQLDataset(url, late("0.5 ELSE 9007199254740993"))


@pytest.mark.parametrize("where", ["sqlite", "factory"])
def test_a_column_of_several_types_is_named(url: str, where: str) -> None:
    source: Any = url if where == "sqlite" else Factory(url.removeprefix("sqlite:///"))
    with pytest.raises(SourceError, match=r"column a holds .* a column of one type .*CAST\(a AS TEXT\) AS a"):
        SQLDataset(source, late("i ELSE 'x'"))


def test_a_text_that_is_none_is_named(url: str) -> None:
    with pytest.raises(SourceError, match=r"column a holds a text that is not UTF-8 .*CAST\(a AS BLOB\) AS a"):
        SQLDataset(url, "SELECT CAST(x'ff41' AS TEXT) AS a")


def test_nothing_stays_open_and_the_row_is_named_in_errors(url: str) -> None:
    data = SQLDataset(url, ALL, load=lambda row: int(row["path"]))
    gc.collect()
    assert not [fd for fd in os.listdir("/proc/self/fd") if "meta.db" in os.path.realpath(f"/proc/self/fd/{fd}")]
    with pytest.raises(ValueError, match="images/003") as caught:
        data[2]
    assert "feedline: at row 2: id = 3, path = 'images/003.jpg', label = 0" in caught.value.__notes__[0]
    with DataLoader(data, 4, on_error="skip") as loader:
        assert sum(len(batch) for batch in loader) == 0
    assert "path = 'images/001.jpg'" in loader.errors()[0].what


def test_transform_has_its_samples_own_rng(url: str) -> None:
    data = SQLDataset(url, ALL, load=loaded, transform=changed)
    with DataLoader(data, 5, seed=1, collate_fn=list) as one, DataLoader(data, 3, seed=1, collate_fn=list) as other:
        assert [x for batch in one for x in batch] == [x for batch in other for x in batch]


# What workers share


def weighed(row: dict[str, Any]) -> int:
    return private_own(os.getpid()) if row["i"] % 500 == 499 else len(row["path"]) * 0


@pytest.mark.parametrize("kind", [FORK, SPAWN], ids=["fork", "spawn"])
def test_workers_share_the_rows(url: str, kind: dict[str, Any]) -> None:
    def most(length: int) -> tuple[int, int]:
        query = """WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 3999)
            SELECT i, printf('%*d', ?, i) AS path FROM n"""
        data = SQLDataset(url, query, (length,), load=weighed)
        with DataLoader(data, 100, **kind) as loader:
            return data.nbytes, max(int(batch.max()) for batch in loader)

    (little, without), (much, within) = most(8), most(10_000)
    assert much - little > 37e6
    assert without > 0
    assert within - without < (much - little) / 3


# What changes


def test_refresh_and_resume_notice_new_rows(tmp_path: Path) -> None:
    url = make(tmp_path / "meta.db")
    data = SQLDataset(url, ALL)
    state = json.loads(json.dumps(DataLoader(data, 2).state_dict()))
    assert state["fingerprint"].startswith("12 rows, ")
    assert not data.refresh()
    DataLoader(SQLDataset(url, ALL), 2).load_state_dict(state)
    with sqlite3.connect(tmp_path / "meta.db") as db:
        db.execute("UPDATE samples SET label = 9 WHERE id = 7")
    db.close()
    assert data[6]["label"] == 1
    assert data.refresh()
    assert data[6]["label"] == 9
    with pytest.raises(StateError, match="fingerprint"):
        DataLoader(data, 2).load_state_dict(state)


@pytest.mark.parametrize(
    "query",
    ["SELECT id, path FROM samples ORDER BY id DESC", "SELECT id, path AS file FROM samples", "SELECT id FROM samples"],
)
def test_order_names_and_columns_count_in_the_fingerprint(url: str, query: str) -> None:
    assert SQLDataset(url, query).fingerprint != SQLDataset(url, "SELECT id, path FROM samples").fingerprint


# What goes wrong


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("SELECT * FROM nowhere", SourceError, "there is no table nowhere: look at its name"),
        ("SELECT absent FROM samples", SourceError, "there is no column absent"),
        ("SELEC id FROM samples", SourceError, 'syntax error near "SELEC".*The query: SELEC id FROM samples'),
        ("", OptionError, "query is empty"),
        ("; ", OptionError, "query is empty"),
        (7, OptionError, "query must be a text"),
        ("SELECT id, label AS id FROM samples", OptionError, "several columns named id"),
        ("DELETE FROM samples", SourceError, "only reads"),
        ("CREATE TABLE x (a)", SourceError, "only reads"),
        ("-- nothing", (OptionError, SourceError), "meta.db"),
    ],
)
@pytest.mark.parametrize("where", ["sqlite"])
def test_a_bad_query_is_told(url: str, query: Any, error: Any, words: str, where: str) -> None:
    with pytest.raises(error, match=words):
        SQLDataset(url, query)
    assert len(SQLDataset(url, ALL)) == 12


@pytest.mark.parametrize(
    "query",
    [
        "ATTACH '{new}' AS new",
        "/* ; */ -- ;\n ; attach database '{new}' AS new",
        "VACUUM INTO '{new}'",
        "ATTACH '{new}' AS new (READ_WRITE)",
        "COPY samples TO '{new}'",
        "EXPLAIN ANALYZE COPY samples TO '{new}'",
        "EXPORT DATABASE '{new}'",
    ],
)
@pytest.mark.parametrize("where", ["url", "duck"])
def test_no_file_is_made(where: str, query: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(where)
    before = sorted(tmp_path.iterdir())
    for make in (SQLDataset, lambda url, query: SQLStream(url, query, key="id")):
        with pytest.raises((SourceError, OptionError)):
            make(source, query.format(new=tmp_path / "new"))
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("where", ["url", "duck"])
def test_one_statement_is_asked(where: str, request: pytest.FixtureRequest) -> None:
    source = request.getfixturevalue(where)
    for query in (
        "SELECT 1 AS id; SELECT 2 AS id",
        "SELECT 1 AS id; DELETE FROM samples",
        "SELECT 1 AS id;;\n SELECT 2",
    ):
        for make in (SQLDataset, lambda url, query: SQLStream(url, query, key="id")):
            with pytest.raises((OptionError, SourceError), match=r"several statements.*one SELECT|syntax error near"):
                make(source, query)
        with pytest.raises(OptionError, match=r"and only one is allowed: give one SELECT. The query: SEL"):
            SQLDataset(source, query)
    for query in ("SELECT ';' AS a;", "SELECT ';''; SELECT 2' AS a; -- that; is all", 'SELECT 1 AS ";a" /* ; */ ;\n;'):
        assert len(SQLDataset(source, query)) == 1


@pytest.mark.parametrize(
    ("query", "error", "words"),
    [
        ("SELECT * FROM nowhere", SourceError, r"the database of .*Factory.*no table nowhere"),
        ("SELECT id FROM samples WHERE id < ?", OptionError, "params do not fit"),
        ("PRAGMA user_version = 7", OptionError, "gives no columns"),
    ],
)
def test_a_bad_query_through_any_connection(url: str, query: str, error: Any, words: str) -> None:
    with pytest.raises(error, match=words):
        SQLDataset(Factory(url.removeprefix("sqlite:///")), query)


def test_what_is_no_database(tmp_path: Path) -> None:
    with pytest.raises(
        SourceError, match=r"file .*missing\.db is not there: look at the URL sqlite:///.*four before an absolute one"
    ):
        SQLDataset(f"sqlite:///{tmp_path}/missing.db", ALL)
    assert not (tmp_path / "missing.db").exists()
    with pytest.raises(SourceError, match="is a folder"):
        SQLDataset(f"sqlite:///{tmp_path}", ALL)
    (tmp_path / "text.db").write_text("not a database, but long enough to look like a file of some kind" * 100)
    with pytest.raises(SourceError, match="not a database of this kind"):
        SQLDataset(f"sqlite:///{tmp_path}/text.db", ALL)


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("meta.db", r"url must be one of sqlite:///.*got 'meta\.db'"),
        ("oracle://ann:secret@host/db", r"got 'oracle://ann:\*\*\*@host/db'"),
        ("sqlite://meta.db", "three slashes"),
        ("sqlite:///:memory:", "belongs to one connection"),
        (7, "url must be a text .* got a int"),
        (lambda: 7, r"has cursor\(\); it returned a int"),
    ],
)
def test_where_nothing_can_be(where: Any, words: str) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        SQLDataset(where, ALL)
    assert "secret" not in str(caught.value)


def test_relative_files_are_found_again_from_elsewhere(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    data = SQLDataset("sqlite:///meta.db", ALL)
    monkeypatch.chdir("/")
    assert not data.refresh()


def test_an_empty_result_has_a_hint_and_a_length(url: str) -> None:
    with pytest.warns(UserWarning, match=r"gave no rows: look at its conditions.*WHERE id < 0"):
        data = SQLDataset(url, "SELECT id, path FROM samples WHERE id < 0")
    assert (len(data), data.names, data.__getitems__([])) == (0, ["id", "path"], [])
    assert data.fingerprint.startswith("0 rows")


def test_a_factory_that_fails_is_told(url: str) -> None:
    def fail() -> Any:
        raise OSError("no route to 10.0.0.7")

    with pytest.raises(SourceError, match=r"fail\(\): OSError: no route to 10\.0\.0\.7"):
        SQLDataset(fail, ALL)
    with pytest.raises(OptionError, match="load must be a function"):
        SQLDataset(url, ALL, load="path")  # type: ignore[arg-type]


WORD = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=4, max_size=12)


@given(WORD, WORD, st.sampled_from(["", "@:", "%40x", "%3F%26"]))
def test_a_password_is_in_no_text(user: str, word: str, odd: str) -> None:
    secret = f"${word}{odd}"
    for url in (f"postgresql://{user}:{secret}@host:1/db", f"postgresql://{user}@host/db?x=1&password={secret}"):
        database = Database(url)
        for text in (repr(database), address(url), database.hide(f"invalid URI {url}: {secret}, {unquote(secret)}")):
            assert secret not in text
            assert unquote(secret) not in text
            assert user in text


def test_a_password_is_not_in_the_cause_either() -> None:
    """libpq quotes a URL that it cannot read. A short password is taken out of the URL, and left in other words."""
    for secret in ("geheim42", "abc"):
        with pytest.raises(SourceError, match=r"ann:\*\*\*@") as caught:
            SQLDataset(f"postgresql://ann:{secret}@[::1]x/db", ALL)
        assert secret not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__


def test_only_numpy_and_the_standard_library_are_imported_before() -> None:
    code = (
        "import feedline, feedline.sources, sys; print({'pyarrow', 'adbc_driver_manager', 'duckdb'} & {*sys.modules})"
    )
    done = host("feedline").run(["-c", code], check=True)
    assert done.stdout.strip() == "set()"
