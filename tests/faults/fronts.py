"""Both fronts, for tests of what holds for either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kinds import ALL, thorough

import feedline
import feedline.torch

Front = Callable[..., Any]

BOTH: list[Front] = [feedline.DataLoader, feedline.torch.DataLoader]
both_fronts = pytest.mark.parametrize("front", BOTH, ids=["numpy", "torch"])


def _together(kind: Any, front: Front) -> Any:
    """Workers that are sent their data (spawn) and torch's batches are tried apart."""
    name = "numpy" if front is BOTH[0] else "torch"
    alone = front is BOTH[0] or kind.id != "spawn"
    return pytest.param(kind.values[0], front, id=f"{name}-{kind.id}", marks=() if alone else thorough)


KINDS_AND_FRONTS = [_together(kind, front) for front in BOTH for kind in ALL[:4]]
kinds_and_fronts = pytest.mark.parametrize(("kind", "front"), KINDS_AND_FRONTS)
