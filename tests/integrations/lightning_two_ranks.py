"""Launched by test_lightning as two ranks: trains with torch's loader and with ours, and tells losses and indices."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import lightning
from lightning.pytorch.callbacks import ModelCheckpoint

sys.path.append(str(Path(__file__).parent.parent))  # as under pytest
from test_lightning import Module, trainer
from training import SEED, Images, feedlines, report, torchs, torchs_engine_forbidden

import feedline.torch
from feedline import OptionError


class Noting(Module):
    def __init__(self) -> None:
        super().__init__()
        self.indices: list[list[int]] = []  # of each epoch
        self.steps: list[list[int]] = []

    def on_train_epoch_start(self) -> None:
        self.indices.append([])

    def training_step(self, batch: Any, position: int) -> Any:
        self.indices[-1] += batch[2].tolist()
        self.steps.append(batch[2].tolist())
        return super().training_step(batch, position)


def fit(make_loader: Any, **options: Any) -> Noting:
    lightning.seed_everything(SEED, verbose=False)
    module = Noting()
    trainer(devices=2, strategy="ddp").fit(module, make_loader(shuffle=True, **options))
    return module


def in_global_batches(folder: str, **options: Any) -> list[list[int]]:
    """This rank's indices, with a checkpoint after three steps."""
    lightning.seed_everything(SEED + int(os.environ["RANK"]), verbose=False)
    module = Noting()
    saving = ModelCheckpoint(folder, filename="shared", every_n_train_steps=3, save_top_k=1)
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    told = {"accelerator": "cpu", "devices": 2, "strategy": "ddp", "max_steps": 5, "callbacks": [saving]}
    loader = feedline.torch.DataLoader(Images(), global_batch_size=9, shuffle=True)
    lightning.Trainer(**told, **quiet, **options).fit(module, loader)
    return module.steps


def refused(folder: str) -> str:
    try:
        in_global_batches(folder)
    except OptionError as error:
        return str(error)
    return ""


def main(folder: str) -> None:
    theirs = fit(torchs)
    with torchs_engine_forbidden():
        ours, with_workers = fit(feedlines), fit(feedlines, num_workers=2)
        result: dict[str, Any] = {
            "torch": theirs.losses,
            "feedline": ours.losses,
            "feedline, 2 workers": with_workers.losses,
        }
        shared = in_global_batches(folder, use_distributed_sampler=False)
        result |= {"shared": shared, "refused": refused(folder)}
    report(folder, ours.global_rank, result | {"indices": with_workers.indices})


if __name__ == "__main__":
    main(sys.argv[1])
