"""Two streams of Parquet rows, mixed; against torch's loader around a mixture written by hand.

The "torch" side is what people write: an IterableDataset that reads both by pyarrow, its share of the row groups each,
and draws for each sample which one is next. Its shares are right on average only, and it has no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve
from parquet_rows import BATCH, GROUPS, PER_GROUP, WIDTH, Xs, files

TAKEN = 24_064
"""Of each epoch: it ends before the larger source does, and is whole batches."""


def with_feedline(workers: int) -> Samples:
    from feedline import DataLoader, MixtureStream
    from feedline.sources import ParquetStream

    large, small = (ParquetStream(path) for path in files())
    stream = MixtureStream({"large": large, "small": small}, {"large": 3, "small": 1}, num_samples=TAKEN)
    with DataLoader(stream, BATCH, num_workers=workers, persistent_workers=workers > 0) as loader:
        yield from epochs(Xs(loader), TAKEN)


def with_torch(workers: int) -> Samples:
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    def rows(path: str, index: int, count: int) -> Iterator[dict[str, Any]]:
        import pyarrow.parquet as pq

        file = pq.ParquetFile(path)
        for group in range(index, GROUPS, count):
            for batch in file.iter_batches(4096, row_groups=[group]):
                x = batch["x"].flatten().to_numpy().reshape(-1, WIDTH)
                for row, label in zip(x, batch["y"].to_numpy(), strict=True):
                    yield {"x": row.copy(), "y": label}

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            info = get_worker_info()
            index, count = (0, 1) if info is None else (info.id, info.num_workers)
            sources = [cycle(rows(path, index, count)) for path in files()]
            random = np.random.default_rng(index)
            mixed = (next(sources[random.choice(2, p=[0.75, 0.25])]) for _ in range(TAKEN // count))
            yield from islice(mixed, GROUPS * PER_GROUP * 2)

    loader = DataLoader(Stream(), BATCH, num_workers=workers, persistent_workers=workers > 0)
    yield from epochs(Xs(loader), TAKEN)


WORKLOAD = Workload(
    name="mixed_streams",
    metrics={"samples/s": "more"},
    cases=[
        Case("no workers", {"workers": 0}, targets={"torch": 1}),
        Case("2 workers", {"workers": 2}, targets={"torch": 1}),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
