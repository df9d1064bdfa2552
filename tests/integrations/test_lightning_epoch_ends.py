"""Lightning ends an epoch by counting, and may take a batch ahead: a checkpoint of any step goes on exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
import torch.utils.data
from lightning.pytorch.callbacks import ModelCheckpoint

from feedline import StateError
from feedline.torch import DataLoader, StatefulDataLoader

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),  # its advice about num_workers
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),  # its use of torch's pytree
    pytest.mark.filterwarnings("ignore:.*exists and is not empty"),  # its folder of checkpoints
    pytest.mark.filterwarnings("ignore:to continue with batch"),
    pytest.mark.filterwarnings("ignore:the loader's state lacks that of its IterableDataset"),
    pytest.mark.filterwarnings("ignore:the IterableDataset neither asks"),
    pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no"),
]


class Stopped(Exception):
    """As if the machine had gone."""


class Module(lightning.LightningModule):
    def __init__(self, stop_at: int | None) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.stop_at = stop_at
        self.seen: list[Any] = []

    def training_step(self, batch: Any, position: int) -> torch.Tensor:
        if self.trainer.global_step == self.stop_at:
            raise Stopped
        parts = batch.values() if isinstance(batch, dict) else [batch]
        self.seen.append([part.tolist() for part in parts])
        return self.layer(torch.ones(1, 1)).sum()

    def validation_step(self, batch: Any, position: int) -> None:
        pass

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Stream(torch.utils.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        return iter(range(24))


class Sized(Stream):
    def __len__(self) -> int:
        return 24


class Counting(Stream):
    """Counts its epochs, as streams do whose order is another in each; its state holds a tensor."""

    epoch = at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < 24:
            self.at += 1
            yield self.epoch * 100 + self.at - 1
        self.at, self.epoch = 0, self.epoch + 1

    def state_dict(self) -> Any:
        return {"at": torch.tensor(self.at), "epoch": self.epoch}

    def load_state_dict(self, state: Any) -> None:
        self.at, self.epoch = int(state["at"]), state["epoch"]


class CountingSized(Counting):
    """Begins anew whenever it is opened but for going on: its end is not met where Lightning counts."""

    epoch, resumed = -1, False

    def __len__(self) -> int:
        return 24

    def __iter__(self) -> Iterator[int]:
        if not self.resumed:
            self.at, self.epoch = 0, self.epoch + 1
        self.resumed = False
        while self.at < 24:
            self.at += 1
            yield self.epoch * 100 + self.at - 1

    def load_state_dict(self, state: Any) -> None:
        super().load_state_dict(state)
        self.resumed = True


class Mosaics(Stream):
    """MosaicML's and LitData's streams want arguments."""

    def state_dict(self, num_samples: int, from_beginning: bool) -> Any:
        return {"sample_in_epoch": num_samples}

    def load_state_dict(self, state: Any) -> None:
        raise AssertionError("there is none")


def loader_of(data: Any = None, size: int = 3, **options: Any) -> Any:
    shuffle = {} if data is not None else {"shuffle": True}
    data = range(12) if data is None else data
    return DataLoader(data, size, generator=torch.Generator().manual_seed(5), **shuffle, **options)


def fit(
    folder: Path, loader: Any, every: int, stop_at: int | None, ckpt_path: Path | None = None, **options: Any
) -> list[Any]:
    validation = DataLoader(range(2)) if options.pop("validated", False) else None
    saving = ModelCheckpoint(
        folder, filename="last", every_n_train_steps=every, save_top_k=1, enable_version_counter=False
    )
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_epochs=3, callbacks=[saving], num_sanity_val_steps=0, **quiet, **options
    )
    module = Module(stop_at)
    try:
        trainer.fit(module, loader, validation, ckpt_path=ckpt_path)
    except Stopped:
        assert stop_at is not None
    return module.seen


Case = tuple[Callable[[], Any], int, dict[str, Any]]
THREADS = {"num_workers": 2, "workers": "thread"}
CASES: dict[str, Case] = {
    "forever, at the end of a virtual epoch": (lambda: loader_of().forever(5), 5, {}),
    "forever, at the end of the data": (lambda: loader_of().forever(5), 4, {}),
    "forever, of which Lightning wants less": (lambda: loader_of().forever(5), 3, {"limit_train_batches": 3}),
    "a loader of which Lightning wants less": (lambda: loader_of(), 3, {"limit_train_batches": 3}),
    "a stream with a length, at its end": (lambda: loader_of(Sized()), 8, {}),
    "a stream, in its middle": (lambda: loader_of(Stream()), 4, {}),
    "a stream, before its last batch": (lambda: loader_of(Stream()), 7, {}),
    "a stream, at its end": (lambda: loader_of(Stream()), 8, {"validated": True}),
    "a stream, after its end": (lambda: loader_of(Stream(), **THREADS), 9, {}),
    "a stream that counts its epochs, in its second": (lambda: loader_of(Counting()), 11, {}),
    "a stream that counts its epochs, at its end": (lambda: loader_of(Counting()), 8, {"validated": True}),
    "a stream with a length that counts its epochs, at its end": (lambda: loader_of(CountingSized()), 8, {}),
    "a stream that cannot be asked for its state": (lambda: loader_of(Mosaics()), 5, {}),
    "two loaders, one of them without a length": (lambda: {"a": loader_of(), "b": loader_of(Stream())}, 3, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_parts_of_a_run_are_the_whole_run(name: str, tmp_path: Path) -> None:
    make, saved_at, options = CASES[name]
    whole = fit(tmp_path / "whole", make(), saved_at, None, **options)
    folder = tmp_path / "parts"
    first = fit(folder, make(), saved_at, saved_at + 1, **options)[:saved_at]
    rest = fit(folder, make(), saved_at, None, folder / "last.ckpt", **options)
    assert first + rest == whole


@pytest.mark.parametrize("saved_at", [2, 4])
def test_another_batch_size_is_refused_because_lightning_counts_batches(saved_at: int, tmp_path: Path) -> None:
    fit(tmp_path, loader_of(), saved_at, saved_at + 1)
    with pytest.raises(StateError, match="Lightning counts an epoch in batches"):
        fit(tmp_path, loader_of(size=2), saved_at, None, tmp_path / "last.ckpt")


def test_a_short_last_batch_is_no_other_batch_size(tmp_path: Path) -> None:
    whole = fit(tmp_path / "whole", loader_of(size=5), 3, None)
    first = fit(tmp_path, loader_of(size=5), 3, 4)[:3]
    assert first + fit(tmp_path, loader_of(size=5), 3, None, tmp_path / "last.ckpt") == whole


def test_forever_beside_a_stream_without_length_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match=r"Lightning has already taken the next batch of forever\(…\)"):
        fit(tmp_path, {"a": loader_of().forever(5), "b": loader_of(Stream())}, 2, 3)


@pytest.mark.parametrize("loader", [StatefulDataLoader, DataLoader])
def test_a_state_from_before_the_end_is_not_what_the_next_epoch_begins_with(loader: Any, tmp_path: Path) -> None:
    """Lightning does not meet the end of a stream with a length, so the latest state may be an earlier one."""
    options = {"snapshot_every_n_steps": 5} if loader is StatefulDataLoader else {"shuffle_buffer": 4}

    def made() -> Any:
        return loader(CountingSized(), 3, generator=torch.Generator().manual_seed(5), **options)

    fit(tmp_path, made(), 8, 9)
    with pytest.warns(UserWarning, match="begins with the IterableDataset CountingSized as it is, because Lightning"):
        rest = fit(tmp_path, made(), 8, None, tmp_path / "last.ckpt")
    first_epoch = [number for (batch,) in rest[:8] for number in batch]
    assert sorted(first_epoch) == list(range(24))
