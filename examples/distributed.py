"""Two ranks, each with its own part of the data: DistributedSampler, set_epoch, gradients averaged over gloo.

    python examples/distributed.py          # starts both ranks itself; with torchrun, call rank_main in each

Shows that the ranks saw different samples, together all of them, in another order each epoch, and end with one model.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
import torch._dynamo  # see rank_main
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

from feedline.torch import DataLoader, Dataset, DistributedSampler

RANKS, SAMPLES, EPOCHS = 2, 240, 3


class Line(Dataset):
    """Points on a line: the target is 3 x - 1. The index comes along, to see who got what."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x = torch.tensor([index / SAMPLES])
        return x, 3 * x - 1, index


def train(rank: int) -> tuple[list[list[int]], list[float]]:
    """This rank's indices, one list per epoch, and the parameters it ends with."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Line()
    sampler = DistributedSampler(data, RANKS, rank, shuffle=True, seed=5)
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2)
    seen = []
    with DataLoader(data, 12, sampler=sampler, num_workers=1, persistent_workers=True) as loader:
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)  # without it every epoch has the first one's order
            seen.append([])
            for x, y, indices in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()  # averages the gradients over the ranks
                optimizer.step()
                seen[-1] += indices.tolist()
    return seen, torch.cat([weight.detach().flatten() for weight in model.parameters()]).tolist()


def rank_main(rank: int, meeting: str) -> None:
    """One rank. torch's optimizers import torch._dynamo; where that happens after init_process_group, gloo's threads
    outlive destroy_process_group and may abort the process at its very end (torch 2.13). So it is imported first."""
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=RANKS)
    told: list = [None] * RANKS
    dist.all_gather_object(told, train(rank))
    if rank == 0:
        judge(*zip(*told, strict=True))
    dist.destroy_process_group()


def judge(seen: tuple, weights: tuple) -> None:
    for epoch in range(EPOCHS):
        first, second = seen[0][epoch], seen[1][epoch]
        print(f"epoch {epoch}: rank 0 saw {first[:5]} …, rank 1 saw {second[:5]} …")
        check(not set(first) & set(second), "the ranks saw different samples")
        check(set(first) | set(second) == set(range(SAMPLES)), f"together all {SAMPLES}")
    check(seen[0][0] != seen[0][1], "another order each epoch")
    check(weights[0] == weights[1], f"both ranks have the same model: {[round(w, 2) for w in weights[0]]}")


def check(true: bool, what: str) -> None:
    if not true:
        raise SystemExit(f"NOT TRUE: {what}")
    print(f"  {what}")


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        # Raises if a rank fails. Forked, because nothing has been computed here; where a GPU has been used: "spawn".
        mp.start_processes(rank_main, (str(Path(folder, "meeting")),), RANKS, start_method="fork")
    return 0


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
