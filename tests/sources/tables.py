"""Tables for tests of Parquet and Arrow files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROWS = 23


def table(start: int = 0, stop: int = ROWS) -> pa.Table:
    numbers = range(start, stop)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int32()),
            "half": pa.array([number / 2 for number in numbers], pa.float32()),
            "even": [number % 2 == 0 for number in numbers],
            "text": [f"text {number}" for number in numbers],
            "data": [bytes([number]) for number in numbers],
            "pair": pa.FixedSizeListArray.from_arrays(pa.array(np.arange(2 * start, 2 * stop)), 2),
            "tokens": [list(range(number % 4)) for number in numbers],
            "maybe": [None if number % 3 == 0 else number for number in numbers],
        }
    )


def sample(number: int) -> dict[str, Any]:
    """What a row of it is as a sample."""
    return {
        "id": np.int32(number),
        "half": np.float32(number / 2),
        "even": np.bool_(number % 2 == 0),
        "text": f"text {number}",
        "data": bytes([number]),
        "pair": np.array([2 * number, 2 * number + 1]),
        "tokens": np.arange(number % 4),
        "maybe": None if number % 3 == 0 else np.int64(number),
    }


def write(folder: Path, sizes: tuple[int, ...] = (10, 13), rows: int = 4) -> list[Path]:
    """Files of so many rows, in row groups of four."""
    paths, start = [], 0
    for number, size in enumerate(sizes):
        paths.append(folder / f"{number}.parquet")
        pq.write_table(table(start, start + size), paths[-1], row_group_size=rows)
        start += size
    return paths
