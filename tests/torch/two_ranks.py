"""One of two ranks of a training job: prints what its loaders gave. Run by test_torch_ranks."""

from __future__ import annotations

import json
import sys
import warnings
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


class Whole(torchs.IterableDataset[int]):
    """Knows nothing of ranks, nor of workers."""

    def __iter__(self) -> Any:
        return iter(range(21))


def shared(uneven: str, workers: int) -> tuple[list[int], list[int]]:
    """This rank's elements; and both ranks in step: a collective operation for every batch."""
    elements, sums = [], []
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the IterableDataset neither asks")
        for batch in ours.DataLoader(Whole(), batch_size=2, ranks="shard", uneven=uneven, **options):
            elements += batch.tolist()
            total = batch.sum()
            dist.all_reduce(total)
            sums.append(int(total))
    return elements, sums


def told(dataset: Any, workers: int) -> list[str]:
    """What is said of a stream that nobody shares out but perhaps itself."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(ours.DataLoader(dataset, batch_size=3, num_workers=workers))
    return [str(each.message) for each in caught if "there are 2 ranks" in str(each.message)]


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


def gradients(steps: int) -> list[list[float]]:
    """The averaged gradients of groups of global batches; 21 samples in batches of 5: the last has a single one."""
    torch.manual_seed(dist.get_rank() if dist.is_initialized() else 0)
    loader = ours.DataLoader(squares(), global_batch_size=5, shuffle=True)
    weight, found = torch.ones(1, requires_grad=True), []
    for micro in ours.accumulate(loader, steps) if steps > 1 else map(Alone, loader):
        x, y = micro.batch
        loss = ((weight * x - y) ** 2).mean()
        (loss / micro.divisor if steps > 1 else loss * loader.weight).backward()
        if micro.is_last:
            if dist.is_initialized():
                dist.all_reduce(weight.grad)
                weight.grad /= dist.get_world_size()
            found.append(weight.grad.tolist())
            weight.grad = None
    return found


class Alone:
    """A group of one batch."""

    is_last, divisor = True, 1.0

    def __init__(self, batch: Any) -> None:
        self.batch = batch


def squares() -> Any:
    return torchs.TensorDataset(torch.arange(21.0), torch.arange(21.0) ** 2)


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
        "padded": shared("pad", 0),
        "dropped": shared("drop", 2),
        "gradients": [gradients(1), gradients(2)],
        "told": [told(Whole(), 0), told(Whole(), 1)],
        "told of one that asks": [told(Strided(), 0), told(Strided(), 1)],
    }
    dist.barrier()
    dist.destroy_process_group()
    print(json.dumps(report))
