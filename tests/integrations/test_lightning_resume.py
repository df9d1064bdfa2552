"""Lightning's checkpoints hold our loader's place: a run stopped in an epoch goes on with the batch that comes next."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from kinds import thorough
from lightning.pytorch.callbacks import ModelCheckpoint
from training import (
    BATCH,
    PROCESSES,
    SEED,
    SIZE,
    WORKERS,
    Images,
    loss_of,
    network,
    torchs_engine_forbidden,
    with_and_without_workers,
)

import feedline.torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),  # its advice about num_workers
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # its use of torch's pytree
    pytest.mark.filterwarnings("ignore:.*exists and is not empty"),  # its folder of checkpoints
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]
EPOCHS, STEPS = 3, 7


class Stopped(Exception):
    """As if the machine had gone."""


class Module(lightning.LightningModule):
    def __init__(self, stop_at: int | None = None) -> None:
        super().__init__()
        self.network = network()
        self.stop_at = stop_at
        self.seen: list[list[int]] = []

    def training_step(self, batch: Any, position: int) -> torch.Tensor:
        if self.trainer.global_step == self.stop_at:
            raise Stopped
        self.seen.append(batch[2].tolist())
        return loss_of(self.network, batch)

    def validation_step(self, batch: Any, position: int) -> None:
        loss_of(self.network, batch)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def fit(
    folder: Path,
    stop_at: int | None,
    every: int | None,
    ckpt_path: Path | None,
    validated: bool = False,
    **options: Any,
) -> list[list[int]]:
    """The indices of each batch that was trained on. The generator is the script's, and begins anew with it."""
    lightning.seed_everything(SEED, verbose=False)
    saving = ModelCheckpoint(
        folder, filename="last", every_n_train_steps=every, save_top_k=1, enable_version_counter=False
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=EPOCHS, callbacks=[saving], **quiet)
    module = Module(stop_at)
    generator = torch.Generator().manual_seed(5)
    loader = feedline.torch.DataLoader(Images(), BATCH, True, generator=generator, **options)
    validation = feedline.torch.DataLoader(Images(), BATCH) if validated else None
    with torchs_engine_forbidden(), loader:
        if stop_at is None:
            trainer.fit(module, loader, validation, ckpt_path=ckpt_path)
        else:
            with pytest.raises(Stopped):
                trainer.fit(module, loader, validation, ckpt_path=ckpt_path)
    return module.seen


@with_and_without_workers
def test_a_run_stopped_in_an_epoch_trains_on_what_the_uninterrupted_run_trains_on(options, tmp_path):
    whole = fit(tmp_path / "whole", None, 3, None, **options)
    assert len(whole) == EPOCHS * STEPS
    folder = tmp_path / "parts"
    seen = fit(folder, 5, 3, None, **options)[:3]  # saved after 3 steps, stopped after 5
    seen += fit(folder, 11, 3, folder / "last.ckpt", **options)[:6]  # after 9: in the second epoch
    seen += fit(folder, None, 3, folder / "last.ckpt", **options)
    assert seen == whole


# Where Lightning is in its epoch has nothing to do with who reads: one place with processes, all with the others.
@pytest.mark.parametrize(
    ("options", "saved_at"),
    [
        pytest.param(
            *kind.values, at, id=f"{kind.id}-{at}", marks=[thorough] if kind.id == PROCESSES and at != 7 else []
        )
        for kind in WORKERS
        for at in (6, 7, 8)
    ],
)
def test_around_the_end_of_an_epoch(options, saved_at, tmp_path):
    whole = fit(tmp_path / "whole", None, saved_at, None, **options)
    folder = tmp_path / "parts"
    seen = fit(folder, saved_at + 2, saved_at, None, **options)[:saved_at]
    seen += fit(folder, None, saved_at, folder / "last.ckpt", **options)
    assert seen == whole


@pytest.mark.parametrize("validated", [False, True])
def test_saved_after_every_epoch_lightning_does_not_give_the_state_back(validated, tmp_path):
    """It says of a whole epoch that nothing is to be restarted. So the next one is whole, in an order drawn anew."""
    fit(tmp_path, STEPS + 2, None, None, validated)
    seen = fit(tmp_path, None, None, tmp_path / "last.ckpt", validated)
    assert len(seen) == (EPOCHS - 1) * STEPS
    for epoch in (seen[:STEPS], seen[STEPS:]):
        assert sorted(index for batch in epoch for index in batch) == list(range(SIZE))


def test_a_checkpoint_needs_no_unpickling_of_anything_of_ours(tmp_path):
    fit(tmp_path, 4, 3, None)
    checkpoint = torch.load(tmp_path / "last.ckpt", weights_only=True)
    (state,) = checkpoint["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert (state["feedline"], state["batches"]) == (2, 3)
