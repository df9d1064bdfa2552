"""Parquet rows: shuffled by row group, and streamed; against torch's loader around pyarrow, written by hand.

The "torch" side is what people write: a map-style dataset that keeps the row groups it read last, in an order shuffled
by row group; and an IterableDataset that reads its share of the row groups with pyarrow and yields rows. There are 2
files, 20 row groups of 2,000 rows each: 64 floats and a label.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

FILES, GROUPS, PER_GROUP, WIDTH, BATCH = 2, 10, 2_000, 64, 128
ROWS = FILES * GROUPS * PER_GROUP


def files() -> list[str]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder = Path(tempfile.gettempdir()) / "feedline-bench-parquet"
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp())
        random = np.random.default_rng(0)
        for number in range(FILES):
            rows = GROUPS * PER_GROUP
            values = pa.array(random.random(rows * WIDTH, np.float32))
            table = pa.table({"x": pa.FixedSizeListArray.from_arrays(values, WIDTH), "y": random.integers(0, 9, rows)})
            pq.write_table(table, unfinished / f"{number}.parquet", row_group_size=PER_GROUP)
        os.rename(unfinished, folder)
    return [f"{folder}/{number}.parquet" for number in range(FILES)]


class Xs:
    """One field of batches that are dicts."""

    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return (batch["x"] for batch in self.loader)


def with_feedline(workers: int, streamed: bool, kind: str = "process") -> Samples:
    from feedline import BlockSampler, DataLoader
    from feedline.sources import ParquetDataset, ParquetStream

    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0, "workers": kind}
    if streamed:
        data: Any = ParquetStream(files())
    else:
        data = ParquetDataset(files())
        options["sampler"] = BlockSampler(data.block_sizes, window=4)
    with DataLoader(data, BATCH, **options) as loader:
        yield from epochs(Xs(loader), ROWS)


class ByHand:
    """Keeps the row groups it read last: as many as our window has."""

    def __init__(self) -> None:
        import pyarrow.parquet as pq

        self.files = [pq.ParquetFile(path) for path in files()]
        self.kept: dict[int, Any] = {}

    def __len__(self) -> int:
        return ROWS

    def __getitem__(self, index: int) -> dict[str, Any]:
        number, row = divmod(index, PER_GROUP)
        if number not in self.kept:
            while len(self.kept) >= 4:
                del self.kept[next(iter(self.kept))]
            table = self.files[number // GROUPS].read_row_group(number % GROUPS)
            x = table["x"].combine_chunks().flatten().to_numpy().reshape(-1, WIDTH)
            self.kept[number] = x, table["y"].to_numpy()
        x, y = self.kept[number]
        return {"x": x[row].copy(), "y": y[row]}


class Windows:
    """Shuffled as our BlockSampler does it."""

    def __len__(self) -> int:
        return ROWS

    def __iter__(self) -> Iterator[int]:
        random = np.random.default_rng()
        for groups in random.permutation(FILES * GROUPS).reshape(-1, 4):
            rows = (groups[:, None] * PER_GROUP + np.arange(PER_GROUP)).ravel()
            yield from random.permutation(rows).tolist()


def with_torch(workers: int, streamed: bool, kind: str = "process") -> Samples:
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Stream(IterableDataset[Any]):
        def __iter__(self) -> Iterator[dict[str, Any]]:
            import pyarrow.parquet as pq

            info = get_worker_info()
            index, count = (0, 1) if info is None else (info.id, info.num_workers)
            for number in range(index, FILES * GROUPS, count):
                file = pq.ParquetFile(files()[number // GROUPS])
                for batch in file.iter_batches(4096, row_groups=[number % GROUPS]):
                    x = batch["x"].flatten().to_numpy().reshape(-1, WIDTH)
                    for row, label in zip(x, batch["y"].to_numpy(), strict=True):
                        yield {"x": row.copy(), "y": label}

    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": workers > 0}
    if streamed:
        loader: Any = DataLoader(Stream(), BATCH, **options)
    else:
        loader = DataLoader(
            ByHand(), BATCH, sampler=Windows(), multiprocessing_context="fork" if workers else None, **options
        )
    yield from epochs(Xs(loader), ROWS)


WORKLOAD = Workload(
    name="parquet_rows",
    metrics={"samples/s": "more"},
    cases=[
        Case("shuffled rows, no workers", {"workers": 0, "streamed": False}, targets={"torch": 2}),
        Case("shuffled rows, 2 workers", {"workers": 2, "streamed": False}, targets={"torch": 2}),
        Case("shuffled rows, 2 threads", {"workers": 2, "streamed": False, "kind": "thread"}, in_quick=False),
        Case("streamed, no workers", {"workers": 0, "streamed": True}, targets={"torch": 1}),
        Case("streamed, 2 workers", {"workers": 2, "streamed": True}, targets={"torch": 1}),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
