"""A dataset whose workers tell, through a pipe, which samples they read: seen without waiting for a clock."""

from __future__ import annotations

import os
import select
import struct
from typing import Any

import numpy as np

import feedline

PATIENCE = 600
"""Seconds after which a read that does not come is a failure; nothing is measured by it."""


class Noted:
    """Samples that depend on all that decides a batch: index, epoch, seed and the global generator.

    Who counts reads does without the generator: a worker that finds it drawn from in a piece of a batch throws away
    the sample it has read (workers.piecework).
    """

    def __init__(self, size: int, writing: int | None = None, draws: bool = True) -> None:
        self.size = size
        self.writing = writing
        self.draws = draws

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Any:
        if self.writing is not None:
            os.write(self.writing, struct.pack("<q", index))
        return np.array([index, feedline.rng().integers(1 << 30), np.random.randint(1 << 30) if self.draws else 0])


def stacked(samples: list[Any]) -> Any:
    """A collate_fn, so that each batch is made by one worker and each of its samples read once."""
    return np.stack(samples)


class Reads:
    """Both ends of the pipe, in the process that looks."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def take(self, count: int) -> list[int]:
        """The next so many; they may still have to be made."""
        found: list[int] = []
        while len(found) < count:
            ready, _, _ = select.select([self.reading], [], [], PATIENCE)
            assert ready, f"only {len(found)} of {count} samples were read: {found}"
            found += struct.unpack("<q", os.read(self.reading, 8))
        return found

    def so_far(self) -> list[int]:
        """Those that are there."""
        found: list[int] = []
        while select.select([self.reading], [], [], 0)[0]:
            found += struct.unpack("<q", os.read(self.reading, 8))
        return found

    def rest(self) -> list[int]:
        """All that nobody has taken yet; whoever might have written must be gone."""
        os.close(self.writing)
        found: list[int] = []
        while data := os.read(self.reading, 8):
            found += struct.unpack("<q", data)
        os.close(self.reading)
        return found
