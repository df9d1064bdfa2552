"""SQLStream: each row once over workers and ranks, in the key's order, resumed by key (SQLite, DuckDB, any DB-API)."""

from __future__ import annotations

import contextlib
import json
import sqlite3
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import THREADS, few
from sources.contract import StreamContract, as_list, flat

from feedline import DataLoader, IterableDataset, OptionError, SourceError, StateError
from feedline.sources import SQLStream
from feedline.sources.sql.sql_parts import KeyRange

KEYS = [-7, 1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 1000]
ROWS = [{"id": key, "name": f"n{key}", "value": key / 2} for key in KEYS]
QUERY = "SELECT id, name, value FROM events"

pytestmark = pytest.mark.usefixtures("adbc_is_there")


def make(path: Path) -> str:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE events (id INTEGER PRIMARY KEY, name TEXT, value REAL, same TEXT, empty TEXT)")
        rows = [(row["id"], row["name"], row["value"], "x", None if row["id"] == 21 else row["name"]) for row in ROWS]
        db.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", reversed(rows))
    db.close()
    return f"sqlite:///{path}"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return make(tmp_path / "meta.db")


@pytest.fixture
def expected() -> list[Any]:
    return ROWS


def connecting(url: str) -> Any:
    return lambda: sqlite3.connect(url.removeprefix("sqlite:///"), check_same_thread=False)


class TestByNumber(StreamContract):
    @pytest.fixture
    def source(self, url: str) -> Any:
        return SQLStream(url, QUERY + " WHERE id > ?  -- all of them", "id", (-100,), chunk=2)


class TestByText(StreamContract):
    kinds = ("inline", "threads", "fork")

    @pytest.fixture
    def source(self, url: str) -> Any:
        return SQLStream(url, QUERY + " WHERE id > :least", "name", {"least": -100}, chunk=3)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return sorted(ROWS, key=lambda row: row["name"])


@settings(max_examples=few(40))
@given(
    st.integers(-(2**62), 2**62),
    st.integers(0, 2**62),
    st.lists(st.integers(1, 6), min_size=1, max_size=3),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20),
)
def test_parts_of_parts_hold_every_key_once(least: int, span: int, counts: list[int], keys: list[int]) -> None:
    parts = [KeyRange()]
    for count in counts:
        halves = [[part.split(index, count) for index in range(count)] for part in parts]
        for part, half in zip(parts, halves, strict=True):
            first, last = half[0].ends(least, least + span)[0], half[-1].ends(least, least + span)[1]
            assert (first, last) == part.ends(least, least + span)
        parts = [part for half in halves for part in half]
    ends = [part.ends(least, least + span) for part in parts]
    assert (ends[0][0], ends[-1][1]) == (None, None)
    assert [end for _, end in ends[:-1]] == [first for first, _ in ends[1:]]
    kept = [part.keeps([str(key) for key in keys]) for part in parts]
    assert all(sum(column) == 1 for column in zip(*kept, strict=True))


@pytest.mark.parametrize("key", ["id", "name"])
def test_ranks_and_workers_share_the_rows(url: str, key: str) -> None:
    seen = []
    for rank, workers in ((0, 1), (1, 3), (2, 0)):
        stream = SQLStream(url, QUERY, key, num_replicas=3, rank=rank)
        options: dict[str, Any] = {"num_workers": workers, "workers": "thread"} if workers else {}
        with DataLoader(stream, 2, collate_fn=as_list, **options) as loader:
            seen += flat(loader)
    assert sorted(row["id"] for row in seen) == KEYS


