"""Training from a folder of pictures, one folder for each class, with one damaged file among them.

    python examples/image_folder.py

Shows that the pictures are decoded and augmented alike by any number of workers, that the damaged one is left out and
named, and that the network learns.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn

from feedline.sources import FolderDataset
from feedline.torch import DataLoader, rng

CLASSES = ("dots", "stripes", "waves")
EACH, SIDE, EPOCHS = 40, 32, 3


def draw(name: str, random: np.random.Generator) -> np.ndarray:
    """A pattern in a colour of its own, 200 × 150 pixels."""
    down, across = np.mgrid[0:150, 0:200] / random.uniform(6, 10) + random.uniform(0, 9)
    pattern = {
        "dots": np.sin(down) * np.sin(across),
        "stripes": np.sin(across),
        "waves": np.sin(down + 2 * np.sin(across / 2)),
    }[name]
    return (pattern[..., None] * random.uniform(40, 90, 3) + random.uniform(100, 150, 3)).astype(np.uint8)


def write(root: Path) -> None:
    random = np.random.default_rng(0)
    for name in CLASSES:
        (root / name).mkdir()
        for number in range(EACH):
            Image.fromarray(draw(name, random)).save(root / name / f"{number:03}.jpg")
    broken = root / "stripes" / "017.jpg"
    broken.write_bytes(broken.read_bytes()[:2000])


def augmented(pixels: np.ndarray) -> np.ndarray:
    """(32, 32, 3) bytes to (3, 32, 32) floats, mirrored or not: by this sample's random numbers in this epoch."""
    if rng().random() < 0.5:
        pixels = pixels[:, ::-1]
    return pixels.transpose(2, 0, 1).astype(np.float32) / 127.5 - 1


def network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(32, len(CLASSES)),
    )


def train(model: nn.Module, loader: DataLoader) -> float:
    """The last epoch's accuracy."""
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(EPOCHS):
        right = seen = 0
        for images, labels in loader:
            scores = model(images)
            optimizer.zero_grad()
            nn.functional.cross_entropy(scores, labels).backward()
            optimizer.step()
            right += int((scores.argmax(1) == labels).sum())
            seen += len(labels)
        print(f"epoch {epoch + 1}: {seen} pictures, {right / seen:.0%} right")
    return right / seen


def first_epoch(data: FolderDataset, workers: int) -> list[torch.Tensor]:
    torch.manual_seed(7)
    with DataLoader(data, 16, shuffle=True, num_workers=workers, on_error="skip") as loader:
        return [images for images, _ in loader]


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # leaves the other cores to the workers
    logging.getLogger("feedline").setLevel(logging.ERROR)  # it would tell of the damaged picture each time
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        data = FolderDataset(folder, size=(SIDE, SIDE), transform=augmented)
        print(f"{len(data)} pictures of {', '.join(data.classes)}")
        with DataLoader(
            data, 16, shuffle=True, num_workers=2, persistent_workers=True, on_error="skip", max_errors=0.05
        ) as loader:
            reached = train(network(), loader)
            left_out = {error.what for error in loader.errors()}
        print(f"left out: {', '.join(Path(path).relative_to(folder).as_posix() for path in left_out)}")
        alone, together = first_epoch(data, 0), first_epoch(data, 2)
    same = all(torch.equal(one, other) for one, other in zip(alone, together, strict=True))
    print(f"the same batches with 0 and 2 workers: {'yes' if same else 'NO'}")
    return 0 if same and reached > 0.8 and len(left_out) == 1 else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
