"""Parquet files: rows shuffled by row group, filtered, and streamed by two workers.

    python examples/parquet.py

Trains a classifier from files of several row groups, and shows how many row groups are decoded in which order.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

from feedline.sources import ParquetDataset, ParquetStream
from feedline.torch import BlockSampler, DataLoader

FILES, ROWS, PER_GROUP, CLASSES = 4, 2_000, 250, 4


def write_files(folder: Path) -> None:
    random = np.random.default_rng(0)
    centres = random.normal(0, 2, (CLASSES, 16))
    for number in range(FILES):
        labels = random.integers(0, CLASSES, ROWS)
        features = (centres[labels] + random.normal(0, 1, (ROWS, 16))).astype(np.float32)
        table = pa.table(
            {
                "features": pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), 16),
                "label": labels,
                "split": np.where(random.random(ROWS) < 0.8, "train", "test"),
            }
        )
        pq.write_table(table, folder / f"part-{number}.parquet", row_group_size=PER_GROUP)


def train(data: ParquetDataset) -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Linear(16, CLASSES)
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    # Eight row groups at a time: each is decoded once an epoch. Threads share what is decoded.
    sampler = BlockSampler(data.block_sizes, window=8)
    with DataLoader(data, batch_size=128, sampler=sampler, num_workers=2, workers="thread") as loader:
        for _ in range(2):
            for batch in loader:
                optimizer.zero_grad()
                torch.nn.functional.cross_entropy(model(batch["features"]), batch["label"]).backward()
                optimizer.step()
    return model


def accuracy(model: torch.nn.Module, stream: ParquetStream) -> tuple[float, int]:
    right = seen = 0
    with DataLoader(stream, batch_size=128, num_workers=2) as loader:
        for batch in loader:
            right += int((model(batch["features"]).argmax(1) == batch["label"]).sum())
            seen += len(batch["label"])
    return right / seen, seen


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        write_files(Path(scratch))
        files = f"{scratch}/part-{{0..{FILES - 1}}}.parquet"
        columns = ["features", "label"]
        data = ParquetDataset(files, columns, filters=[("split", "=", "train")])
        held_out = ParquetStream(files, columns, filters=[("split", "=", "test")])
        print(f"{len(data)} rows to train on, in {len(data.block_sizes)} row groups; {data.describe(0)}")
        model = train(data)
        right, seen = accuracy(model, held_out)
        print(f"accuracy on {seen} others, streamed by 2 workers: {right:.0%}")
        whole = len(data) + seen == FILES * ROWS
        print(f"each row is in one of the two: {'yes' if whole else 'NO'}")
    return 0 if whole and right > 0.9 else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
