"""SQLDataset and SQLStream against a real MariaDB server, which is started here."""

from __future__ import annotations

import datetime
import json
import os
import pickle
import signal
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from kinds import FORK
from sources.contract import MapContract, StreamContract, as_list, flat
from sources.mariadb import PASSWORD, USER, Server, program, running

from feedline import DataLoader, MissingPackage, OptionError, OptionTypeError, SourceError
from feedline.sources import SQLDataset, SQLStream
from feedline.sources.sql.connecting import Asked
from feedline.sources.sql.database import Database
from feedline.sources.sql.statements import check_mysql

pymysql = pytest.importorskip("pymysql")

ROWS = [
    {
        "id": 2**63 + i,
        "number": i * i,
        "path": f"images/{i}.jpg",
        "label": i % 3,
        "price": f"{i}.50",
        "taken": datetime.datetime(2024, 1, 1, i, 0, 0, i),
        "split": None if i == 5 else "train",
    }
    for i in range(12)
]
COLUMNS = (
    "id bigint unsigned PRIMARY KEY, number int UNIQUE, path varchar(50) UNIQUE, label tinyint, price decimal(10, 2), "
    "taken datetime(6), split enum('train', 'test')"
)
TYPES = {
    "flag": ("tinyint(1)", "1", 1, "int8"),
    "bits": ("bit(9)", "b'100000001'", 257, "uint16"),
    "big": ("bigint unsigned", "18446744073709551615", 2**64 - 1, "uint64"),
    "small": ("int unsigned", "7", 7, "int8"),
    "exact": ("decimal(30, 10)", "12345678901234567890.0123456789", "12345678901234567890.0123456789", None),
    "real8": ("double", "0.1", 0.1, "double"),
    "moment": ("datetime(6)", "'2024-02-03 04:05:06.7'", datetime.datetime(2024, 2, 3, 4, 5, 6, 700_000), None),
    "stamp": ("timestamp NULL", "'2024-02-03 04:05:06'", datetime.datetime(2024, 2, 3, 4, 5, 6), None),
    "day": ("date", "'2024-02-03'", datetime.date(2024, 2, 3), None),
    "clock": ("time(1)", "'-12:00:00.5'", -datetime.timedelta(hours=12, seconds=0.5), None),
    "years": ("year", "2024", 2024, "int16"),
    "tree": ("json", """'{"a": "é"}'""", '{"a": "é"}', None),
    "bytes": ("blob", "x'00ff'", b"\x00\xff", "binary"),
    "words": ("text", "'é😀'", "é😀", None),
    "one": ("enum('x', 'y')", "'y'", "y", None),
    "some": ("set('p', 'q')", "'p,q'", "p,q", None),
}
ALL = "SELECT * FROM samples ORDER BY number"


def connect(server: Server) -> Any:
    """As the owner, who may do everything."""
    return pymysql.connect(
        host="127.0.0.1", port=server.port, user="owner", database="shop", charset="utf8mb4", autocommit=True
    )


@pytest.fixture(scope="module", autouse=True)
def certificates_are_read_once() -> Iterator[None]:
    """PyMySQL reads all that the system trusts for each connection, which takes it 15 ms of CPU."""
    connection = pymysql.connections.Connection
    made = connection._create_ssl_ctx(object(), {})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connection, "_create_ssl_ctx", lambda self, options: made)
        yield


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    if program() is None:
        pytest.skip("there is no MariaDB here: apt-get install mariadb-server-core")
    with running() as server:
        with connect(server) as db, db.cursor() as cursor:
            cursor.execute(f"CREATE TABLE samples ({COLUMNS})")
            values = [tuple(row.values()) for row in ROWS]
            cursor.executemany("INSERT INTO samples VALUES (%s, %s, %s, %s, %s, %s, %s)", values)
            columns = ", ".join(f"`{name}` {kind}" for name, (kind, *_) in TYPES.items())
            cursor.execute(f"CREATE TABLE types (id int, {columns}, score float)")
            cursor.execute(f"INSERT INTO types VALUES (1, {', '.join(each[1] for each in TYPES.values())}, 16777215)")
            cursor.execute("INSERT INTO types (id) VALUES (2)")
            cursor.execute("CREATE TABLE secrets (id int)")
            cursor.execute("CREATE USER %s@'%%' IDENTIFIED BY %s", (USER, PASSWORD))
            for table in ("samples", "types"):
                cursor.execute(f"GRANT SELECT ON {table} TO {USER}@'%'")
        yield server


class TestRows(MapContract):
    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, server: Server) -> Any:
        return SQLDataset(server.url, ALL)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return ROWS

    @pytest.mark.parametrize("kind", ["threads", "fork"])  # what is sent to other processes, PostgreSQL's tests say
    def test_same_batches_with_any_workers(self, source: Any, expected: list[Any], kind: str) -> None:
        super().test_same_batches_with_any_workers(source, expected, kind)


