"""Two streams mixed in exact proportion, the proportion changed on the way, the run stopped and gone on with.

    python examples/mixed_streams.py

A small "code" set is repeated beside a large "web" set that is read once. After 2,000 samples code gets a larger share.
"""

from __future__ import annotations

import json
import sys
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from feedline.sources import ParquetStream
from feedline.torch import DataLoader, MixtureStream

BATCH, SAMPLES = 50, 4_000
WEIGHTS = {0: {"web": 0.9, "code": 0.1}, 2_000: {"web": 0.6, "code": 0.4}}


def write(folder: Path) -> dict[str, str]:
    """Files of two sources."""
    files = {"web": 8_000, "code": 300}
    for name, rows in files.items():
        table = pa.table({"number": range(rows), "length": [float(row % 97) for row in range(rows)]})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=1_000)
    return {name: f"{folder}/{name}.parquet" for name in files}


def mixture(files: dict[str, str]) -> MixtureStream:
    sources = {name: ParquetStream(path) for name, path in files.items()}
    ends = {"web": "stop", "code": "repeat"}
    # share="batches": the same batches for any number of workers, which matters more here than reading each file once.
    return MixtureStream(sources, WEIGHTS, when_ended=ends, num_samples=SAMPLES, share="batches", with_source=True)


def shares(batches: list[Any]) -> list[float]:
    """The share of code, before and after the change."""
    sources = torch.cat([source for _, source in batches])
    return [sources[:2_000].float().mean().item(), sources[2_000:].float().mean().item()]


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        files = write(Path(scratch))
        with DataLoader(mixture(files), batch_size=BATCH) as loader:
            whole = list(loader)
            print(f"code is {shares(whole)[0]:.0%} of the first 2,000 samples and {shares(whole)[1]:.0%} of the rest")
            for name, counts in loader.stats().sources.items():
                print(f"{name}: {counts.samples} samples, its end reached {counts.passes} times")
        with DataLoader(mixture(files), batch_size=BATCH) as loader:
            first = list(islice(loader, 31))
            state = json.dumps(loader.state_dict())
        with DataLoader(mixture(files), batch_size=BATCH) as loader:  # as after a crash
            loader.load_state_dict(json.loads(state))
            rest = list(loader)
        same = all(
            torch.equal(one["number"], other["number"])
            for (one, _), (other, _) in zip(whole, first + rest, strict=True)
        )
        print(f"stopped and gone on with, the batches are the same: {'yes' if same else 'NO'}")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
