"""Launched by test_lightning as two ranks: trains with torch's loader and with ours, and tells losses and indices."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning

sys.path.append(str(Path(__file__).parent.parent))  # as under pytest
from test_lightning import Module, trainer
from training import SEED, feedlines, report, torchs, torchs_engine_forbidden


class Noting(Module):
    def __init__(self) -> None:
        super().__init__()
        self.indices: list[list[int]] = []

    def on_train_epoch_start(self) -> None:
        self.indices.append([])

    def training_step(self, batch: Any, position: int) -> Any:
        self.indices[-1] += batch[2].tolist()
        return super().training_step(batch, position)


def fit(make_loader: Any, **options: Any) -> Noting:
    lightning.seed_everything(SEED, verbose=False)
    module = Noting()
    trainer(devices=2, strategy="ddp").fit(module, make_loader(shuffle=True, **options))
    return module


def main(folder: str) -> None:
    theirs = fit(torchs)
    with torchs_engine_forbidden():
        ours, with_workers = fit(feedlines), fit(feedlines, num_workers=2)
    result = {"torch": theirs.losses, "feedline": ours.losses, "feedline, 2 workers": with_workers.losses}
    report(folder, ours.global_rank, result | {"indices": with_workers.indices})


if __name__ == "__main__":
    main(sys.argv[1])
