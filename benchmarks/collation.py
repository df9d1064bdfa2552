"""Sequences of log-normal lengths, padded or packed: how fast, and how much of a batch is nothing.

torch's side pads by hand, as people do: `pad_sequence`, a mask and the lengths in a collate_fn.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.utils.data
from torch.nn.utils.rnn import pad_sequence

from harness import AT_LEAST, Case, Samples, Workload, serve

ROW = 2048
MEDIAN, SPREAD = 245, 0.8


def lengths(count: int, seed: int = 0) -> Any:
    """Of documents: most are short, some very long, none longer than a row."""
    drawn = np.random.default_rng(seed).lognormal(np.log(MEDIAN), SPREAD, count)
    return np.clip(drawn, 1, ROW).astype(np.int64)


class Documents(torch.utils.data.Dataset[torch.Tensor]):
    """Tokens that cost nothing to read."""

    def __init__(self, count: int) -> None:
        self.lengths = lengths(count).tolist()
        self.tokens = torch.arange(1, ROW + 1)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return self.tokens[: self.lengths[index]]


def pad_by_hand(documents: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    data = pad_sequence(documents, batch_first=True)
    sizes = torch.tensor([len(document) for document in documents])
    return data, torch.arange(data.shape[1]) < sizes[:, None], sizes


def options(batch: int, workers: int) -> dict[str, Any]:
    kept: dict[str, Any] = {"num_workers": workers, "persistent_workers": True} if workers else {}
    return {"dataset": Documents(batch * 40), "batch_size": batch, "shuffle": True, **kept}


def epochs(loader: Any, count: int, waste: Callable[[], float]) -> Samples:
    for _ in loader:
        pass
    while True:
        done, started, elapsed = 0, time.perf_counter(), 0.0
        while elapsed < AT_LEAST:
            for _ in loader:
                pass
            done += count
            elapsed = time.perf_counter() - started
        yield {"samples/s": done / elapsed, "waste %": 100 * waste()}


def with_feedline(how: str, batch: int, workers: int) -> Samples:
    import warnings

    from feedline.torch import DataLoader
    from feedline.torch.collate import pack, pad

    warnings.simplefilter("ignore")  # it says that half of it is padding
    with DataLoader(collate=pack(ROW) if how == "pack" else pad(), **options(batch, workers)) as loader:

        def waste() -> float:
            stats = loader.stats().collate
            return 1 - stats.fill if stats.fill is not None else stats.padding or 0.0

        yield from epochs(loader, batch * 40, waste)


def with_torch(how: str, batch: int, workers: int) -> Samples:
    loader = torch.utils.data.DataLoader(collate_fn=pad_by_hand, **options(batch, workers))
    masks = [mask for _, mask, _ in loader]
    share = 1 - sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks)
    return epochs(loader, batch * 40, lambda: share)


WORKLOAD = Workload(
    name="collation",
    metrics={"samples/s": "more", "waste %": "less"},
    cases=[
        Case("pad 64 documents, 0 workers", {"how": "pad", "batch": 64, "workers": 0}, in_quick=False),
        Case("pad 64 documents, 2 workers", {"how": "pad", "batch": 64, "workers": 2}, in_quick=False),
        Case("pad 256 documents, 2 workers", {"how": "pad", "batch": 256, "workers": 2}),
        Case(
            "pack 256 documents (torch: pad), 2 workers",
            {"how": "pack", "batch": 256, "workers": 2},
            limits={"waste %": 3},
        ),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    torch_in_all=True,
    repeats=3,
    quick_repeats=1,
)

if __name__ == "__main__":
    serve(WORKLOAD)