class TestByNumber(StreamContract):
    kinds = ("inline", "threads", "fork")  # as above

    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, server: Server) -> Any:
        return SQLStream(server.url, "SELECT * FROM samples WHERE number > %s", "number", (-1,), chunk=2)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return ROWS


class TestByText(StreamContract):
    kinds = ("inline", "threads")

    @pytest.fixture(scope="class")
    @classmethod
    def source(cls, server: Server) -> Any:
        return SQLStream(server.by_socket.replace("mysql:", "mariadb:"), "SELECT * FROM samples", "path", chunk=5)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return sorted(ROWS, key=lambda row: row["path"])


@pytest.mark.parametrize("key", ["path", "id", "price", "exact", "huge", "taken", "day"])
def test_the_server_shares_out_any_key(server: Server, key: str) -> None:
    """Over ranks, and then over workers; and going on after any key."""
    query = "SELECT id, number, path, price, taken, DATE(taken) + INTERVAL number DAY AS day, "
    query += "CAST(12345678901234567890 AS DECIMAL(30, 5)) + number / 1000 AS exact, "
    query += "CAST(REPEAT('1', 45) AS DECIMAL(60)) + number AS huge FROM samples"
    ranks = [SQLStream(server.url, query, key, chunk=3, num_replicas=2, rank=rank) for rank in range(2)]
    parts = [list(stream.shard(index, 2)) for stream in ranks for index in range(2)]
    assert sorted(row["number"] for part in parts for row in part) == [row["number"] for row in ROWS]
    assert all(len(part) < 9 for part in parts)
    stream = SQLStream(server.url, query, key, chunk=3)
    reading = iter(stream)
    seen = list(islice(reading, 5))
    again = iter(pickle.loads(pickle.dumps(stream)))
    again.load_state_dict(json.loads(json.dumps(reading.state_dict())))
    assert seen + list(again) == list(stream)
    reading.close()


def test_a_stream_with_two_columns_of_a_name_is_refused(server: Server) -> None:
    with pytest.raises(SourceError, match="several columns named number"):
        SQLStream(server.url, "SELECT number, number FROM samples", "number")


def test_values_have_the_columns_types(server: Server) -> None:
    names = ", ".join(f"`{name}`" for name in TYPES)
    data = SQLDataset(server.url, f"SELECT {names} FROM types ORDER BY id")
    assert data[0] == {name: value for name, (_, _, value, _) in TYPES.items()}
    assert data[1] == dict.fromkeys(TYPES)
    found = {field.name: str(field.type) for field in data.table.schema}
    assert {name: kind for name, (*_, kind) in TYPES.items() if kind} == {
        name: found[name] for name, (*_, kind) in TYPES.items() if kind
    }
    with pytest.warns(UserWarning, match="no rows"):
        empty = SQLDataset(server.url, f"SELECT {names} FROM types WHERE id = 9")
    assert {field.name: field.type for field in empty.table.schema}["moment"] == data.table.schema.field("moment").type


