"""In torch's clothes: a dataset's fingerprint is in the state, torch's own wrappers or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, Subset

from feedline import StateError
from feedline.torch import DataLoader


class Table(Dataset[int]):
    def __init__(self, fingerprint: str) -> None:
        self.fingerprint = fingerprint

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("wrapped", [lambda table: table, lambda table: Subset(ConcatDataset([table]), [0, 1, 2, 3])])
def test_other_content_is_refused_by_name(wrapped: Any) -> None:
    loader = DataLoader(wrapped(Table("aa")), 2, shuffle=True, generator=torch.Generator())
    next(iter(loader))
    state = loader.state_dict()
    assert state["fingerprint"] == "aa"
    DataLoader(wrapped(Table("aa")), 2, shuffle=True, generator=torch.Generator()).load_state_dict(state)
    with pytest.raises(StateError, match=r"fingerprint has changed.* was 'aa' and is 'bb' now"):
        DataLoader(wrapped(Table("bb")), 2, shuffle=True, generator=torch.Generator()).load_state_dict(state)
