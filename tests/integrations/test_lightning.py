"""Lightning's Trainer: it takes our loader, keeps our engine when it makes the loader anew, and the losses stay."""

from __future__ import annotations

import multiprocessing
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import BasePredictionWriter
from training import (
    BATCH,
    EPOCHS,
    SEED,
    SIZE,
    Images,
    feedlines,
    loss_of,
    network,
    torchs,
    torchs_engine_forbidden,
    two_ranks,
    with_and_without_workers,
)

import feedline.torch

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),  # its advice about num_workers
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # its use of torch's pytree
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()
        self.losses: list[float] = []

    def training_step(self, batch: Any, position: int) -> torch.Tensor:
        loss = loss_of(self.network, batch)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch: Any, position: int) -> None:
        self.losses.append(loss_of(self.network, batch).item())

    def predict_step(self, batch: Any, position: int) -> torch.Tensor:
        return batch[2]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters())


def trainer(**options: Any) -> lightning.Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    options = {"accelerator": "cpu", "devices": 1, "max_epochs": EPOCHS, **options}
    return lightning.Trainer(enable_model_summary=False, **quiet, **options)


def fit(make_loader: Any, **options: Any) -> list[float]:
    lightning.seed_everything(SEED, verbose=False)
    module = Module()
    trainer().fit(module, make_loader(shuffle=True, **options), make_loader(**options))
    return module.losses


@with_and_without_workers
def test_fit_gives_the_losses_of_torch_to_the_bit(options):
    losses = fit(torchs)
    with torchs_engine_forbidden():
        assert fit(feedlines, **options) == losses
    assert len(losses) == 2 + EPOCHS * 14  # two batches of its sanity check


class FromHooks(Module):
    """Makes its loaders in hooks, where Lightning replaces their `__init__` to note the arguments."""

    def __init__(self, loader_class: Any, options: dict[str, Any]) -> None:
        super().__init__()
        self.loader_class, self.options = loader_class, options

    def train_dataloader(self) -> Any:
        return self.loader_class(Images(), BATCH, True, **self.options)

    def predict_dataloader(self) -> Any:
        # batch_size by name: given by position, Lightning fails to make any loader anew, torch's own too
        return self.loader_class(Images(), batch_size=BATCH, **self.options)


@with_and_without_workers
def test_loaders_from_hooks(options):
    def losses_of(loader_class: Any, options: dict[str, Any]) -> list[float]:
        lightning.seed_everything(SEED, verbose=False)
        module = FromHooks(loader_class, options)
        trainer().fit(module)
        return module.losses

    losses = losses_of(torch.utils.data.DataLoader, {})
    with torchs_engine_forbidden():
        assert losses_of(feedline.torch.DataLoader, options) == losses


class Noting(BasePredictionWriter):
    """Asks which indices were in each batch, which Lightning learns from a batch sampler it slips in."""

    def __init__(self) -> None:
        super().__init__("batch")
        self.indices: list[int] = []
        self.loader: Any = None

    def write_on_batch_end(self, trainer, module, prediction, batch_indices, *rest: Any) -> None:
        assert prediction.tolist() == batch_indices
        self.indices += batch_indices
        self.loader = trainer.predict_dataloaders


@with_and_without_workers
@pytest.mark.parametrize("way", ["passed", "from a hook"])
def test_a_loader_made_anew_for_predicting_is_still_ours_with_our_options(options, way):
    noting = Noting()
    module = Module() if way == "passed" else FromHooks(feedline.torch.DataLoader, options)
    loaders = feedlines(**options) if way == "passed" else None
    with torchs_engine_forbidden():
        trainer(callbacks=[noting]).predict(module, loaders, return_predictions=False)
    assert noting.indices == list(range(SIZE))
    assert noting.loader is not loaders
    assert type(noting.loader) is feedline.torch.DataLoader
    for name, value in options.items():
        assert getattr(noting.loader, name) == value


