"""Kept samples and torch: its draws are seen, and a tensor is its values."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from feedline import cached
from feedline.sources.samples.identity import identity_of


class Drawing:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> float:
        return float(torch.rand(()))


def test_a_draw_from_torchs_generator_is_warned_of(tmp_path: Path) -> None:
    data = cached(Drawing(), tmp_path)
    with pytest.warns(UserWarning, match=r"^sample 0 .*draws from torch while it is kept") as told:
        data[0], data[1]
    assert len(told) == 1


def test_a_tensor_is_its_values() -> None:
    assert identity_of(torch.arange(5)) == identity_of(torch.arange(5)) != identity_of(torch.arange(1, 6))
    assert identity_of(torch.arange(5)) != identity_of(torch.arange(5).float())
    assert identity_of(torch.arange(6)[::2]) == identity_of(torch.tensor([0, 2, 4]))


class Boxes(torch.Tensor):
    """As torchvision's: the form of the boxes is an attribute."""


def boxes(form: str) -> torch.Tensor:
    found = torch.zeros(4).as_subclass(Boxes)  # type: ignore[no-untyped-call]
    found.form = form  # type: ignore[attr-defined]
    return found


def test_a_tensor_is_its_attributes_too() -> None:
    assert identity_of([boxes("XYXY")]) == identity_of([boxes("XYXY")]) != identity_of([boxes("XYWH")])


def test_a_module_is_its_weights_and_functions() -> None:
    def model(bias: float) -> torch.nn.Module:
        linear = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(linear.weight)
        torch.nn.init.constant_(linear.bias, bias)
        return torch.nn.Sequential(linear, torch.nn.ReLU())

    assert identity_of([model(1)]) == identity_of([model(1)]) != identity_of([model(2)])
    assert identity_of([torch.sin]) == identity_of([torch.sin]) != identity_of([torch.cos])
    assert identity_of([torch.eye(2).to_sparse()]) != identity_of([2 * torch.eye(2).to_sparse()])
