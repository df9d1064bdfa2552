"""Millions of rows of (id, path, label, split) into memory: SQLDataset, and `cursor.fetchall()` of the usual driver.

Of PostgreSQL and MySQL real servers are started, as the tests do. Their own CPU is not counted.

Each in a new process. "MB" is what the process has grown by afterwards, "peak MB" the most it had meanwhile. "CPU s" is
the process's own time, which other programs on the machine disturb less than "seconds".
"""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from harness import Case, Samples, Workload, serve

QUERY = "SELECT id, path, label, split FROM samples"
FOLDER = Path(os.environ.get("FEEDLINE_BENCH_SQL", tempfile.gettempdir()))
"""Where files of databases are kept from one measurement to the next: making the large one takes half a minute."""

SPLIT = "CASE i % 10 WHEN 8 THEN 'val' WHEN 9 THEN 'test' ELSE 'train' END"
FILL = f"""INSERT INTO samples SELECT i, 'images/train/' || lpad(i::text, 8, '0') || '.jpg', i * 7919::bigint % 1000,
    {SPLIT} FROM generate_series(0, {{0}}) AS i"""
FILL_MYSQL = f"""INSERT INTO samples
    SELECT i, CONCAT('images/train/', LPAD(i, 8, '0'), '.jpg'), i * 7919 % 1000, {SPLIT}
    FROM (SELECT seq AS i FROM seq_0_to_{{0}}) AS n"""


@contextmanager
def database(kind: str, rows: int) -> Iterator[str]:
    """The URL of a database with so many rows."""
    if kind in ("sqlite", "duckdb"):
        yield f"{kind}:///{made_file(kind, rows)}"
        return
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    tempfile.tempdir = "/tmp"  # a server must reach its files as another user
    if kind == "postgresql":
        import psycopg
        from sources.postgres import running

        with running() as server:
            with psycopg.connect(server.owner, autocommit=True) as db:
                db.execute(f"CREATE TABLE samples (id int, path text, label int, split text); {FILL.format(rows - 1)}")
            yield server.owner
        return
    import pymysql
    from sources.mariadb import running as running_mariadb

    with running_mariadb() as server:
        with pymysql.connect(port=server.port, user="owner", database="shop", autocommit=True) as db:
            with db.cursor() as cursor:
                cursor.execute("CREATE TABLE samples (id int, path varchar(40), label int, split varchar(8))")
                cursor.execute(FILL_MYSQL.format(rows - 1))
        yield server.owner


def made_file(kind: str, rows: int) -> Path:
    path = FOLDER / f"feedline-bench-{rows}.{kind}"
    if not path.exists():
        making = path.with_suffix(f".{os.getpid()}")
        {"sqlite": make_sqlite, "duckdb": make_duckdb}[kind](making, rows)
        making.rename(path)
    return path


def make_sqlite(path: Path, rows: int) -> None:
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, path TEXT, label INTEGER, split TEXT)")
        db.execute(
            """INSERT INTO samples
            WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < ? - 1)
            SELECT i, printf('images/train/%08d.jpg', i), (i * 2654435761) % 1000,
                   CASE i % 10 WHEN 8 THEN 'val' WHEN 9 THEN 'test' ELSE 'train' END FROM n""",
            (rows,),
        )
    db.close()


def make_duckdb(path: Path, rows: int) -> None:
    import duckdb

    with duckdb.connect(str(path)) as db:
        db.execute(
            f"""CREATE TABLE samples AS SELECT i AS id, printf('images/train/%08d.jpg', i) AS path,
            CAST((i * 7919) % 1000 AS INTEGER) AS label,
            CASE i % 10 WHEN 8 THEN 'val' WHEN 9 THEN 'test' ELSE 'train' END AS split FROM range({rows}) AS t(i)"""
        )


def weigh(load: Callable[[], Any], rows: int) -> Samples:
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak that imports made
    before = memory("VmRSS")
    started, busy = time.perf_counter(), time.process_time()
    kept = load()
    sample = {"seconds": time.perf_counter() - started, "CPU s": time.process_time() - busy}
    if len(kept) != rows:
        raise RuntimeError(f"{len(kept)} rows instead of {rows}")
    yield sample | {"MB": (memory("VmRSS") - before) / 1e6, "peak MB": (memory("VmHWM") - before) / 1e6}


def memory(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def with_feedline(kind: str, rows: int) -> Samples:
    from feedline.sources import SQLDataset

    with database(kind, rows) as url:
        SQLDataset(url, QUERY + " LIMIT 10")  # drivers imported
        yield from weigh(lambda: SQLDataset(url, QUERY), rows)


def with_fetchall(kind: str, rows: int) -> Samples:
    with database(kind, rows) as url:
        yield from weigh(FETCHALL[kind](url), rows)


def by_sqlite(url: str) -> Callable[[], Any]:
    return lambda: sqlite3.connect(url.partition(":///")[2]).execute(QUERY).fetchall()


def by_duckdb(url: str) -> Callable[[], Any]:
    import duckdb

    return lambda: duckdb.connect(url.partition(":///")[2], read_only=True).execute(QUERY).fetchall()


def by_psycopg(url: str) -> Callable[[], Any]:
    import psycopg

    return lambda: psycopg.connect(url).execute(QUERY).fetchall()


def by_pymysql(url: str) -> Callable[[], Any]:
    import pymysql

    def fetched() -> Any:
        cursor = pymysql.connect(port=urlsplit(url).port or 0, user="owner", database="shop").cursor()
        cursor.execute(QUERY)
        return cursor.fetchall()

    return fetched


FETCHALL = {"sqlite": by_sqlite, "duckdb": by_duckdb, "postgresql": by_psycopg, "mysql": by_pymysql}
MOST = {"MB": 700}
WORKLOAD = Workload(
    name="sql",
    metrics={"seconds": "less", "CPU s": "less", "MB": "less", "peak MB": "less"},
    cases=[
        Case("sqlite, 1 million rows", {"kind": "sqlite", "rows": 10**6}, targets={"fetchall": 5}),
        Case("postgresql, 1 million rows", {"kind": "postgresql", "rows": 10**6}, in_quick=False),
        Case("mysql (MariaDB), 1 million rows", {"kind": "mysql", "rows": 10**6}, in_quick=False),
        Case("sqlite, 10 million rows", {"kind": "sqlite", "rows": 10**7}, {"fetchall": 5}, MOST, in_quick=False),
        Case("duckdb, 10 million rows", {"kind": "duckdb", "rows": 10**7}, {"fetchall": 5}, MOST, in_quick=False),
    ],
    sides={"feedline": with_feedline, "fetchall": with_fetchall},
    fresh=True,
    repeats=3,
    quick_repeats=2,
)

if __name__ == "__main__":
    serve(WORKLOAD)
