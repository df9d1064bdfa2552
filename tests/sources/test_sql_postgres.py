"""SQLDataset and SQLStream against a real PostgreSQL server, which is started here."""

from __future__ import annotations

import contextlib
import gc
import json
import pickle
import socket
import uuid
import weakref
from itertools import islice
from typing import Any

import pytest
from kinds import FORK
from sources.contract import MapContract, StreamContract, as_list, flat
from sources.postgres import PASSWORD, USER, Server

from feedline import DataLoader, OptionError, OptionTypeError, SourceError
from feedline.sources import SQLDataset, SQLStream
from feedline.sources.sql import drivers
from feedline.sources.sql.database import Database
from feedline.sources.sql.mistakes import explained

psycopg = pytest.importorskip("psycopg")
pytestmark = pytest.mark.usefixtures("adbc_is_there")

ROWS = [
    {
        "id": uuid.uuid5(uuid.NAMESPACE_URL, str(i)),
        "number": i * i,
        "path": f"images/{i}.jpg",
        "label": i % 3,
        "good": i % 2 == 0,
        "score": i / 4,
        "split": None if i == 5 else "train",
    }
    for i in range(12)
]
COLUMNS = (
    "id uuid PRIMARY KEY, number bigint UNIQUE, path text, label smallint, good boolean, score real, split varchar"
)
ALL = "SELECT * FROM samples ORDER BY number"


@pytest.fixture(scope="session")
def server(postgres: Server) -> Server:
    with psycopg.connect(postgres.owner, autocommit=True) as db:
        db.execute(f"CREATE TABLE samples ({COLUMNS})")
        db.cursor().executemany("INSERT INTO samples VALUES (%s, %s, %s, %s, %s, %s, %s)", list(map(_values, ROWS)))
        db.execute("CREATE TABLE secrets (id int)")
        db.execute(f"GRANT SELECT ON samples TO {USER}")
    return postgres


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.values())


class TestRows(MapContract):
    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, server: Server) -> Any:
        return SQLDataset(server.url, ALL)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return ROWS


class TestByNumber(StreamContract):
    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, server: Server) -> Any:
        return SQLStream(server.url, "SELECT * FROM samples WHERE number > $1", "number", (-1,), chunk=2)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return ROWS


class TestByUUID(StreamContract):
    kinds = ("inline", "threads")

    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, server: Server) -> Any:
        return SQLStream(server.by_socket, "SELECT * FROM samples", "id", chunk=5)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return sorted(ROWS, key=lambda row: row["id"].bytes)


@pytest.mark.parametrize("key", ["path", "score"])
def test_the_server_shares_out_any_key(server: Server, key: str) -> None:
    stream = SQLStream(server.url, "SELECT id, path, number, score FROM samples", key, chunk=3)
    parts = [list(stream.shard(index, 3)) for index in range(3)]
    assert sorted(row["number"] for part in parts for row in part) == [row["number"] for row in ROWS]
    assert all(len(part) < 12 for part in parts)
    reading = iter(stream)
    seen = list(islice(reading, 5))
    again = iter(pickle.loads(pickle.dumps(stream)))
    again.load_state_dict(json.loads(json.dumps(reading.state_dict())))
    assert seen + list(again) == list(stream)
    reading.close()


@pytest.mark.parametrize("key", ["split", "NULLIF(number, 25)"])
def test_a_key_that_is_null_is_an_error_before_anything_is_read(server: Server, key: str) -> None:
    with pytest.raises(SourceError, match="key 'k' is NULL in some row"):
        SQLStream(server.url, f"SELECT {key} AS k FROM samples", "k")


