"""One of two processes of a JAX job: prints what its loaders gave. Run by test_jax_ranks."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from feedline import DataLoader, DistributedSampler, IterableDataset
from feedline.machine.this_rank import ranks


class Whole(IterableDataset[int]):
    """Knows nothing of ranks."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(21))


class Strided(IterableDataset[int]):
    """Shares itself out over JAX's processes."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(jax.process_index(), 21, jax.process_count()))


class Computing(IterableDataset[int]):
    """Knows nothing of ranks, but lets JAX compute, which asks itself for them."""

    def __iter__(self) -> Iterator[int]:
        return iter(jax.device_put(np.arange(20), jax.local_devices()[0]).tolist())


def elements(dataset: Any, **options: Any) -> tuple[list[int], list[str]]:
    """What a loader gives this rank, and what is said."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", message="the IterableDataset neither asks")
        with DataLoader(dataset, batch_size=2, **options) as loader:
            got = [number for batch in loader for number in batch.tolist()]
    return got, [str(each.message) for each in told]


def main(rank: int, port: str) -> None:
    before = ranks(None, None, alone=True)  # had this looked for devices, JAX would refuse the next line
    jax.distributed.initialize(f"127.0.0.1:{port}", 2, rank, coordinator_bind_address=f"127.0.0.1:{port}")
    shared = {"ranks": "shard", "uneven": "exact"}
    report = {
        "before": before,
        "shared": elements(Whole(), **shared),
        "shared, with workers": elements(Whole(), **shared, num_workers=2, workers="thread"),
        "read by all": elements(Whole()),
        "meant": elements(Whole(), ranks="all"),
        "strided": elements(Strided()),
        "strided, shared": elements(Strided(), **shared),
        "computing": elements(Computing()),
        "computing, shared": elements(Computing(), **shared),
        "sampler": list(DistributedSampler(range(20), shuffle=False)),
    }
    jax.distributed.shutdown()
    report["after"] = ranks(None, None, alone=True)
    print(json.dumps(report))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
