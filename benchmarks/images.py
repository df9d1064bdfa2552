"""JPEG files of 500×375 pixels to 224×224: FolderDataset against Pillow, and against torch's loader.

One core: the same files, read, decoded and resized by feedline's dataset and by Pillow alone, no loader at all.
(Pillow's resize() is bicubic unless told otherwise; torchvision tells it to be bilinear, as we are: both are measured.)
Two workers: each library's loader, torch's with a dataset as people write it.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from harness import AT_LEAST, Case, Samples, Workload, epochs, serve
from jpeg import BATCH, FILES, SIDE, folder_of_pictures

CLASSES, LENGTH = 4, 512


def folder_of_classes() -> Path:
    """The pictures of jpeg.py twice over, in class folders."""
    folder = Path(tempfile.gettempdir()) / "feedline-bench-images"
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp())
        for number, path in enumerate(sorted(folder_of_pictures().glob("*.jpg")) * (LENGTH // FILES)):
            target = unfinished / f"class{number % CLASSES}" / f"{number:04}.jpg"
            target.parent.mkdir(exist_ok=True)
            shutil.copyfile(path, target)
        unfinished.rename(folder)
    return folder


class Usual:
    """As it is mostly written: torchvision's ImageFolder, Resize and ToTensor, by hand."""

    def __init__(self, bilinear: bool = False) -> None:
        self.paths = sorted(str(path) for path in folder_of_classes().glob("*/*.jpg"))
        self.filter = Image.Resampling.BILINEAR if bilinear else Image.Resampling.BICUBIC

    def __len__(self) -> int:
        return len(self.paths)

    def pixels(self, index: int) -> np.ndarray:
        with Image.open(self.paths[index]) as image:
            return np.asarray(image.convert("RGB").resize((SIDE, SIDE), self.filter))

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        pixels = self.pixels(index).astype(np.float32)
        return pixels.transpose(2, 0, 1) / 255, index % CLASSES


def one_core(read: Any) -> Samples:
    """Samples by the second of processor time: other programs do not count."""
    while True:
        done, started = 0, time.process_time()
        while time.process_time() - started < AT_LEAST:
            for index in range(0, LENGTH, 8):
                read(index)
            done += LENGTH // 8
        yield {"samples/s": done / (time.process_time() - started)}


def options(workers: int) -> dict[str, Any]:
    return {"batch_size": BATCH, "shuffle": True, "num_workers": workers, "persistent_workers": True}


def with_feedline(workers: int) -> Samples:
    from feedline import DataLoader
    from feedline.sources import FolderDataset

    data = FolderDataset(folder_of_classes(), size=(SIDE, SIDE))
    if not workers:
        yield from one_core(data.__getitem__)
    with DataLoader(data, **options(workers)) as loader:
        yield from epochs(loader, LENGTH)


def with_pillow(workers: int) -> Samples:
    yield from one_core(Usual().pixels)


def with_pillow_bilinear(workers: int) -> Samples:
    yield from one_core(Usual(bilinear=True).pixels)


def with_torch(workers: int) -> Samples:
    from torch.utils.data import DataLoader

    yield from epochs(DataLoader(Usual(), **options(workers)), LENGTH)


NO_LOADER = {"torch": "no loader is asked for"}
LOADERS_ONLY = dict.fromkeys(("Pillow", "Pillow, bilinear"), "has no loader")

WORKLOAD = Workload(
    name="images",
    metrics={"samples/s": "more"},
    cases=[
        Case("500×375 to 224, one core", {"workers": 0}, targets={"Pillow": 2.5}, skips=NO_LOADER),
        Case("500×375 to 224, 2 workers", {"workers": 2}, targets={"torch": 2.5}, skips=LOADERS_ONLY),
    ],
    sides={
        "feedline": with_feedline,
        "Pillow": with_pillow,
        "Pillow, bilinear": with_pillow_bilinear,
        "torch": with_torch,
    },
)

if __name__ == "__main__":
    serve(WORKLOAD)
