"""Object detection: images of one size are stacked, each image's boxes stay its own tensor.

    python examples/detection.py

Shows a batch, and checks for every box that it surrounds something in its image.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import torch

from feedline.torch import DataLoader, Dataset

SIZE = 96


class Batch(NamedTuple):
    """Images as one tensor, the rest with one entry per image."""

    images: torch.Tensor
    boxes: list[torch.Tensor]
    labels: list[torch.Tensor]


class Scenes(Dataset):
    """Dark noisy images with 0 to 4 bright rectangles. Boxes are (left, top, right, bottom)."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        generator = torch.Generator().manual_seed(index)
        image = torch.rand(3, SIZE, SIZE, generator=generator) * 0.2
        corners, labels = [], []
        for _ in range(int(torch.randint(0, 5, (), generator=generator))):
            left, top = torch.randint(0, SIZE - 24, (2,), generator=generator).tolist()
            width, height = torch.randint(8, 24, (2,), generator=generator).tolist()
            label = int(torch.randint(0, 3, (), generator=generator))
            image[label, top : top + height, left : left + width] = 1.0
            corners.append([left, top, left + width, top + height])
            labels.append(label)
        return image, torch.tensor(corners, dtype=torch.float32).reshape(-1, 4), torch.tensor(labels, dtype=torch.long)


def keep_boxes(samples: list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]) -> Batch:
    """Stack what has one shape; list what has as many rows as its image has objects, maybe none."""
    images, boxes, labels = zip(*samples, strict=True)
    return Batch(torch.stack(images), list(boxes), list(labels))


def is_bright(image: torch.Tensor, box: torch.Tensor, label: torch.Tensor) -> bool:
    left, top, right, bottom = box.int().tolist()
    return bool((image[label, top:bottom, left:right] == 1).all())


def main() -> int:
    torch.manual_seed(0)
    images = boxes = surrounding = 0
    with DataLoader(Scenes(), 16, shuffle=True, num_workers=2, collate_fn=keep_boxes) as loader:
        for number, batch in enumerate(loader):
            if number == 0:
                print(f"images: {list(batch.images.shape)}, {batch.images.dtype}")
                print(f"boxes per image: {[len(rows) for rows in batch.boxes]}")
                print(f"boxes of the first image:\n{batch.boxes[0]}")
            images += len(batch.images)
            for image, rows, labels in zip(*batch, strict=True):
                boxes += len(rows)
                surrounding += sum(is_bright(image, box, label) for box, label in zip(rows, labels, strict=True))
    print(f"{images} images, {boxes} boxes, {surrounding} of them around an object of their own image")
    return 0 if images == 200 and boxes == surrounding > 200 else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
