"""JPEG files decoded and resized by Pillow in two workers: the decoder should be all that costs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from harness import Case, Samples, Workload, epochs, serve

FILES, LENGTH, BATCH = 256, 512, 32
WIDTH, HEIGHT, SIDE = 500, 375, 224


def picture(random: np.random.Generator, grain: np.ndarray) -> Image.Image:
    """Something that compresses like a photograph: a gradient, soft blobs of three sizes, fine grain."""
    down, across = np.linspace(-1, 1, HEIGHT, dtype=np.float32), np.linspace(-1, 1, WIDTH, dtype=np.float32)
    pixels = np.roll(grain, random.integers(0, WIDTH, 2), (0, 1))[..., None] + np.float32(128)
    pixels = pixels + down[:, None, None] * random.normal(0, 40, 3).astype(np.float32)
    pixels += across[None, :, None] * random.normal(0, 40, 3).astype(np.float32)
    for cells in (8, 24, 72):
        coarse = Image.fromarray(random.integers(0, 256, (cells, cells, 3), dtype=np.uint8))
        pixels += (np.asarray(coarse.resize((WIDTH, HEIGHT))) - np.float32(128)) / 3
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def folder_of_pictures() -> Path:
    """The files, written by whichever side comes first; both sides read the same ones."""
    folder = Path(tempfile.gettempdir()) / "feedline-bench-jpeg"
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp())
        random = np.random.default_rng(0)
        grain = random.normal(0, 6, (HEIGHT, WIDTH)).astype(np.float32)
        for number in range(FILES):
            picture(random, grain).save(unfinished / f"{number:04}.jpg", quality=90)
        os.rename(unfinished, folder)
    return folder


class Pictures:
    def __init__(self, folder: Path) -> None:
        self.paths = sorted(str(path) for path in folder.glob("*.jpg"))

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        with Image.open(self.paths[index % len(self.paths)]) as image:
            pixels = np.asarray(image.convert("RGB").resize((SIDE, SIDE)), dtype=np.float32)
        return pixels.transpose(2, 0, 1) / 255, index % 10


OPTIONS: dict[str, Any] = {"batch_size": BATCH, "shuffle": True, "num_workers": 2, "persistent_workers": True}


def with_feedline() -> Samples:
    from feedline import DataLoader

    with DataLoader(Pictures(folder_of_pictures()), **OPTIONS) as loader:
        yield from epochs(loader, LENGTH)


def with_torch() -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(Pictures(folder_of_pictures()), **OPTIONS), LENGTH)


WORKLOAD = Workload(
    name="jpeg",
    metrics={"samples/s": "more"},
    cases=[Case("500×375 Pillow, 2 workers", targets={"torch": 1.1})],
    sides={"feedline": with_feedline, "torch": with_torch},
)

if __name__ == "__main__":
    serve(WORKLOAD)
