"""What the integration tests train: a dataset without randomness, a model with dropout, and who loads for it."""

from __future__ import annotations

import gc
import json
import os
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
import torch._dynamo  # before any process group: see `report`
import torch.distributed
import torch.utils.data
from torch.nn.functional import cross_entropy
from torch.utils.data.dataloader import _BaseDataLoaderIter
from training_host import run_ranks, training_host

import feedline.torch

HERE = Path(__file__).parent
SIZE, BATCH, EPOCHS, SEED = 50, 8, 2, 3

PROCESSES = "processes"
WORKERS = [
    pytest.param({}, id="inline"),
    pytest.param({"num_workers": 2}, id=PROCESSES),
    pytest.param({"num_workers": 2, "workers": "thread"}, id="threads"),
]
with_and_without_workers = pytest.mark.parametrize("options", WORKERS)


class Images(torch.utils.data.Dataset):
    """Sample i is always the same; a batch is large enough (96 KB) to travel in shared memory."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(1)
        self.images = torch.randn(SIZE, 3, 32, 32, generator=generator)
        self.labels = torch.randint(0, 3, (SIZE,), generator=generator)

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        return self.images[index], self.labels[index], index


def network() -> torch.nn.Module:
    """Dropout draws from torch's global generator: a loader that disturbs it changes the losses."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, stride=2),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.2),
        torch.nn.Linear(4 * 15 * 15, 3),
    )


def loss_of(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    images, labels, _ = batch
    return cross_entropy(model(images), labels)


def torchs(**options: Any) -> torch.utils.data.DataLoader:
    """The reference: torch's own loader."""
    return torch.utils.data.DataLoader(Images(), batch_size=BATCH, **options)


def feedlines(**options: Any) -> torch.utils.data.DataLoader:
    return feedline.torch.DataLoader(Images(), batch_size=BATCH, **options)


@contextmanager
def torchs_engine_forbidden():
    """Inside, beginning an iteration with torch's own iterator is an error."""

    def refuse(self: Any, loader: Any) -> None:
        raise AssertionError("torch's own engine was used")

    with mock.patch.object(_BaseDataLoaderIter, "__init__", refuse):
        yield


def two_ranks(script: str, folder: Path) -> list[Any]:
    """Run the script as two processes over gloo; what each rank wrote to <folder>/<rank>.json."""
    run_as_torchrun(["-W", "ignore", str(HERE / script), str(folder)])
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def run_as_torchrun(command: list[str]) -> None:
    """Run the command as two ranks, without importing torch for each.

    The processes find what `torchrun` tells its own, and meet as those do: at a store of this process, whose port is
    free because the system chose it.
    """
    options = {"wait_for_workers": False, "use_libuv": False}  # libuv would keep a pipe open for good
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, **options)
    told = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": store.port, "WORLD_SIZE": 2, "LOCAL_WORLD_SIZE": 2}
    told |= {"TORCHELASTIC_RUN_ID": "tests", "TORCHELASTIC_USE_AGENT_STORE": True, "TORCHELASTIC_RESTART_COUNT": 0}
    ranks = [told | {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "ROLE_RANK": rank} for rank in range(2)]
    run_ranks(training_host(), [command] * 2, [os.environ | {name: str(rank[name]) for name in rank} for rank in ranks])


def report(folder: str, rank: int, result: Any) -> None:
    """What a rank has to say, for `two_ranks`; the last thing it does.

    gloo's threads must be gone: in a process that is ending they now and then abort it (torch 2.13, where torch._dynamo
    is first imported after init_process_group, or the group was never destroyed).
    """
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    gc.collect()
    threads = [task.joinpath("comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    assert not [name for name in threads if "gloo" in name], threads
    Path(folder, f"{rank}.json").write_text(json.dumps(result))
