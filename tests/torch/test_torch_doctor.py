"""The doctor with torch's datasets and loaders."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import feedline.torch
from feedline.diagnose import deadline
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.examine import Examination
from feedline.diagnose.doctor.patient import patient_of
from feedline.diagnose.target import loaded_within
from feedline.errors import OptionError


class Images(Dataset[Any]):
    def __init__(self) -> None:
        self.targets = torch.arange(96) * 7 % 4

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> Any:
        return torch.randint(0, 255, (3, 32, 32), dtype=torch.uint8), self.targets[index]


class Seeded(Images):
    def __getitem__(self, index: int) -> Any:
        torch.manual_seed(0)
        return super().__getitem__(index)


class Numbers(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        for number in range(first, 200, step):
            yield torch.tensor([number, number]), number * 7 % 3


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (Images(), []),
        (DataLoader(Images(), batch_size=16, shuffle=True, num_workers=2), []),
        (DataLoader(Numbers(), batch_size=16), []),
        (DataLoader(Images(), batch_size=95, shuffle=True), ["last-batch-of-one"]),
        (Seeded(), ["fixed-seed"]),
    ],
    ids=["images", "loader", "stream", "last of one", "seeded"],
)
def test_torchs(what: Any, said: list[str]) -> None:
    state = torch.get_rng_state()
    found = feedline.doctor(what, seconds=100)
    assert [each.id for each in found if each.severity != "ok"] == said, str(found)
    assert torch.equal(torch.get_rng_state(), state)


class OpenedByWorkers(Images):
    file: Any = None

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index)
        return torch.tensor(list(self.file.read(4))), self.targets[index]


def open_file(worker: int) -> None:
    info: Any = get_worker_info()
    assert type(info.dataset) is OpenedByWorkers
    info.dataset.file = open(__file__, "rb")  # noqa: SIM115


class Views(Images):
    def __init__(self) -> None:
        super().__init__()
        self.data = torch.rand(96, 8)

    def __getitem__(self, index: int) -> Any:
        return self.data[index], self.targets[index]


class Missing(Images):
    def __getitem__(self, index: int) -> Any:
        return torch.full((4,), torch.nan if index == 7 else 1.0, dtype=torch.bfloat16), self.targets[index]


class FixedGenerator(Images):
    def __getitem__(self, index: int) -> Any:
        generator = torch.Generator().manual_seed(0)
        assert isinstance(generator, torch.Generator)
        return torch.rand(8, generator=generator) + index, self.targets[index]


def stacked(samples: list[Any]) -> Any:
    return torch.stack([data for data, _ in samples])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (DataLoader(OpenedByWorkers(), batch_size=16, shuffle=True, num_workers=2, worker_init_fn=open_file), []),
        (DataLoader(Views(), batch_size=16, shuffle=True, collate_fn=list), ["aliases-dataset"]),
        (DataLoader(Views(), batch_size=None, sampler=[5, 4, 3]), ["aliases-dataset"]),
        (DataLoader(Views(), batch_size=16, shuffle=True, collate_fn=stacked), []),
        (DataLoader(Views(), batch_size=16, shuffle=True), []),
        (DataLoader(Views(), batch_size=16, shuffle=True, collate_fn=list, num_workers=2), []),
        (feedline.torch.DataLoader(Views(), batch_size=16, shuffle=True, collate_fn=list), []),
        (Missing(), ["not-finite"]),
        (FixedGenerator(), ["fixed-seed"]),
    ],
    ids=[
        "opened",
        "listed",
        "bare",
        "stacked by hand",
        "stacked",
        "workers",
        "feedline's",
        "bfloat16",
        "fixed generator",
    ],
)
def test_a_strangers(what: Any, said: list[str]) -> None:
    patient = patient_of(what, None, None, None)
    seen = Examination(patient, 300, 2).run("samples", "collate")
    assert [each.id for each in judged(seen) if each.severity != "ok"] == said


@pytest.mark.parametrize("module", ["torch.utils.data", "feedline.torch"])
def test_a_script_that_trains_when_imported_is_told_of_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    monkeypatch.setattr(deadline, "AGAIN", 0.1)
    monkeypatch.setattr(sys, "path", list(sys.path))
    script = tmp_path / "trains_at_once.py"
    script.write_text(
        f"from {module} import DataLoader\n"
        "loader = DataLoader(range(1000), batch_size=4)\n"
        "while True:\n"
        "    for batch in loader:\n"
        "        batch.float().mean()\n"
    )
    with pytest.raises(OptionError, match=r"goes through a loader while it is imported, at .*trains_at_once\.py:[345]"):
        loaded_within(f"{script}:loader", 600)
    del sys.modules["trains_at_once"]