def test_ranks_are_found(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert [row["id"] for row in SQLStream(url, QUERY, "id", bounds=(0, 99))] == [55, 89, 144, 1000]


class Wrapped(IterableDataset[Any]):
    def __init__(self, stream: SQLStream) -> None:
        self.stream = stream

    def __iter__(self) -> Any:
        yield from self.stream


def test_a_loader_knows_that_it_shares_itself_out_over_ranks(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    stream = SQLStream(url, QUERY, "id", bounds=(0, 99))
    assert len(list(DataLoader(stream, batch_size=None))) == 4  # and no warning, which would be an error
    assert len(list(DataLoader(Wrapped(stream), batch_size=None))) == 4
    with pytest.raises(OptionError, match="a SQLStream finds out its rank"):
        next(iter(DataLoader(stream, batch_size=None, ranks="shard")))


def test_bounds_are_the_users_or_found(url: str) -> None:
    stream = SQLStream(url, QUERY, "id")
    assert [len(list(stream.shard(index, 4))) for index in range(4)] == [12, 0, 0, 1]
    stream = SQLStream(url, QUERY, "id", bounds=(1, 40))
    assert [len(list(stream.shard(index, 4))) for index in range(4)] == [6, 1, 1, 5]
    for wrong in ((1,), "12", (2, 1), (1, True)):
        with pytest.raises(OptionError, match="bounds must be"):
            SQLStream(url, QUERY, "id", bounds=wrong)  # type: ignore[arg-type]


def test_little_is_held(url: str) -> None:
    query = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 99999) SELECT i FROM n"
    reading = iter(SQLStream(url, query, "i", chunk=7))
    assert [row["i"] for row in islice(reading, 10)] == list(range(10))
    assert len(list(reading._rows)) == 4  # of the second chunk
    reading.close()


def test_rows_that_are_added_come_and_ranges_stay(tmp_path: Path) -> None:
    url = make(tmp_path / "meta.db")
    stream = SQLStream(url, QUERY, "id", bounds=(0, 99))
    options: dict[str, Any] = {"collate_fn": as_list, **THREADS}
    with DataLoader(stream, 2, **options) as loader:
        batches = iter(loader)
        seen = flat(islice(batches, 3))
        state = json.loads(json.dumps(loader.state_dict()))
        batches.close()
    with sqlite3.connect(tmp_path / "meta.db") as db:
        db.execute("INSERT INTO events VALUES (20, 'new', 0, 'x', ''), (2000, 'last', 0, 'x', '')")
    db.close()
    with DataLoader(SQLStream(url, QUERY, "id"), 2, **options) as loader:  # whose own ranges are others now
        loader.load_state_dict(state)
        rest = flat(loader)
    assert sorted(row["id"] for row in seen + rest) == sorted([*KEYS, 20, 2000])


def test_a_state_is_of_its_query_and_its_part(url: str) -> None:
    state = DataLoader(SQLStream(url, QUERY, "id"), 2).state_dict()
    with pytest.raises(StateError, match="fingerprint"):
        DataLoader(SQLStream(url, QUERY + " WHERE id > 0", "id"), 2).load_state_dict(state)
    reading = iter(SQLStream(url, QUERY, "id", num_replicas=2, rank=0))
    with pytest.raises(StateError, match=r"part 0 of 2 of the table, and this is part 1 of 2: each rank"):
        iter(SQLStream(url, QUERY, "id", num_replicas=2, rank=1)).load_state_dict(reading.state_dict())


def test_an_error_names_the_row_and_the_next_one_comes(url: str) -> None:
    def load(row: dict[str, Any]) -> int:
        return 1 // (row["id"] - 8)

    reading = iter(SQLStream(url, QUERY, "id", load=load, transform=abs))
    assert [next(reading) for _ in range(5)] == [1, 1, 1, 1, 1]
    with pytest.raises(ZeroDivisionError) as caught:
        next(reading)
    assert caught.value.__notes__ == ["feedline: at the row with id = 8"]
    assert len(list(reading)) == len(KEYS) - 6


@pytest.mark.parametrize("after", [None, "x"])
def test_a_key_that_comes_twice_is_an_error(url: str, after: str | None) -> None:
    reading = iter(SQLStream(url, "SELECT same AS k FROM events", "k"))
    if after is None:
        assert next(reading) == {"k": "x"}
    else:  # also where a state says that one of them was delivered
        reading.load_state_dict({**reading.state_dict(), "after": after})
    with pytest.raises(SourceError, match=r"k = 'x' comes more than once.*take a key that is unique"):
        next(reading)


@pytest.mark.parametrize(
    ("query", "key", "error", "words"),
    [
        ("SELECT * FROM nowhere", "id", SourceError, "no table nowhere.*The query: SELECT \\* FROM nowhere$"),
        (QUERY, "absent", SourceError, "there is no column absent"),
        (QUERY, "", OptionError, "key must be the name of a column"),
        (QUERY, 7, OptionError, "key must be the name of a column"),
        ("SELECT id, empty FROM events", "empty", SourceError, "key 'empty' is NULL in some row.*IS NOT NULL"),
        ("SELECT x'00' AS id", "id", OptionError, r"key 'id' is a bytes, but must be whole numbers or texts.*CAST\(id"),
        ("SELECT 1 AS id UNION SELECT 'x'", "id", OptionError, "key 'id' is a int and a str, but must be whole"),
        (QUERY, "ID", OptionError, r"key must be one of the names that the query gives, \['id', .*; got 'ID'"),
        (QUERY + " WHERE id > ?", "id", OptionError, "params do not fit"),
        ("SELECT FROM", "id", SourceError, "syntax error"),
    ],
)
@pytest.mark.parametrize("where", ["sqlite", "factory"])
def test_what_cannot_be_streamed_is_told(url: str, query: str, key: Any, error: Any, words: str, where: str) -> None:
    with pytest.raises(error, match=words):
        list(SQLStream(url if where == "sqlite" else connecting(url), query, key))


def test_a_row_that_is_left_out_is_named(url: str) -> None:
    with DataLoader(SQLStream(url, QUERY, "id", load=lambda row: 1 // (row["id"] - 8)), 4, on_error="skip") as loader:
        assert len(flat(loader)) == len(KEYS) - 1
        assert [each.what for each in loader.errors()] == ["at the row with id = 8"]


def test_keys_that_a_collation_takes_for_the_same_come_once(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "c.db")) as db, db:
        db.execute("CREATE TABLE names (name TEXT COLLATE NOCASE)")
        db.executemany("INSERT INTO names VALUES (?)", [("abc",), ("ABC",), ("Abc",), ("b",)])
    stream = SQLStream(f"sqlite:///{tmp_path}/c.db", "SELECT name FROM names", "name", chunk=3)
    for count in range(1, 4):
        reading, again = iter(stream), iter(stream)
        seen = list(islice(reading, count))
        again.load_state_dict(reading.state_dict())
        assert seen + list(again) == list(stream)


def test_nothing_is_a_hint(url: str) -> None:
    with pytest.warns(UserWarning, match="gives no rows"):
        stream = SQLStream(url, QUERY + " WHERE id > 5000", "id")
    assert not list(stream)
    with pytest.raises(OptionError, match="chunk must be at least 1"):
        SQLStream(url, QUERY, "id", chunk=0)
    with pytest.raises(OptionError, match="index must be below count=2"):
        SQLStream(url, QUERY, "id").shard(2, 2)


def test_types_that_change_late_are_read_all_the_same(url: str) -> None:
    query = "SELECT id, CASE WHEN id > 10 THEN name END AS late FROM events"
    for chunk in (3, 1):
        rows = list(islice(SQLStream(url, query, "id", chunk=chunk), 20))
        assert [row["late"] for row in rows] == [None] * 6 + [row["name"] for row in ROWS[6:]]


@pytest.mark.parametrize("params", [(-100,), {"least": -100}])
@pytest.mark.parametrize("key", ["id", "name"])
def test_any_connection(url: str, params: Any, key: str) -> None:
    sign = ":least" if isinstance(params, dict) else "?"
    stream = SQLStream(connecting(url), f"{QUERY} WHERE id > {sign}", key, params, chunk=4)
    assert list(stream) == sorted(ROWS, key=lambda row: row[key])
    reading = iter(stream)
    seen = list(islice(reading, 5))
    again = iter(stream)
    again.load_state_dict(json.loads(json.dumps(reading.state_dict())))
    assert seen + list(again) == list(stream)
    assert sorted(row["id"] for index in range(3) for row in stream.shard(index, 3)) == KEYS


def test_duckdb(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "e.duckdb")) as db:
        db.execute("CREATE TABLE events (id BIGINT, name TEXT, value DOUBLE)")
        db.executemany("INSERT INTO events VALUES (?, ?, ?)", [tuple(row.values()) for row in ROWS])
    for query, params in ((f"{QUERY} WHERE id > ?", (-100,)), (f"{QUERY} WHERE id > $least", {"least": -100})):
        stream = SQLStream(f"duckdb:///{tmp_path}/e.duckdb", query, "id", params, chunk=3)
        assert list(stream) == ROWS
        assert [row for index in range(3) for row in stream.shard(index, 3)] == ROWS
    with DataLoader(stream, 2, collate_fn=as_list, **THREADS) as loader:
        assert sorted(row["id"] for row in flat(loader)) == KEYS


def test_it_says_what_it_is(url: str) -> None:
    assert repr(SQLStream(url, QUERY, "id")) == f"SQLStream({url!r}, {QUERY!r}, key='id')"
