"""Tar shards of small arrays: feedline's reader against webdataset's own in torch's loader; streamed, and shuffled.

The "torch" side is `webdataset.WebDataset` with batches made in its workers, as its manual says. Both decode the same
shards: 4 of them with 1,000 samples of 24 kB (an array and a class).
"""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

SHARDS, PER_SHARD, BATCH, BUFFER = 4, 1_000, 64, 500


def shards() -> str:
    """Written by whichever side comes first, without torch and without either library: tarfile will do."""
    import io
    import tarfile

    folder = Path(tempfile.gettempdir()) / "feedline-bench-tar"
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp())
        random = np.random.default_rng(0)
        for shard in range(SHARDS):
            with tarfile.open(unfinished / f"a-{shard}.tar", "w") as tar:
                for number in range(PER_SHARD):
                    stream = io.BytesIO()
                    np.save(stream, random.integers(0, 255, (3, 90, 90), np.uint8))
                    for suffix, data in (("cls", str(number % 10).encode()), ("npy", stream.getvalue())):
                        info = tarfile.TarInfo(f"{shard}-{number:05}.{suffix}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
        os.rename(unfinished, folder)
    return f"{folder}/a-{{0..{SHARDS - 1}}}.tar"


class Arrays:
    """The arrays of batches that are dicts."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return (batch["npy"] for batch in self.loader)


def with_feedline(workers: int, shuffled: bool) -> Samples:
    from feedline import DataLoader
    from feedline.sources import TarDataset, TarStream

    options: dict[str, Any] = {"batch_size": BATCH, "num_workers": workers, "persistent_workers": workers > 0}
    data: Any = TarDataset(shards()) if shuffled else TarStream(shards())
    with DataLoader(data, shuffle=shuffled or None, **options) as loader:
        yield from epochs(Arrays(loader), SHARDS * PER_SHARD)


def with_torch(workers: int, shuffled: bool) -> Samples:
    import webdataset as wds

    warnings.simplefilter("ignore", ResourceWarning)
    data = wds.WebDataset(shards(), shardshuffle=SHARDS if shuffled else False)
    if shuffled:
        data = data.shuffle(BUFFER)
    data = data.decode().to_tuple("npy", "cls").batched(BATCH)
    loader = wds.WebLoader(data, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    yield from epochs(loader, SHARDS * PER_SHARD)


WORKLOAD = Workload(
    name="tar_shards",
    metrics={"samples/s": "more"},
    cases=[
        Case("streamed, no workers", {"workers": 0, "shuffled": False}, targets={"torch": 1}),
        Case("streamed, 2 workers", {"workers": 2, "shuffled": False}, targets={"torch": 1}),
        # Not the same thing: ours is a shuffle of everything, theirs one of shards and of a buffer.
        Case("shuffled, 2 workers", {"workers": 2, "shuffled": True}, targets={"torch": 1}),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
