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