def test_params_of_many_types(server: Server) -> None:
    query = (
        "SELECT number FROM samples WHERE label = $2 AND path <> $1 AND number = ANY($3) AND score < $4 AND good = $5"
    )
    found = SQLDataset(server.url, query, ("x", 0, [0, 9, 36], 100.0, True))
    assert sorted(row["number"] for row in found) == [0, 36]
    with pytest.warns(UserWarning, match="no rows"):
        assert not len(SQLDataset(server.url, "SELECT 1 AS one FROM samples WHERE path = $1", ("' OR '1'='1",)))


def test_more_rows_than_are_fetched_at_a_time(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "SELECT i, 'file ' || i AS path, i % 7 AS label FROM generate_series(1, $1::int) AS i ORDER BY i"
    for count in (65_535, 65_536, 65_537):
        data = SQLDataset(server.url, query, (count,))
        assert (len(data), data[-1]["path"]) == (count, f"file {count}")
    assert str(data.table.schema.field("label").type) == "int8"


def test_a_factory_of_another_driver(server: Server) -> None:
    def connect() -> Any:
        return psycopg.connect(server.url)

    assert list(SQLDataset(connect, "SELECT number, path FROM samples WHERE number > %s ORDER BY number", (50,))) == [
        {"number": row["number"], "path": row["path"]} for row in ROWS if row["number"] > 50
    ]
    for query, params in (("number > %(least)s", {"least": 3}), ("number > %s", (3,))):
        stream = SQLStream(connect, f"SELECT number, path FROM samples WHERE {query}", "number", params, chunk=2)
        assert [row["number"] for index in range(2) for row in stream.shard(index, 2)] == [i * i for i in range(2, 12)]


@pytest.mark.parametrize(
    ("query", "params", "error", "words"),
    [
        ("SELECT * FROM nowhere", (), SourceError, "there is no table nowhere"),
        ("SELECT absent FROM samples", (), SourceError, 'there is no column "absent"'),
        ("SELEC", (), SourceError, 'syntax error near "SELEC"'),
        (
            "SELECT 1 AS a; DROP TABLE samples",
            (),
            SourceError,
            "several statements, and only one is allowed",
        ),
        ("SELECT * FROM samples WHERE number > $1", (), OptionError, "params do not fit"),
        ("SELECT * FROM samples WHERE number > $1 AND label = $2", (1,), OptionError, "params do not fit"),
        ("SELECT * FROM samples WHERE number > $1", {"least": 1}, OptionError, r"write \$1, \$2"),
        ("DELETE FROM samples", (), SourceError, "."),
        ("SELECT * FROM secrets", (), SourceError, "the user may not read secrets: GRANT SELECT"),
        ("SELECT 1 AS a, 2 AS a", (), OptionError, "several columns named a"),
    ],
)
def test_a_bad_query_is_told(server: Server, query: str, params: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        SQLDataset(server.url, query, params)
    assert PASSWORD not in str(caught.value)
    assert len(SQLDataset(server.url, ALL)) == 12


def test_nothing_is_written_even_by_who_may(server: Server) -> None:
    for query in ("WITH gone AS (DELETE FROM samples RETURNING *) SELECT * FROM gone", "SELECT nextval('counter')"):
        with psycopg.connect(server.owner, autocommit=True) as db:
            db.execute("CREATE SEQUENCE IF NOT EXISTS counter")
        with pytest.raises(SourceError, match=r"only reads|data-modifying"):
            SQLDataset(server.owner, query)
    assert len(SQLDataset(server.url, ALL)) == 12


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((PASSWORD.replace("&", "%26"), "falsches-wort"), f"wrong password for user {USER}"),
        (("/postgres", "/nowhere"), "the server has no database nowhere"),
        (("127.0.0.1:{port}", "127.0.0.1:1"), "the server cannot be reached: look at host and port"),
        (("/postgres", "/postgres?odd=1"), "invalid URI query parameter"),
    ],
)
def test_where_nobody_answers_is_told_without_the_password(server: Server, change: tuple[str, str], words: str) -> None:
    url = server.url.replace(change[0].format(port=server.port), change[1])
    with pytest.raises(SourceError, match=words) as caught:
        SQLDataset(url, ALL)
    told = [str(caught.value), str(caught.value.__cause__ or "")]
    for secret in (PASSWORD, PASSWORD.replace("&", "%26"), "falsches-wort"):
        assert not any(secret in text for text in told)
    assert "***@" in told[0]


