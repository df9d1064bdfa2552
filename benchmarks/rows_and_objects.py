"""Rows of PostgreSQL, each with a 20 kB object of a bucket that takes 20 ms to answer: samples a second, and CPU.

The peer does what a careful user writes by hand: rows by `fetchall()` of psycopg, and a `__getitems__` for torch's
loader, in which 64 threads of each worker ask boto3 for the objects of a batch. "CPU ms" is that of the process and its
workers for one sample, without that of the servers.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from harness import AT_LEAST, Case, Samples, Workload, serve
from object_store import BATCH, KEYS, LENGTH, NAMES, bucket

QUERY = "SELECT id, name AS image, label FROM samples ORDER BY id"


@contextmanager
def servers() -> Iterator[tuple[str, str]]:
    """A real PostgreSQL with a row for each object, and the bucket; their URLs."""
    import psycopg

    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    from sources.postgres import running

    tempfile.tempdir = "/tmp"  # a server must reach its files as another user
    with running() as postgres, bucket() as endpoint:
        with psycopg.connect(postgres.owner, autocommit=True) as db:
            db.execute("CREATE TABLE samples (id int PRIMARY KEY, name text, label smallint)")
            db.cursor().executemany(
                "INSERT INTO samples VALUES (%s, %s, %s)", [(at, name, at % 10) for at, name in enumerate(NAMES)]
            )
        yield postgres.owner, endpoint


class ByHand:
    """What people write for torch's loader."""

    def __init__(self, database: str, endpoint: str) -> None:
        import psycopg

        with psycopg.connect(database) as db:
            self.rows = db.execute(QUERY).fetchall()
        self.endpoint = endpoint
        self.client: Any = None
        self.threads: Any = None

    def __len__(self) -> int:
        return len(self.rows)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        if self.client is None:  # in the worker: neither is to be shared with another process
            from concurrent.futures import ThreadPoolExecutor

            import boto3
            from botocore.config import Config

            named = {f"aws_{key}": value for key, value in KEYS.items()}
            config = Config(max_pool_connections=BATCH)
            self.client = boto3.client(
                "s3", endpoint_url=self.endpoint, region_name="us-east-1", config=config, **named
            )
            self.threads = ThreadPoolExecutor(BATCH)
        rows = [self.rows[index] for index in indices]
        bodies = self.threads.map(self.read, [name for _, name, _ in rows])
        return [
            {"id": number, "image": np.frombuffer(bytearray(body), np.uint8), "label": label}
            for (number, _, label), body in zip(rows, bodies, strict=True)
        ]

    def read(self, name: str) -> bytes:
        return self.client.get_object(Bucket="bucket", Key=name)["Body"].read()


def measured(loader: Any) -> Samples:
    """Whole epochs, after one that nobody counts."""
    import psutil

    here = psutil.Process()
    before = {child.pid for child in here.children(recursive=True)}  # the servers
    run(loader)

    def busy() -> float:
        workers = [child for child in here.children(recursive=True) if child.pid not in before]
        return sum(sum(each.cpu_times()[:2]) for each in (here, *workers))

    while True:
        done, started, cpu = 0, time.perf_counter(), busy()
        while time.perf_counter() - started < 4 * AT_LEAST:  # the system counts CPU in hundredths of a second
            done += run(loader)
        yield {"samples/s": done / (time.perf_counter() - started), "CPU ms": 1000 * (busy() - cpu) / done}


def run(loader: Any) -> int:
    seen = sum(len(batch["id"]) for batch in loader)
    if seen != LENGTH:
        raise RuntimeError(f"an epoch gave {seen} samples instead of {LENGTH}")
    return seen


def options(workers: int) -> dict[str, Any]:
    return {"batch_size": BATCH, "shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}


def with_feedline(workers: int, cached: bool) -> Samples:
    from feedline import DataLoader
    from feedline.sources import CachedPlace, ObjectDataset, ObjectStore, SQLDataset

    with servers() as (database, endpoint), tempfile.TemporaryDirectory() as folder:
        place: Any = ObjectStore("s3://bucket", endpoint=endpoint, region="us-east-1", **KEYS)
        if cached:
            place = CachedPlace(place, folder, max_bytes=10**9)
        with DataLoader(ObjectDataset(place, SQLDataset(database, QUERY), key="image"), **options(workers)) as loader:
            yield from measured(loader)


def with_torch(workers: int, cached: bool) -> Samples:
    from torch.utils.data import DataLoader

    with servers() as (database, endpoint):
        yield from measured(DataLoader(ByHand(database, endpoint), **options(workers)))


NO_CACHE = {"torch by hand": "by hand there is no cache"}
WORKLOAD = Workload(
    name="rows_and_objects",
    metrics={"samples/s": "more", "CPU ms": "less"},
    cases=[
        Case("2 workers", {"workers": 2, "cached": False}, {"torch by hand": 1}),
        Case("2 workers, objects on a local disk", {"workers": 2, "cached": True}, skips=NO_CACHE, in_quick=False),
    ],
    sides={"feedline": with_feedline, "torch by hand": with_torch},
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
