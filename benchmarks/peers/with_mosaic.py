"""Mosaic Streaming: MDS shards. https://docs.mosaicml.com/projects/streaming/en/stable/getting_started/quick_start.html

Local shards without compression, StreamingDataset told the batch size, its own StreamingDataLoader.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

# PyPI's torchvision is built for torch with CUDA; beside a torch for CPUs its operators are missing, and importing it
# fails. Streaming imports it and uses none of them: declared, they may stay missing.
operators = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    operators.define(f"{name}(Tensor missing) -> Tensor")

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402

from peers.measure import Batches, endless, seconds_to_go_on  # noqa: E402
from peers.workloads import (  # noqa: E402
    NUMBERS,
    RESUME_BATCH,
    SIDE,
    bytes_of_pictures,
    converted,
    scaled,
    sharded,
)


def _write_arrays(folder: str) -> None:
    with MDSWriter(out=folder, columns={"array": "ndarray:uint8:3,90,90", "label": "int"}) as out:
        for array, label in sharded():
            out.write({"array": array, "label": label})


def _write_pictures(folder: str) -> None:
    # Small shards, or the workers would share one.
    with MDSWriter(out=folder, columns={"image": "jpeg", "label": "int"}, size_limit=1 << 22) as out:
        for data, label in bytes_of_pictures():
            out.write({"image": data, "label": label})


def _write_numbers(folder: str) -> None:
    with MDSWriter(out=folder, columns={"number": "int"}) as out:
        for number in range(NUMBERS):
            out.write({"number": number})


class Resized(StreamingDataset):
    """Decoded by Streaming (with Pillow), resized as `Pictures` does."""

    def __getitem__(self, at: int) -> Any:
        found = super().__getitem__(at)
        return scaled(np.asarray(found["image"].convert("RGB").resize((SIDE, SIDE)))), found["label"]


def batches(workload: str) -> Batches:
    data: StreamingDataset
    batch = 64 if workload == "shards" else 32
    if workload == "shards":
        data = StreamingDataset(local=converted("mds-arrays", _write_arrays), batch_size=batch)
    else:
        data = Resized(local=converted("mds-jpeg", _write_pictures), batch_size=batch, shuffle=True)
    loader = StreamingDataLoader(data, batch_size=batch, num_workers=2, persistent_workers=True, drop_last=True)
    return endless(loader)


def resume() -> Iterator[float]:
    folder = Path(converted("mds-numbers", _write_numbers))

    def make() -> StreamingDataLoader:
        link = folder.with_name(f"mds-{uuid.uuid4()}")  # two datasets of a process may not have the same folder
        link.symlink_to(folder)
        data = StreamingDataset(local=str(link), batch_size=RESUME_BATCH, shuffle=True)
        return StreamingDataLoader(data, batch_size=RESUME_BATCH)

    return seconds_to_go_on(make)
