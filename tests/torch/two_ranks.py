"""One of two ranks of a training job: prints what its loaders gave. Run by test_torch_ranks."""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.utils.data as torchs

import feedline.torch as ours


class Strided(torchs.IterableDataset[int]):
    """Shards itself over ranks and workers, as one has to with torch."""

    def __iter__(self) -> Any:
        info = torchs.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(dist.get_rank() * workers + worker, 21, dist.get_world_size() * workers))


def epochs(library: Any, workers: int) -> list[Any]:
    dataset = torchs.TensorDataset(torch.arange(21))
    sampler = torchs.DistributedSampler(dataset, seed=5)
    loader = library.DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=workers)
    found = []
    for epoch in (0, 1, 1):
        sampler.set_epoch(epoch)
        found.append([batch.tolist() for (batch,) in loader])
    return found


def summed(workers: int) -> list[int]:
    """Both ranks in step: a collective operation for every batch."""
    sums = []
    for (batch,) in ours.DataLoader(torchs.TensorDataset(torch.arange(21)), batch_size=7, num_workers=workers):
        total = batch.sum()
        dist.all_reduce(total)
        sums.append(int(total))
    return sums


if __name__ == "__main__":
    dist.init_process_group("gloo", init_method=sys.argv[2], rank=int(sys.argv[1]), world_size=2)
    report = {
        "torch": epochs(torchs, 0),
        "ours": epochs(ours, 0),
        "ours with workers": epochs(ours, 2),
        "stream": [
            int(value) for batch in ours.DataLoader(Strided(), batch_size=3, num_workers=2) for value in batch.tolist()
        ],
        "summed": summed(1),
    }
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(report))
