"""Two ranks under torchrun: each has its own part of a folder of samples, saves its place, and is started again.

    torchrun --standalone --nproc-per-node 2 examples/torchrun_ddp.py
    python examples/torchrun_ddp.py         # starts the two ranks itself, twice: stopped after 5 steps, and resumed

Every rank saves the same file: a place counts for all ranks. Shows that both runs together saw each sample once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch._dynamo  # before init_process_group: see distributed.py
import torch.distributed as dist
from torch import nn

from feedline.torch import DataLoader, Dataset, DistributedSampler

SAMPLES, BATCH, STOP = 96, 6, 5


class Line(Dataset):
    """Points of y = 3 x - 1, with their index."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x = torch.tensor([index / SAMPLES])
        return x, 3 * x - 1, index


def train(rank: int, ranks: int, saved: Path, stop: int | None) -> list[int]:
    """The indices that this rank has trained on: of a new epoch, or of the rest of one."""
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data, seen = Line(), []
    loader = DataLoader(data, BATCH, sampler=DistributedSampler(data, ranks, rank, shuffle=True, seed=5), num_workers=1)
    if saved.exists():
        checkpoint = torch.load(saved, weights_only=False)  # the file is our own
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        loader.load_state_dict(checkpoint["loader"])
    dist.barrier()  # nobody writes the file while another still reads it
    for step, (x, y, indices) in enumerate(loader, start=1):
        loss = nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen += indices.tolist()
        if step == stop:
            break
    if rank == 0:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "loader": loader.state_dict()}
        torch.save(state, saved)
    return seen


def rank_main(folder: Path, stop: int | None) -> None:
    """What torchrun starts: it has set RANK, WORLD_SIZE and where the ranks meet."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    seen = train(rank, ranks, folder / "checkpoint.pt", stop)
    told: list = [None] * ranks
    dist.all_gather_object(told, seen)
    if rank == 0:
        Path(folder, f"seen-until-{stop}.json").write_text(json.dumps(told))
    dist.destroy_process_group()


def torchrun(folder: str, stop: str) -> list[list[int]]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*command, __file__, folder, stop], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    return json.loads(Path(folder, f"seen-until-{int(stop) or None}.json").read_text())


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        before, after = torchrun(folder, str(STOP)), torchrun(folder, "0")
    seen = [index for rank in before + after for index in rank]
    once = sorted(seen) == list(range(SAMPLES))
    print(f"2 ranks: {len(before[0])} samples each until the stop, {len(after[0])} each after it")
    print(f"each of {SAMPLES} samples once: {'yes' if once else 'NO'}")
    return 0 if once else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    if "RANK" in os.environ:
        where = sys.argv[1] if len(sys.argv) > 1 else "."
        rank_main(Path(where), int(sys.argv[2]) or None if len(sys.argv) > 2 else None)
    else:
        sys.exit(main())