def test_numbers_without_a_sign_keep_every_digit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if they come in several batches: numbers below 2**63 and beyond would together become fractions."""
    from feedline.sources.sql import sql_dataset

    monkeypatch.setattr(sql_dataset, "ROWS", 2)
    values = [7, 300, 2**32, 2**63 + 1, 2**64 - 1, 2**53 + 1]
    query = " UNION ALL ".join(f"SELECT CAST({value} AS UNSIGNED) AS v" for value in values)
    assert [row["v"] for row in SQLDataset(server.url, query)] == values


def test_a_float_is_warned_of_because_the_server_leaves_digits_out(server: Server) -> None:
    with pytest.warns(UserWarning, match=r"column score is a FLOAT.*CAST\(score AS DOUBLE\) AS score"):
        assert SQLDataset(server.url, "SELECT score FROM types WHERE id = 1")[0] == {"score": 16777200.0}
    data = SQLDataset(server.url, "SELECT CAST(score AS DOUBLE) AS score FROM types WHERE id = 1")
    assert data[0] == {"score": 16777215.0}


def test_what_has_no_one_value_is_refused_with_the_remedy(server: Server) -> None:
    with pytest.raises(OptionError, match=r"column MAX\(bits\) is a computed BIT"):
        SQLDataset(server.url, "SELECT MAX(bits) FROM types")
    assert SQLDataset(server.url, "SELECT MAX(bits + 0) AS most FROM types")[0] == {"most": 257}
    with pytest.raises(SourceError, match=r"column day holds str.*CAST\(day AS CHAR\) AS day"):
        SQLDataset(server.url, "SELECT CAST('2024-00-00' AS DATE) AS day")
    with pytest.raises(OptionTypeError, match=r"key 'clock' is a timedelta.*CAST\(clock AS CHAR\)"):
        SQLStream(server.url, "SELECT clock FROM types WHERE id = 1", "clock")
    with pytest.raises(SourceError, match="key 'path' is NULL in some row"):
        SQLStream(server.url, "SELECT NULLIF(path, 'images/5.jpg') AS path FROM samples", "path")


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("one", r"ENUM: .*CAST\(one AS CHAR\) AS one"),
        ("some", r"SET: .*CAST\(some AS CHAR\) AS some"),
        ("stamp", r"TIMESTAMP: .*UNIX_TIMESTAMP\(stamp\) AS stamp"),
        ("bits", r"BIT: .*bits \+ 0 AS bits"),
    ],
)
def test_a_key_after_which_no_stream_could_go_on_is_refused(server: Server, key: str, words: str) -> None:
    """Resumed, it would leave rows out, or give some twice: an ENUM is ordered by number and compared as a text; in
    the hour in which clocks are set back, two moments look the same."""
    with pytest.raises(OptionTypeError, match=f"key '{key}' is of type {words}"):
        SQLStream(server.url, f"SELECT {key}, COUNT(*) AS count FROM types WHERE id = 1 GROUP BY {key}", key)


def test_params_of_many_types(server: Server) -> None:
    query = "SELECT number FROM samples WHERE label = %s AND path <> %s AND number IN %s AND taken < %s ORDER BY number"
    found = SQLDataset(
        server.url, query, (0, "'; DROP TABLE samples; -- \\", [0, 9, 36], datetime.datetime(2025, 1, 1))
    )
    assert [row["number"] for row in found] == [0, 9, 36]
    named = "SELECT number FROM samples WHERE number > %(least)s AND path LIKE 'images/%%'"
    stream = SQLStream(server.url, named, "number", {"least": 50})
    assert [row["number"] for index in range(2) for row in stream.shard(index, 2)] == [64, 81, 100, 121]
    plain = SQLStream(server.url, "SELECT number FROM samples WHERE path LIKE 'images/%' AND number % 2 = 0", "number")
    assert [row["number"] for index in range(2) for row in plain.shard(index, 2)] == [0, 4, 16, 36, 64, 100]


@pytest.mark.parametrize(
    ("query", "params", "error", "words"),
    [
        ("SELECT * FROM nowhere", (), SourceError, r"the user may not read `shop`\.`nowhere`"),
        ("SELECT absent FROM samples", (), SourceError, "there is no column absent"),
        ("SELECT FROM samples", (), SourceError, 'syntax error near "FROM samples"'),
        ("SELECT 1 AS a; DROP TABLE samples", (), OptionError, "several statements, and only one is allowed"),
        ("SELECT * FROM samples WHERE number > %s", (), OptionError, "params do not fit"),
        ("SELECT * FROM samples WHERE number > %s", (1, 2), OptionError, "params do not fit"),
        ("SELECT * FROM samples WHERE number > %s AND label = %s", (1,), OptionError, "params do not fit"),
        ("SELECT * FROM samples WHERE number > %(x)s", (1,), OptionError, "params do not fit"),
        ("SELECT * FROM samples WHERE number > %(x)s", {"y": 1}, OptionError, "no value for 'x' of the query; .* y"),
        ("SELECT * FROM samples WHERE path = '50%' AND id > %s", (1,), OptionError, "a percent sign is written %%"),
        ("DELETE FROM samples", (), SourceError, "the query is not a SELECT"),
        ("SELECT * FROM secrets", (), SourceError, "the user may not read `shop`.`secrets`: GRANT SELECT"),
        ("SELECT 1 AS a, 2 AS a", (), OptionError, "several columns named a"),
    ],
)
def test_a_bad_query_is_told(server: Server, query: str, params: Any, error: Any, words: str) -> None:
    with pytest.raises(error, match=words) as caught:
        SQLDataset(server.url, query, params)
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "INSERT INTO secrets VALUES (1)",
        "COMMIT",
        "/* so */ # this\n -- and that\n DROP TABLE secrets",
        "SELECT 1 /*! INTO OUTFILE '/tmp/feedline-written' */",
        "SELECT 'a' 'b' INTO  DUMPFILE '/tmp/feedline-written'",
        "SELECT nextval(counter)",
    ],
)
def test_nothing_is_written_even_by_who_may(server: Server, query: str) -> None:
    with connect(server) as db, db.cursor() as cursor:
        cursor.execute("CREATE SEQUENCE IF NOT EXISTS counter")
    with pytest.raises(SourceError, match="only reads"):
        SQLDataset(server.owner, query)
    assert not Path("/tmp/feedline-written").exists()


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ';' AS a, \"it's; \\\" INTO OUTFILE\" AS b, `c;` FROM t -- ;",
        "(SELECT 1) UNION (SELECT 2)",
        "\n# why; \nWITH a AS (SELECT 1) SELECT * FROM a /* ; DROP */",
        "SELECT 1 --2",
    ],
)
def test_what_only_looks_like_writing_is_asked(query: str) -> None:
    check_mysql(query)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ((PASSWORD.replace("&", "%26"), "falsches-wort"), SourceError, f"wrong password for user {USER}"),
        (("/shop", "/nowhere"), SourceError, f"the user {USER} may not use this database"),
        (("127.0.0.1:{port}", "127.0.0.1:1"), SourceError, "the server cannot be reached: look at host and port"),
        (("/shop", "/shop?odd=1"), OptionError, "odd is no option here; there are connect_timeout"),
        (("/shop", "/shop?connect_timeout=soon"), OptionError, "connect_timeout must be a whole number; got 'soon'"),
        (
            ("/shop", "/shop?read_default_file=/no/my.cnf"),
            OptionError,
            "read_default_file: there is no file /no/my.cnf",
        ),
        (("{port}", "port"), OptionError, "the port is not a number"),
        (("geheim%26", "geh@im"), OptionError, "write %40 for @"),
    ],
)
def test_where_nobody_answers_is_told_without_the_password(
    server: Server, change: tuple[str, str], error: Any, words: str
) -> None:
    url = server.url.replace(change[0].format(port=server.port), change[1])
    with pytest.raises(error, match=words) as caught:
        SQLDataset(url, ALL)
    told = [str(caught.value), str(caught.value.__cause__ or "")]
    for secret in (PASSWORD, PASSWORD.replace("&", "%26"), "falsches-wort"):
        assert not any(secret in text for text in told)
    assert "***@" in told[0]


def test_without_the_driver_it_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pymysql", None)
    with pytest.raises(MissingPackage, match=r"pip install 'feedline\[mysql\]'"):
        SQLDataset("mysql://host/shop", "SELECT 1")


@pytest.mark.parametrize(
    ("kill", "words"), [("KILL", "the connection to the server was lost"), ("KILL QUERY", "Query.*interrupted")]
)
def test_a_lost_connection_is_told_and_gone_on_from(server: Server, kill: str, words: str) -> None:
    """The rows are too large for all of them to be on their way already."""
    query = "SELECT number, REPEAT('x', 4000000) AS filler FROM samples"
    reading = iter(SQLStream(server.url, query, "number", chunk=1, load=lambda row: row["number"]))
    seen = [next(reading), next(reading)]
    with connect(server) as db, db.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE user = %s", (USER,))
        ((number,),) = cursor.fetchall()
        cursor.execute(f"{kill} {number}")
    with pytest.raises(SourceError, match=words):
        seen.extend(reading)
    assert len(seen) < len(ROWS)
    assert seen + list(reading) == [row["number"] for row in ROWS]


def test_a_server_that_ends_the_connection_before_the_first_row_is_told(server: Server) -> None:
    def killed() -> None:
        with connect(server) as db, db.cursor() as cursor:
            while not cursor.execute("SELECT id FROM information_schema.processlist WHERE state = 'User sleep'"):
                pass
            ((number,),) = cursor.fetchall()
            cursor.execute(f"KILL {number}")

    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(killed)
        with pytest.raises(SourceError, match="the connection to the server was lost"):
            SQLDataset(server.url, "SELECT number, SLEEP(100) AS slept FROM samples")
        killing.result()


def test_who_stops_early_does_not_read_the_rest(server: Server) -> None:
    """Reading a hundred million rows takes minutes."""
    asked = Asked(Database(server.owner), "SELECT seq FROM seq_1_to_100000000", (), 3)
    assert next(asked).to_pydict() == {"seq": [1, 2, 3]}
    asked.close()
    assert len(SQLDataset(server.owner, "SELECT * FROM samples")) == 12


def test_the_server_waits_for_a_reader_that_pauses(server: Server) -> None:
    """By default it hangs up after a minute in which nobody reads, such as that of a validation."""
    (row,) = SQLStream(server.url, "SELECT 1 AS id, @@net_write_timeout AS seconds", "id")
    assert row["seconds"] >= 24 * 3600


def test_a_killed_worker_costs_no_row_and_workers_have_connections_of_their_own(server: Server, tmp_path: Path) -> None:
    def load(row: dict[str, Any]) -> Any:
        if row["number"] == 81 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return row["connection"], row["number"]

    query = "SELECT number, CONNECTION_ID() AS connection FROM samples"
    with DataLoader(SQLStream(server.url, query, "number", load=load), 2, collate_fn=as_list, **FORK) as loader:
        with pytest.warns(UserWarning, match="killed by SIGKILL"):
            seen = flat(loader)
    assert sorted(number for _, number in seen) == [row["number"] for row in ROWS]
    assert len({connection for connection, _ in seen}) == 2
    assert (tmp_path / "killed").exists()
