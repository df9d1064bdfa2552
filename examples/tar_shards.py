"""Tar shards in WebDataset's layout: written, read by number and as a stream, and shared out over two ranks.

    python examples/tar_shards.py

Trains a classifier from shards twice: shuffled over all of them by their index, and streamed with a shuffle buffer.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch

from feedline.sources import TarDataset, TarStream, TarWriter
from feedline.torch import DataLoader

SAMPLES, CLASSES, PER_SHARD = 1_000, 4, 150


def write_shards(folder: Path) -> int:
    random = np.random.default_rng(0)
    centres = random.normal(0, 2, (CLASSES, 16))
    with TarWriter(folder / "train-%04d.tar", max_count=PER_SHARD) as writer:
        for number in range(SAMPLES):
            label = number * CLASSES // SAMPLES  # sorted by class: the worst case for a small buffer
            features = (centres[label] + random.normal(0, 1, 16)).astype(np.float32)
            writer.write({"__key__": f"{number:06}", "npy": features, "cls": label})
    return len(writer.shards)


def accuracy(loader: Iterable[dict[str, torch.Tensor]], epochs: int = 2) -> float:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(epochs):
        right = 0
        for batch in loader:
            scores = model(batch["npy"])
            right += int((scores.argmax(1) == batch["cls"]).sum())
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(scores, batch["cls"]).backward()
            optimizer.step()
    return right / SAMPLES


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        shards = write_shards(Path(scratch))
        pattern = f"{scratch}/train-{{0000..{shards - 1:04}}}.tar"
        print(f"{SAMPLES} samples in {shards} shards, {pattern.rpartition('/')[2]}")

        # By number: the index beside each shard makes a true shuffle possible.
        with DataLoader(TarDataset(pattern), batch_size=64, shuffle=True, num_workers=2) as loader:
            shuffled = accuracy(loader)
        # From front to back: shards in another order each epoch, samples mixed in a buffer.
        stream = TarStream(pattern, shuffle=True)
        with DataLoader(stream, batch_size=64, shuffle_buffer=500, num_workers=2) as loader:
            streamed = accuracy(loader)
        print(f"accuracy in the second epoch: {shuffled:.0%} shuffled, {streamed:.0%} streamed")

        keys: list[str] = []
        for rank in range(2):  # under torchrun each process finds its own
            share = TarStream(pattern, ["cls"], num_replicas=2, rank=rank)
            with DataLoader(share, batch_size=64, num_workers=2) as loader:
                mine = [key for batch in loader for key in batch["__key__"]]
            print(f"rank {rank}: {len(mine)} samples by 2 workers")
            keys += mine
        once = sorted(keys) == [f"{number:06}" for number in range(SAMPLES)]
        print(f"each sample once over 2 ranks of 2 workers: {'yes' if once else 'NO'}")
    return 0 if once and min(shuffled, streamed) > 0.9 else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
