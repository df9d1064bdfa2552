"""Both fronts, for tests of what holds for either."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import feedline
import feedline.torch

Front = Callable[..., Any]

BOTH: list[Front] = [feedline.DataLoader, feedline.torch.DataLoader]
both_fronts = pytest.mark.parametrize("front", BOTH, ids=["numpy", "torch"])