def test_an_unknown_host_is_named() -> None:
    """In libpq's words: asking for such a name may take long where there is no network."""
    said = 'IO: [libpq] Failed to connect: could not translate host name "db.x" to address: Name or service not known'
    told = explained(OSError(said), Database("postgresql://ann:secret@db.x/shop"))
    assert "postgresql://ann:***@db.x/shop: the host db.x is not known: look at the URL" in str(told)


def test_a_server_that_says_nothing_is_not_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "CONNECT_TIMEOUT", 2)  # the least that libpq knows
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with pytest.raises(SourceError, match=r"the server cannot be reached.*timeout expired"):
            SQLDataset(f"postgresql://ann:secret@127.0.0.1:{port}/db", ALL)
        assert drivers._with_timeout("postgresql://h/db?connect_timeout=7").count("connect_timeout") == 1
        monkeypatch.setenv("PGCONNECT_TIMEOUT", "9")
        assert "connect_timeout" not in drivers._with_timeout("postgresql://h/db")


def test_a_lost_connection_is_told_and_gone_on_from(server: Server) -> None:
    reading = iter(SQLStream(server.url, ALL, "number", chunk=1))
    assert next(reading)["number"] == 0
    with psycopg.connect(server.owner, autocommit=True) as db:
        db.execute(f"SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE usename = '{USER}'")
    with pytest.raises(SourceError, match=r"terminat|closed"):
        next(reading)
    assert [row["number"] for row in reading] == [row["number"] for row in ROWS[1:]]


def test_workers_each_have_a_connection_of_their_own(server: Server) -> None:
    def load(row: dict[str, Any]) -> Any:
        return row["pid"], row["number"]

    stream = SQLStream(server.url, "SELECT number, pg_backend_pid() AS pid FROM samples", "number", load=load)
    with DataLoader(stream, 2, collate_fn=as_list, **FORK) as loader:
        seen = flat(loader)
    assert sorted(number for _, number in seen) == [row["number"] for row in ROWS]
    assert len({pid for pid, _ in seen}) == 2


def test_a_percent_sign_is_one_with_and_without_values(server: Server) -> None:
    query = "SELECT number FROM samples WHERE path LIKE 'images/%' AND label % 3 = 0"
    stream = SQLStream(lambda: psycopg.connect(server.url), query, "number")
    want = [row["number"] for row in ROWS if row["label"] == 0]
    assert [row["number"] for row in stream] == want
    assert [row["number"] for index in range(2) for row in stream.shard(index, 2)] == want


def test_what_cannot_be_written_and_read_again_is_no_key(server: Server) -> None:
    """Such as bytea: resuming would go on at a place of which nobody knows where it is."""
    for key in ("path::bytea", "interval '1 day' * number", "ARRAY[number]", "'10.0.0.1'::inet"):
        with pytest.raises(OptionTypeError, match=r"key 'k' is a .*CAST\(k AS TEXT\)"):
            SQLStream(server.url, f"SELECT {key} AS k FROM samples", "k")


def test_an_error_does_not_keep_connections(server: Server) -> None:
    """Without any garbage being collected: an open one would hold a lock on its table."""
    reading = iter(SQLStream(server.url, "SELECT number FROM samples", "number", chunk=2))
    next(reading)
    gone = weakref.ref(reading)

    def fails(held: Any) -> None:
        SQLDataset(server.url, "SELECT nothing FROM samples")

    gc.disable()
    try:
        with contextlib.suppress(SourceError):
            fails(reading)
        del reading
        assert gone() is None
    finally:
        gc.enable()
