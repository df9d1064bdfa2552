"""Training from a bucket: every batch is fetched by many requests at once, and a second epoch comes from the disk.

Here the "bucket" is a web server on this machine, so that the example runs anywhere. For a real one give its URL:

    store = ObjectStore("s3://my-bucket/train", region="eu-west-1")   # credentials from the environment
    data = ObjectDataset(CachedPlace(store, "/scratch/cache", max_bytes=200 * 10**9), labels=…, decode=…)
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch

from feedline.sources import CachedPlace, ObjectDataset, ObjectStore
from feedline.torch import DataLoader

COUNT, FEATURES = 200, 8


def fill(folder: Path) -> list[str]:
    """Objects to train on: vectors, whose sum being positive or not is to be learned."""
    names = []
    for number, vector in enumerate(np.random.default_rng(0).normal(size=(COUNT, FEATURES)).astype(np.float32)):
        names.append(f"{'positive' if vector.sum() > 0 else 'negative'}-{number:04}.npy")
        np.save(folder / names[-1], vector)
    return names


@contextmanager
def web_server(folder: Path) -> Iterator[str]:
    """Its address."""
    command = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", str(folder)]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert server.stdout is not None
    port = re.search(r"port (\d+)", server.stdout.readline())
    assert port is not None
    try:
        yield f"http://127.0.0.1:{port[1]}"
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


def decode(data: bytes, name: str) -> np.ndarray:
    return np.load(io.BytesIO(data), allow_pickle=False)


def label(name: str) -> float:
    return float(name.startswith("positive"))


def epoch(loader: DataLoader, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> float:
    """Train for an epoch; the share of right answers in it."""
    right = 0
    for vectors, labels in loader:
        answers = model(vectors).squeeze(1)
        loss = torch.nn.functional.binary_cross_entropy_with_logits(answers, labels.float())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        right += int(((answers > 0) == (labels > 0.5)).sum())
    return right / COUNT


def main() -> int:
    torch.manual_seed(0)
    model = torch.nn.Linear(FEATURES, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    with tempfile.TemporaryDirectory() as bucket, tempfile.TemporaryDirectory() as cache:
        names = fill(Path(bucket))
        with web_server(Path(bucket)) as url:
            store = ObjectStore(url, concurrency=4)  # so small a server has no room for more
            data = ObjectDataset(
                CachedPlace(store, cache, max_bytes=10_000_000), names, labels=label, decode=decode
            )  # of a real bucket, the names would be listed
            loader = DataLoader(data, batch_size=50, shuffle=True, num_workers=2, persistent_workers=True)
            first = epoch(loader, model, optimizer)
        # The server is gone.
        last = [epoch(loader, model, optimizer) for _ in range(4)][-1]
        loader.close()
        store.close()
    print(f"right in the first epoch {first:.0%}, in the last {last:.0%}")
    print(f"the last four epochs needed no server: {'yes' if last > 0.9 else 'no'}")
    return 0 if last > 0.9 else 1


if __name__ == "__main__":
    sys.exit(main())
