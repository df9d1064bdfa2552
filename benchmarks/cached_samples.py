"""Decoded samples kept after first use: an epoch read from the cache, beside one whose samples are in memory.

Images of 3×64×64 bytes (12 kB) and of 3×224×224 (150 kB), each with a label. "list" is the same samples in a Python
list, in the same loader: what keeping them in memory is at best. "torch" is what people write: a dict in the dataset,
filled on first use, which every worker has for itself. "array" is one array of all images: no cache can have that.
"""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

COUNT, BATCH = 1_024, 64


class Decoding:
    """Stands for a decoder: what it costs is not measured."""

    def __init__(self, side: int) -> None:
        self.side = side

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full((3, self.side, self.side), index % 251, np.uint8), index


class Xs:
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Any:
        return (x for x, _ in self.loader)


def _epochs(data: Any, workers: int) -> Samples:
    from feedline import DataLoader

    options: dict[str, Any] = {"shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}
    with DataLoader(data, BATCH, **options) as loader:
        yield from epochs(Xs(loader), COUNT)


def in_folder(side: int, workers: int) -> Samples:
    from feedline import cached

    with tempfile.TemporaryDirectory() as folder:
        yield from _epochs(cached(Decoding(side), folder), workers)


def in_list(side: int, workers: int) -> Samples:
    yield from _epochs(list(map(Decoding(side).__getitem__, range(COUNT))), workers)


def in_array(side: int, workers: int) -> Samples:
    from feedline import ArrayDataset

    rows = np.stack([Decoding(side)[number][0] for number in range(COUNT)])
    yield from _epochs(ArrayDataset(rows, np.arange(COUNT)), workers)


class ByHand(Decoding):
    def __init__(self, side: int) -> None:
        super().__init__(side)
        self.kept: dict[int, Any] = {}

    def __getitem__(self, index: int) -> Any:
        if index not in self.kept:
            self.kept[index] = super().__getitem__(index)
        return self.kept[index]


def with_torch(side: int, workers: int) -> Samples:
    from torch.utils.data import DataLoader

    loader = DataLoader(ByHand(side), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    yield from epochs(Xs(loader), COUNT)


WORKLOAD = Workload(
    name="cached_samples",
    metrics={"samples/s": "more"},
    cases=[
        Case(
            f"{side}×{side}, {workers or 'no'} workers",
            {"side": side, "workers": workers},
            targets={"list": 0.8, "torch": 1},
        )
        for side in (64, 224)
        for workers in (0, 2)
    ],
    sides={"feedline": in_folder, "list": in_list, "array": in_array, "torch": with_torch},
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