def test_a_stateful_loader_made_anew_has_our_options():
    noting, given = Noting(), {"max_deaths": 5, "snapshot_every_n_steps": 3}
    loader = feedline.torch.StatefulDataLoader(Images(), batch_size=BATCH, **given)
    trainer(callbacks=[noting]).predict(Module(), loader, return_predictions=False)
    assert noting.loader is not loader
    assert type(noting.loader) is feedline.torch.StatefulDataLoader
    assert {name: getattr(noting.loader._feedline.own, name) for name in given} == given


@pytest.mark.parametrize("way", ["passed", "from a hook"])
def test_a_loader_made_anew_collates_as_before(way):
    noting, options = Noting(), {"collate": feedline.torch.collate.stack}
    module = Module() if way == "passed" else FromHooks(feedline.torch.DataLoader, options)
    loaders = feedlines(**options) if way == "passed" else None
    trainer(callbacks=[noting]).predict(module, loaders, return_predictions=False)
    assert noting.loader is not loaders
    assert noting.loader.collate_fn == feedline.torch.collate.compose(feedline.torch.collate.stack)


@pytest.mark.filterwarnings("ignore:Be aware that when using `ckpt_path`")  # without the callback that saved it
def test_ranks_get_a_distributed_sampler_and_keep_our_engine(tmp_path):
    first, second = two_ranks("lightning_two_ranks.py", tmp_path)
    for rank in (first, second):
        assert rank["feedline"] == rank["torch"]
        assert rank["feedline, 2 workers"] == rank["torch"]
        for epoch in range(EPOCHS):
            assert len(rank["indices"][epoch]) == SIZE // 2
    for epoch in range(EPOCHS):
        assert sorted(first["indices"][epoch] + second["indices"][epoch]) == list(range(SIZE))
    assert first["indices"][0] != first["indices"][1], "set_epoch was called"
    check_global_batches(tmp_path, first, second)


class Seeing(Module):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[list[int]] = []

    def training_step(self, batch: Any, position: int) -> Any:
        self.seen.append(batch[2].tolist())
        return super().training_step(batch, position)


def check_global_batches(folder: Path, *ranks: Any) -> None:
    """With global_batch_size two ranks have the batches of one, and one goes on from the checkpoint of two."""

    def alone(ckpt_path: Path | None) -> list[list[int]]:
        module = Seeing()
        loader = feedline.torch.DataLoader(Images(), global_batch_size=9, shuffle=True)
        trainer(max_epochs=1).fit(module, loader, ckpt_path=ckpt_path)
        return module.seen

    whole = alone(None)
    for rank, told in enumerate(ranks):
        assert told["shared"] == [batch[rank::2] for batch in whole[:5]]
        assert "shared out twice" in told["refused"] or "already decides the batches" in told["refused"]
        assert "use_distributed_sampler=False" in told["refused"]
    assert alone(folder / "shared.ckpt") == whole[3:]


def test_persistent_workers_give_the_losses_of_torchs_persistent_workers():
    persistent = {"num_workers": 2, "persistent_workers": True}
    losses = fit(torchs, **persistent)
    with torchs_engine_forbidden():
        assert fit(feedlines, **persistent) == losses


def test_persistent_workers_end_with_fit_and_a_second_fit_is_torchs():
    left: list[int] = []

    def fit_twice(loader: Any) -> list[float]:
        lightning.seed_everything(SEED, verbose=False)
        module = Module()
        left.clear()  # torch's may take a moment: it is ours that are looked at
        for _ in range(2):
            trainer().fit(module, loader)
            left.append(len(multiprocessing.active_children()))
        return module.losses

    persistent = {"shuffle": True, "num_workers": 2, "persistent_workers": True}
    losses = fit_twice(torchs(**persistent))
    with torchs_engine_forbidden(), feedlines(**persistent) as loader:
        assert fit_twice(loader) == losses
    assert left == [0] * 2
