"""What is loaded: the workloads, and the data and datasets that all sides share.

Takes: nothing. Gives: `WORKLOADS` by name, and the datasets, samples and functions that the sides load them with.
Promises: the same bytes for every side, written by whichever comes first; imports NumPy and Pillow and no loader.
Not its job: how a library is set up (with_….py), measuring (measure).
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from in_memory import columns
from jpeg import SIDE, Pictures, folder_of_pictures
from tar_shards import PER_SHARD, SHARDS, shards

__all__ = ["SIDE", "Pictures", "columns", "folder_of_pictures", "shards"]

WORKERS = 2
CORES = 2


@dataclass(frozen=True)
class Workload:
    """What is asked of each side: batches without end, or (`resumes`) the seconds that going on takes.

    `shape`: of the first array of a batch, None where it varies. `passed`: batches that are taken and not counted
    before each measurement, more than any side makes ahead.
    """

    name: str
    title: str
    shape: tuple[int | None, ...] = ()
    passed: int = 10
    resumes: bool = False


WORKLOADS = {
    each.name: each
    for each in (
        Workload("memory", "500,000 × 32 floats in memory, shuffled, batch 256, no workers", (256, 32), passed=100),
        Workload("large", "3×224×224 bytes from one .npy file, shuffled, batch 64, 2 workers", (64, 3, 224, 224)),
        Workload("jpeg", "JPEG 500×375 to 224, the same Pillow code, batch 32, 2 workers", (32, 3, SIDE, SIDE)),
        Workload("decoder", "the same JPEG files by the library's own decoder, as bytes", (32, SIDE, SIDE, 3)),
        Workload("text", "texts of 10–60 numbers padded by a function, batch 64, no workers", (64, None), passed=100),
        Workload("text-2", "texts of 10–60 numbers padded by a function, batch 64, 2 workers", (64, None), passed=100),
        Workload("wait-8", "5 ms of waiting a sample, batch 32, 8 at a time", (32, 16), passed=18),
        Workload("wait-128", "5 ms of waiting a sample, batch 32, 128 at a time", (32, 16), passed=30),
        Workload("shards", "24 kB arrays in sequence from each library's shards, batch 64, 2 workers", (64, 3, 90, 90)),
        Workload("resume", "going on at batch 5,000 of 200,000 numbers: to the first batch", resumes=True),
    )
}


# --- large samples ---

LARGE = 2_000


class Large:
    """Rows of a mapped file, copied when they are read: 150 kB each, all in the system's cache."""

    def __init__(self) -> None:
        self.path = _written("large.npy", _write_large)
        self.rows = np.load(self.path, mmap_mode="r")

    def __len__(self) -> int:
        return LARGE

    def __getitem__(self, index: int) -> np.ndarray:
        return np.array(self.rows[index])

    def __getstate__(self) -> str:
        return self.path  # or the whole array would be pickled

    def __setstate__(self, path: str) -> None:
        self.path = path
        self.rows = np.load(path, mmap_mode="r")


def _write_large(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.random.default_rng(0).integers(0, 255, (LARGE, 3, 224, 224), np.uint8))


def _written(name: str, write: Callable[[Path], None]) -> str:
    """A file or folder of the run's own, whole or not there."""
    path = Path(tempfile.gettempdir()) / f"feedline-peers-{name}"
    if not path.exists():
        unfinished = path.with_name(f"{path.name}.unfinished")
        write(unfinished)
        unfinished.rename(path)
    return str(path)


def converted(name: str, write: Callable[[str], None]) -> str:
    """The folder of a library's own format, written once by `write`."""
    return _written(name, lambda path: write(str(path)))


# --- pictures ---


def bytes_of_pictures() -> Iterator[tuple[bytes, int]]:
    """For formats that hold the files themselves: as many samples as `Pictures` has."""
    for number, path in enumerate(2 * sorted(folder_of_pictures().glob("*.jpg"))):
        yield path.read_bytes(), number % 10


def scaled(pixels: np.ndarray) -> np.ndarray:
    """As `Pictures` gives them."""
    return pixels.astype(np.float32).transpose(2, 0, 1) / 255


# --- texts ---

TEXTS = 20_000


class Texts:
    """Sequences of 10 to 60 numbers, all in memory."""

    def __init__(self) -> None:
        random = np.random.default_rng(0)
        self.texts = [random.integers(1, 30_000, length) for length in random.integers(10, 61, TEXTS)]

    def __len__(self) -> int:
        return TEXTS

    def __getitem__(self, index: int) -> np.ndarray:
        return self.texts[index]


def padded(texts: Sequence[np.ndarray]) -> np.ndarray:
    """The collate function that every side is given."""
    batch = np.zeros((len(texts), max(map(len, texts))), np.int64)
    for row, text in enumerate(texts):
        batch[row, : len(text)] = text
    return batch


# --- waiting ---


class Waiting:
    """A storage that answers after 5 ms."""

    def __len__(self) -> int:
        return 4_096

    def __getitem__(self, index: int) -> np.ndarray:
        time.sleep(0.005)
        return np.full(16, index, np.float32)


# --- shards ---


def sharded() -> Iterator[tuple[np.ndarray, int]]:
    """What tar_shards.py writes into its shards, drawn again for the other formats."""
    random = np.random.default_rng(0)
    for number in range(SHARDS * PER_SHARD):
        yield random.integers(0, 255, (3, 90, 90), np.uint8), number % PER_SHARD % 10


# --- going on ---

NUMBERS, DEPTH, RESUME_BATCH = 200_000, 5_000, 32


class Numbers:
    """What costs nothing to read."""

    def __len__(self) -> int:
        return NUMBERS

    def __getitem__(self, index: int) -> int:
        return index
