"""LitData: its own chunks, by StreamingDataset and StreamingDataLoader. https://pypi.org/project/litdata/

Chunks of 16 MB, and of 4 MB for the pictures: its examples have 64 MB, but then one worker would have most of it.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.writer import BinaryWriter
from PIL import Image

from peers.measure import Batches, endless, seconds_to_go_on
from peers.workloads import NUMBERS, RESUME_BATCH, SIDE, bytes_of_pictures, converted, scaled, sharded


def _write(folder: str, samples: Any, chunk: str) -> None:
    # What `litdata.optimize` has each of its processes do; by hand, because it starts processes and takes a function.
    writer = BinaryWriter(folder, chunk_bytes=chunk)
    for number, sample in enumerate(samples):
        writer[number] = sample
    writer.done()
    writer.merge()


def _resized(sample: tuple[bytes, int]) -> tuple[np.ndarray, int]:
    with Image.open(io.BytesIO(sample[0])) as image:
        return scaled(np.asarray(image.convert("RGB").resize((SIDE, SIDE)))), sample[1]


def batches(workload: str) -> Batches:
    if workload == "shards":
        folder = converted("litdata-arrays", lambda path: _write(path, sharded(), "16MB"))
        data = StreamingDataset(folder, drop_last=True)
        return endless(StreamingDataLoader(data, batch_size=64, num_workers=2, persistent_workers=True))
    folder = converted("litdata-jpeg", lambda path: _write(path, bytes_of_pictures(), "4MB"))
    data = StreamingDataset(folder, shuffle=True, drop_last=True, transform=_resized)
    return endless(StreamingDataLoader(data, batch_size=32, num_workers=2, persistent_workers=True))


def resume() -> Iterator[float]:
    folder = converted("litdata-numbers", lambda path: _write(path, range(NUMBERS), "1MB"))
    return seconds_to_go_on(
        lambda: StreamingDataLoader(StreamingDataset(folder, shuffle=True), batch_size=RESUME_BATCH)
    )
