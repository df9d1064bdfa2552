"""Datasets for tests of JAX's front. Workers import this file: it does not import JAX."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import feedline


class Drawing(feedline.Dataset[Any]):
    """Samples that say their index and what they have drawn; it notes what was read in this process."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.read: list[int] = []

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, i: int) -> dict[str, Any]:
        self.read.append(int(i))
        return {"i": np.int32(i), "drawn": np.float32(feedline.rng().random())}


class Large(feedline.Dataset[Any]):
    """Samples of 64 KB that can be computed from their index."""

    def __len__(self) -> int:
        return 240

    def __getitem__(self, i: int) -> Any:
        return large(i)


def large(i: int) -> Any:
    return np.arange(1 << 14, dtype=np.float32) + i


class Surroundings(feedline.Dataset[Any]):
    """Samples that say what the worker is like."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, i: int) -> dict[str, Any]:
        return {
            "has_jax": "jax" in sys.modules,
            "on_cpu": os.environ.get("JAX_PLATFORMS") == "cpu",
            "pid": np.int32(os.getpid()),
        }


class UsingJax(feedline.Dataset[Any]):
    """Imports JAX itself."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> Any:
        import jax

        return {"i": i, "on_cpu": jax.devices()[0].platform == "cpu", "config": jax.config.jax_platforms == "cpu"}


class Numbers(feedline.IterableDataset[int]):
    """A stream that knows nothing of ranks."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.length))


class InShards(Numbers):
    """A stream that reads its own share."""

    def shard(self, index: int, count: int) -> Iterator[int]:
        return iter(range(index, self.length, count))
