"""Our workloads, by name: what people want to know when they compare loaders; and their data.

Takes: a name, or the words for a user's dataset. Gives: `Workload`: what each side should measure; a function for each
workload, without arguments, that makes its dataset, the same in every process.
Promises: the list can be read without torch; torch and Pillow are imported when needed; samples are tensors where
torch's users have tensors.
Not its job: measuring them (side).
"""

from __future__ import annotations

import importlib
import io
import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from feedline.diagnose.bench.bench_subject import WantedLoader
from feedline.errors import OptionError
from feedline.errors.missing_packages import extra

ROWS, COLUMNS = 500_000, 32
WIDTH, HEIGHT, SIDE = 500, 375, 224
PICTURES = 32
"""Different JPEGs, read repeatedly: decoding takes as long, and making more would delay the start."""
LATENCY = 0.005
WORDS = 2_000


@dataclass(frozen=True)
class Workload:
    """Something to measure, ours or the user's."""

    name: str
    summary: str
    wanted: WantedLoader
    package: str = ""
    """The package that it needs besides torch."""


def _ours(name: str, summary: str, batch_size: int, num_workers: int, **more: str | bool) -> Workload:
    """A workload whose dataset has the same name in workload_data."""
    collate = f"{__name__}:{more['collate']}" if "collate" in more else None
    target = f"{__name__}:{name.replace('-', '_')}"
    wanted = WantedLoader(target, batch_size, bool(more.get("shuffle")), collate, num_workers)
    return Workload(name, summary, wanted, str(more.get("package", "")))


WORKLOADS = (
    _ours("in-memory", "500,000 rows of 32 floats, shuffled, batches of 256", 256, 0, shuffle=True),
    _ours("large-samples", "3×224×224 tensors that cost nothing to read, batches of 64", 64, 2),
    _ours("tiny-batches", "8 numbers a batch: the cost of one round trip", 8, 2),
    _ours("augment", "crop, flip and normalise 224×224 pictures with NumPy, batches of 32", 32, 2, shuffle=True),
    _ours("jpeg", "decode and resize 500×375 JPEGs with Pillow, batches of 32", 32, 2, shuffle=True, package="PIL"),
    _ours("text", "sequences of 1 to 512 words, padded by a collate_fn, batches of 64", 64, 2, collate="padded"),
    _ours("latency", "5 ms of waiting for each sample, as from a network, batches of 32", 32, 2),
)
SHORT = ("in-memory", "large-samples", "tiny-batches", "latency")
"""What is run by default: the loader's own cost three times, and a case in which no loader can do better."""


def workload(word: str) -> Workload:
    """One of ours, or the user's own.

    >>> workload("in-memory").wanted.batch_size
    256
    >>> workload("train.py:dataset").wanted.target
    'train.py:dataset'
    >>> workload("in-menory")
    Traceback (most recent call last):
    feedline.errors.OptionError: there is no workload 'in-menory'; there are in-memory, large-samples, tiny-batches, \
augment, jpeg, text and latency; a dataset of yours is named as pkg.module:name or path/to/script.py:name
    """
    for each in WORKLOADS:
        if each.name == word:
            return each
    if not any(sign in word for sign in (":", ".", os.sep)):
        names = [each.name for each in WORKLOADS]
        raise OptionError(
            f"there is no workload {word!r}; there are {', '.join(names[:-1])} and {names[-1]}; a dataset of yours is "
            "named as pkg.module:name or path/to/script.py:name"
        )
    return Workload(word, "", WantedLoader(word))


class RepeatedData:
    """A few samples, repeated; each is prepared anew."""

    def __init__(self, samples: list[Any], length: int, prepare: Callable[[Any], Any] | None = None) -> None:
        self.samples, self.length, self.prepare = samples, length, prepare

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        sample = self.samples[index % len(self.samples)]
        return sample if self.prepare is None else self.prepare(sample)


def late(sample: Any) -> Any:
    """The sample, as it comes over a network."""
    time.sleep(LATENCY)
    return sample


def decoded(sample: bytes) -> tuple[np.ndarray, int]:
    """A JPEG, decoded and resized by Pillow: channels first, from 0 to 1."""
    with extra("PIL.Image", "images", "the workload jpeg").open(io.BytesIO(sample)) as image:
        pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32)
    return pixels.transpose(2, 0, 1) / 255, len(sample) % 10


def augmented(sample: np.ndarray) -> np.ndarray:
    """A random part of a picture, perhaps mirrored, normalised by NumPy."""
    top, left = random.randrange(256 - SIDE), random.randrange(256 - SIDE)
    part = sample[top : top + SIDE, left : left + SIDE]
    part = part[:, ::-1] if random.random() < 0.5 else part
    return np.ascontiguousarray(part.transpose(2, 0, 1), dtype=np.float32) / 255


def in_memory() -> Any:
    """Rows of numbers with labels, as a TensorDataset."""
    torch = importlib.import_module("torch")
    rows = torch.rand(ROWS, COLUMNS), torch.randint(0, 10, (ROWS,))
    return importlib.import_module("torch.utils.data").TensorDataset(*rows)


def large_samples() -> RepeatedData:
    """A tensor of 600 kB, without any work."""
    return RepeatedData([importlib.import_module("torch").rand(3, SIDE, SIDE)], 64 * 30)


def tiny_batches() -> RepeatedData:
    """Numbers."""
    return RepeatedData(list(range(1000)), 8 * 2000)


def latency() -> RepeatedData:
    """Small tensors, 5 ms each."""
    return RepeatedData([importlib.import_module("torch").rand(64)], 2048, late)


def augment() -> RepeatedData:
    """256×256 pictures of 8 bits."""
    made = np.random.default_rng(0).integers(0, 256, (16, 256, 256, 3), dtype=np.uint8)
    return RepeatedData(list(made), 1024, augmented)


def jpeg() -> RepeatedData:
    """500×375 pictures, encoded."""
    return RepeatedData(_encoded(PICTURES), 1024, decoded)


def _encoded(count: int) -> list[bytes]:
    """Pictures that compress about as well as photographs: soft blobs of three sizes, and grain."""
    pillow = extra("PIL.Image", "images", "the workload jpeg")
    draw, files = np.random.default_rng(0), []
    for _ in range(count):
        pixels = draw.normal(128, 6, (HEIGHT, WIDTH, 3)).astype(np.float32)
        for cells in (8, 24, 72):
            coarse = pillow.fromarray(draw.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
            pixels += (np.asarray(coarse.resize((WIDTH, HEIGHT))) - np.float32(128)) / 3
        file = io.BytesIO()
        pillow.fromarray(np.clip(pixels, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def text() -> RepeatedData:
    """Sequences of words as numbers, of log-normal lengths."""
    draw = np.random.default_rng(0)
    lengths = np.clip(draw.lognormal(4.5, 0.7, WORDS), 1, 512).astype(int)
    torch = importlib.import_module("torch")
    return RepeatedData([torch.from_numpy(draw.integers(0, 50_000, length)) for length in lengths], 20_000)


def padded(samples: list[Any]) -> Any:
    """The usual collate_fn for them."""
    return importlib.import_module("torch.nn.utils.rnn").pad_sequence(samples, batch_first=True)
