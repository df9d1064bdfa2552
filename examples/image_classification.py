"""Training an image classifier: a dataset that makes its images on demand, augmentation, two worker processes.

    python examples/image_classification.py

Shows that the network learns, and that two workers give the very batches that no worker gives, augmentation included.
"""

from __future__ import annotations

import sys

import torch
from torch import nn

from feedline.torch import DataLoader, Dataset, rng

CLASSES = ("square", "cross", "stripes")
SIZE, EPOCHS = 32, 2


class Shapes(Dataset):
    """Image i is always the same image; with `augment` it is mirrored or not, differently in each epoch."""

    def __init__(self, first: int, count: int, augment: bool = False) -> None:
        self.first, self.count, self.augment = first, count, augment

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        number = self.first + index
        label = number % len(CLASSES)
        image = draw(CLASSES[label], torch.Generator().manual_seed(number))
        if self.augment and rng().random() < 0.5:  # rng(): a NumPy generator for this sample in this epoch
            image = image.flip(-1)
        return image, label


def draw(name: str, generator: torch.Generator) -> torch.Tensor:
    """A bright shape somewhere, in noise."""
    y, x = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    down, across = torch.randint(10, SIZE - 10, (2,), generator=generator).tolist()
    y, x = (y - down).abs(), (x - across).abs()
    inside = {
        "square": (y < 7) & (x < 7),
        "cross": ((y < 2) & (x < 9)) | ((x < 2) & (y < 9)),
        "stripes": (y % 6 < 3) & (x < 9),
    }[name]
    return inside + torch.randn(3, SIZE, SIZE, generator=generator) * 0.5


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


def train(model: nn.Module, loader: DataLoader) -> None:
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for epoch in range(EPOCHS):
        losses = []
        for images, labels in loader:
            with loader.step():  # so that the numbers below tell the step from what is around it
                loss = nn.functional.cross_entropy(model(images), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
        seen = loader.stats().epoch
        took = f"{seen.seconds:.1f} s: {seen.step_share:.0%} steps, {seen.starved_share:.0%} waiting for batches"
        print(f"epoch {epoch + 1}: loss {sum(losses) / len(losses):.3f}, {took}")


def accuracy(model: nn.Module, loader: DataLoader) -> float:
    with torch.no_grad():
        right = [(model(images).argmax(1) == labels).float() for images, labels in loader]
    return torch.cat(right).mean().item()


def same_batches(data: Dataset) -> bool:
    """Are an epoch's batches the same with no worker and with two, for the same seed?"""
    epochs = []
    for workers in (0, 2):
        torch.manual_seed(7)
        epochs.append(list(DataLoader(data, batch_size=32, shuffle=True, num_workers=workers)))
    return all(torch.equal(one[0], other[0]) for one, other in zip(*epochs, strict=True))


def main() -> int:
    torch.manual_seed(0)
    torch.set_num_threads(1)  # leaves the other cores to the workers
    training, validation = Shapes(0, 900, augment=True), Shapes(900, 300)
    model = network()
    with DataLoader(training, 32, shuffle=True, num_workers=2, persistent_workers=True) as loader:
        train(model, loader)
    reached = accuracy(model, DataLoader(validation, 100))
    same = same_batches(Shapes(0, 200, augment=True))
    print(f"validation accuracy {reached:.1%}")
    print(f"the same batches with 0 and 2 workers: {'yes' if same else 'NO'}")
    return 0 if reached > 0.8 and same else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
