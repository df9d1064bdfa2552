"""Ten million rows of (id, path, label, split) into memory: SQLDataset, and `cursor.fetchall()` of the usual driver.

Each in a new process. "MB" is what the process has grown by afterwards, "peak MB" the most it had meanwhile. "CPU s" is
the process's own time, which other programs on the machine disturb less than "seconds".
"""

from __future__ import annotations

import os
import sqlite3
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from harness import Case, Samples, Workload, serve

QUERY = "SELECT id, path, label, split FROM samples"
FOLDER = Path(os.environ.get("FEEDLINE_BENCH_SQL", tempfile.gettempdir()))
"""Where databases are kept from one measurement to the next: making the large one takes half a minute."""


def database(kind: str, rows: int) -> Path:
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

    url = f"{kind}:///{database(kind, rows)}"
    SQLDataset(url, QUERY + " LIMIT 10")  # drivers imported
    return weigh(lambda: SQLDataset(url, QUERY), rows)


def with_fetchall(kind: str, rows: int) -> Samples:
    path = str(database(kind, rows))
    if kind == "sqlite":
        return weigh(lambda: sqlite3.connect(path).execute(QUERY).fetchall(), rows)
    import duckdb

    return weigh(lambda: duckdb.connect(path, read_only=True).execute(QUERY).fetchall(), rows)


MOST = {"MB": 700}
WORKLOAD = Workload(
    name="sql",
    metrics={"seconds": "less", "CPU s": "less", "MB": "less", "peak MB": "less"},
    cases=[
        Case("sqlite, 1 million rows", {"kind": "sqlite", "rows": 10**6}, targets={"fetchall": 5}),
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
