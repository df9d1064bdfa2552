"""Batches and datasets of other libraries, which fail when they are asked for what they do not have."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.data
from kinds import FORK, INLINE

from feedline.torch import DataLoader


class Numbers(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        return index

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise KeyError(name)


class Bunch(dict[str, Any]):
    __getattr__ = dict.__getitem__


def bunch(samples: list[int]) -> Any:
    return Bunch(x=torch.tensor(samples))


def sparse(samples: list[int]) -> Any:
    return torch.eye(len(samples)).to_sparse()


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_a_batch_that_is_a_dict_with_attributes(kind: dict[str, Any]) -> None:
    loader = DataLoader(Numbers(), batch_size=4, collate_fn=bunch, **kind)
    assert [batch.x.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    loader.state_dict()


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
def test_sparse_tensors_have_no_size_in_bytes(kind: dict[str, Any]) -> None:
    for batch in DataLoader(Numbers(), batch_size=4, collate_fn=sparse, **kind):
        assert torch.equal(batch.to_dense(), torch.eye(4))
