"""One class in a hundred: what a batch looks like without and with weighted sampling.

    python examples/imbalanced_classes.py

Shows the class counts of the first batches, shuffled as they are and drawn with weights.
"""

from __future__ import annotations

import sys

import torch

from feedline.torch import DataLoader, TensorDataset, WeightedRandomSampler

CLASSES = {"common": 9_500, "rare": 400, "very rare": 100}
BATCH = 64


def made_data() -> TensorDataset:
    labels = torch.repeat_interleave(torch.arange(len(CLASSES)), torch.tensor(list(CLASSES.values())))
    features = labels[:, None] + torch.randn(len(labels), 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(features, labels)


def balancing(labels: torch.Tensor) -> WeightedRandomSampler:
    """Draws each class equally often: a sample's weight is one over the size of its class."""
    weights = 1 / labels.bincount()[labels]
    return WeightedRandomSampler(weights.tolist(), num_samples=len(labels), replacement=True)


def counts_per_batch(loader: DataLoader) -> torch.Tensor:
    """One row per batch, one column per class."""
    return torch.stack([labels.bincount(minlength=len(CLASSES)) for _, labels in loader])


def show(title: str, counts: torch.Tensor) -> None:
    print(f"\n{title}\n{'':10}" + "".join(f"{name:>11}" for name in CLASSES))
    for number, row in enumerate(counts[:4].tolist()):
        print(f"batch {number:<4}" + "".join(f"{count:11}" for count in row))
    print("all       " + "".join(f"{share:11.1%}" for share in (counts.sum(0) / counts.sum()).tolist()))
    without = int((counts == 0).any(1).sum())
    print(f"{without} of {len(counts)} batches lack a class")


def main() -> int:
    torch.manual_seed(0)
    data = made_data()
    labels = data.tensors[1]
    options = {"batch_size": BATCH, "num_workers": 2}
    before = counts_per_batch(DataLoader(data, shuffle=True, **options))
    after = counts_per_batch(DataLoader(data, sampler=balancing(labels), **options))
    show("shuffled: each sample once", before)
    show("weighted: each class equally often", after)
    share = after.sum(0) / after.sum()
    balanced = bool(((share - 1 / len(CLASSES)).abs() < 0.03).all()) and bool((after > 0).all())
    print(f"\neach class about a third, and in every batch: {'yes' if balanced else 'NO'}")
    return 0 if balanced and torch.equal(before.sum(0), labels.bincount()) else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
