"""Metadata in a database, files on disk: one query picks the samples, `load` reads each file where it is needed.

python examples/sql.py
"""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from feedline.sources import SQLDataset, SQLStream
from feedline.torch import DataLoader

CLASSES = 3


def make(folder: Path) -> str:
    """A database of 600 samples, and a file for each of them."""
    rng = np.random.default_rng(0)
    with sqlite3.connect(folder / "meta.db") as db:
        db.execute("CREATE TABLE samples (id INTEGER PRIMARY KEY, path TEXT, label INTEGER, split TEXT)")
        for number in range(600):
            label, path = number % CLASSES, folder / f"{number:04d}.npy"
            values = rng.normal(0, 1, 16).astype(np.float32)
            values[5 * label : 5 * label + 5] += 2
            np.save(path, values)
            split = "train" if number % 5 else "test"
            db.execute("INSERT INTO samples VALUES (?, ?, ?, ?)", (number, str(path), label, split))
    db.close()
    return f"sqlite:///{folder}/meta.db"


def load(row: dict[str, Any]) -> tuple[np.ndarray, int]:
    """What a row stands for. It runs in the workers."""
    return np.load(row["path"]), row["label"]


def train(loader: DataLoader, epochs: int = 5) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, CLASSES)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for values, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(values), labels).backward()
            optimizer.step()
    return model


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        url = make(Path(name))
        query = "SELECT id, path, label FROM samples WHERE split = ? ORDER BY id"
        data = SQLDataset(url, query, params=("train",), load=load)
        print(f"{len(data)} samples by one query, {data.nbytes / len(data):.0f} bytes each in memory")

        with DataLoader(data, batch_size=32, shuffle=True, num_workers=2, persistent_workers=True) as loader:
            model = train(loader)
        (values, labels) = next(iter(DataLoader(SQLDataset(url, query, ("test",), load=load), batch_size=1000)))
        with torch.no_grad():
            accuracy = (model(values).argmax(1) == labels).float().mean()
        print(f"accuracy on the test split above 0.9: {'yes' if accuracy > 0.9 else 'no'}")

        # The same rows as a stream: each once over all workers, a few at a time, and never all of them in memory.
        stream = SQLStream(url, "SELECT id, path, label FROM samples", key="id", chunk=100)
        with DataLoader(stream, batch_size=50, num_workers=2) as loader:
            ids = torch.cat([batch["id"] for batch in loader])
        print(f"streamed: {len(ids)} rows, each once: {'yes' if sorted(ids.tolist()) == list(range(600)) else 'no'}")


if __name__ == "__main__":
    main()
