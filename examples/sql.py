"""Rows in a database, objects in a bucket: one query says which there are, and a batch's objects are fetched at once.

python examples/sql.py                                          # a stand-in: SQLite, and a folder for the bucket
python examples/sql.py postgresql://me:secret@host/db s3://my-bucket/train     # or mysql://…, with credentials in AWS_…

The table is samples (id, name, label, split); `name` is the object's name, and an object a vector of 16 numbers (.npy).
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

from feedline.sources import CachedPlace, Decoders, ObjectDataset, SQLDataset, SQLStream
from feedline.torch import DataLoader

CLASSES = 3


def stand_in(folder: Path) -> tuple[str, str]:
    """The URL of a database of 300 samples, and a folder with an object for each of them."""
    rng = np.random.default_rng(0)
    with sqlite3.connect(folder / "meta.db") as db:
        db.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, name TEXT, label INTEGER, split TEXT)")
        for number in range(300):
            label, name = number % CLASSES, f"{number:04d}.npy"
            values = rng.normal(0, 1, 16).astype(np.float32)
            values[5 * label : 5 * label + 5] += 2
            np.save(folder / name, values)
            db.execute(
                "INSERT INTO samples VALUES (?, ?, ?, ?)", (number, name, label, "train" if number % 5 else "test")
            )
    db.close()
    return f"sqlite:///{folder}/meta.db", str(folder)


def samples(database: str, place: CachedPlace, split: str) -> ObjectDataset:
    """Rows as compact columns; each with its object, decoded, instead of the object's name."""
    value = {"postgresql": "$1", "mysql": "%s"}.get(database.partition(":")[0], "?")  # each driver's placeholder
    query = f"SELECT id, name AS vector, label FROM samples WHERE split = {value} ORDER BY id"
    rows = SQLDataset(database, query, params=(split,))
    return ObjectDataset(place, rows, key="vector", decode=Decoders())


def train(loader: DataLoader, epochs: int = 5) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(batch["vector"]), batch["label"].long()).backward()
            optimizer.step()
    return model


def goes_on(data: ObjectDataset) -> bool:
    """Stopped in an epoch, and continued with other workers: is each sample in one of the two, once?"""
    with DataLoader(data, batch_size=32, shuffle=True, num_workers=2) as loader:
        batches = iter(loader)
        ids = [next(batches)["id"] for _ in range(3)]
        state = loader.state_dict()
    with DataLoader(data, batch_size=32, shuffle=True) as loader:
        loader.load_state_dict(state)
        ids += [batch["id"] for batch in loader]
    return sorted(torch.cat(ids).tolist()) == sorted(data.rows.table["id"].to_pylist())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as cache:
        database, bucket = sys.argv[1:] or stand_in(Path(folder))
        place = CachedPlace(bucket, cache, max_bytes=10**9)  # in a second epoch, objects come from this disk
        data = samples(database, place, "train")
        print(f"{len(data)} samples by one query, {data.rows.nbytes / len(data):.0f} bytes each in memory")

        with DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True) as loader:
            model = train(loader)
        (test,) = DataLoader(samples(database, place, "test"), batch_size=1000)
        with torch.no_grad():
            accuracy = (model(test["vector"]).argmax(1) == test["label"]).float().mean()
        print(f"accuracy on the test split above 0.9: {'yes' if accuracy > 0.9 else 'no'}")
        print(f"stopped and continued, each sample once: {'yes' if goes_on(data) else 'no'}")

        # The rows alone as a stream: each once over all workers, a few at a time, and never all of them in memory.
        stream = SQLStream(database, "SELECT id, label FROM samples", key="id", chunk=100)
        with DataLoader(stream, batch_size=50, num_workers=2) as loader:
            ids = torch.cat([batch["id"] for batch in loader]).tolist()
        print(f"streamed: {len(ids)} rows, each once: {'yes' if len(set(ids)) == len(ids) else 'no'}")


if __name__ == "__main__":
    main()
