"""Lightning: a module, a Trainer, a checkpoint in the middle of an epoch, and exact resume with other workers.

    python examples/lightning_trainer.py    # pip install 'feedline[torch]' lightning

Lightning asks the loader for its state when it saves a checkpoint. Shows that a run that goes on from a checkpoint sees
just the batches that were missing, and ends with the weights of the run that was not stopped, to the bit.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

from feedline.torch import DataLoader, Dataset

SAMPLES, BATCH, EPOCHS, STOP = 96, 8, 2, 17  # in the middle of the second epoch of 12 steps


class Line(Dataset):
    """Points of y = 3 x - 1. The index comes along, to see which batches were trained on."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        x = torch.tensor([index / SAMPLES])
        return x, 3 * x - 1, index


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1)
        self.seen: list[list[int]] = []

    def training_step(self, batch: list[torch.Tensor], step: int) -> torch.Tensor:
        x, y, indices = batch
        self.seen.append(indices.tolist())
        return nn.functional.mse_loss(self.line(x), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(workers: int = 0, save_to: str | None = None, resume_from: Path | None = None) -> Model:
    """Trains to the end; saves a checkpoint on the way, or goes on from one."""
    lightning.seed_everything(11, verbose=False)
    model = Model()
    trainer = lightning.Trainer(
        max_epochs=EPOCHS,
        accelerator="cpu",
        logger=False,
        callbacks=[ModelCheckpoint(save_to, "middle", every_n_train_steps=STOP)] if save_to else [],
        enable_checkpointing=bool(save_to),
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    with DataLoader(Line(), BATCH, shuffle=True, num_workers=workers) as loader:
        trainer.fit(model, loader, ckpt_path=resume_from, weights_only=False)  # the file is our own
    return model


def main() -> int:
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        whole = fit(save_to=folder)
        resumed = fit(workers=2, resume_from=Path(folder, "middle.ckpt"))
    rest = resumed.seen == whole.seen[STOP:]
    equal = all(torch.equal(one, two) for one, two in zip(whole.parameters(), resumed.parameters(), strict=True))
    print(f"resumed after {STOP} of {len(whole.seen)} steps, with 2 workers instead of none: {len(resumed.seen)} steps")
    print(f"just the batches that were missing: {'yes' if rest else 'NO'}")
    print(f"the weights of the run that was not stopped: {'yes' if equal else 'NO'}")
    return 0 if rest and equal else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
