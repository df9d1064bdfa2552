"""Object detection: images of different sizes in one tensor, each image's boxes its own.

    python examples/detection.py

Shows a batch, and checks for every box that it surrounds something in its image.
"""

from __future__ import annotations

import sys

import torch

from feedline.torch import DataLoader, Dataset
from feedline.torch.collate import detection

SMALLEST, LARGEST = 64, 96


class Scenes(Dataset):
    """Dark noisy images with 0 to 4 bright rectangles. Boxes are (left, top, right, bottom)."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, index: int) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        generator = torch.Generator().manual_seed(index)
        high, wide = torch.randint(SMALLEST, LARGEST, (2,), generator=generator).tolist()
        image = torch.rand(3, high, wide, generator=generator) * 0.2
        corners, labels = [], []
        for _ in range(int(torch.randint(0, 5, (), generator=generator))):
            left, top = torch.randint(0, SMALLEST - 24, (2,), generator=generator).tolist()
            width, height = torch.randint(8, 24, (2,), generator=generator).tolist()
            label = int(torch.randint(0, 3, (), generator=generator))
            image[label, top : top + height, left : left + width] = 1.0
            corners.append([left, top, left + width, top + height])
            labels.append(label)
        boxes = torch.tensor(corners, dtype=torch.float32).reshape(-1, 4)  # maybe none
        return image, {"boxes": boxes, "labels": torch.tensor(labels, dtype=torch.long)}


def is_bright(image: torch.Tensor, box: torch.Tensor, label: torch.Tensor) -> bool:
    left, top, right, bottom = box.int().tolist()
    return bool((image[label, top:bottom, left:right] == 1).all())


def main() -> int:
    torch.manual_seed(0)
    images = boxes = surrounding = 0
    with DataLoader(Scenes(), 16, shuffle=True, num_workers=2, collate=detection(multiple=32)) as loader:
        for number, batch in enumerate(loader):
            if number == 0:
                print(f"images: {list(batch.images.shape)}, {batch.images.dtype}")
                print(f"sizes of the first four: {batch.sizes[:4].tolist()}")
                print(f"boxes per image: {[len(target['boxes']) for target in batch.targets]}")
            images += len(batch.images)
            for image, target in zip(batch.images, batch.targets, strict=True):
                pairs = zip(target["boxes"], target["labels"], strict=True)
                boxes += len(target["boxes"])
                surrounding += sum(is_bright(image, box, label) for box, label in pairs)
    share = loader.stats().collate.padding
    print(f"padding: {share:.0%} of the pixels")
    print(f"{images} images, {boxes} boxes, {surrounding} of them around an object of their own image")
    return 0 if images == 200 and boxes == surrounding > 200 and share > 0 else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
