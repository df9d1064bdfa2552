"""One patient in a hundred: what batches look like shuffled, drawn with weights, and stratified.

    python examples/imbalanced_classes.py

Shows the class counts of the first batches each way, and that the last two have what they promise.
"""

from __future__ import annotations

import sys

import torch

from feedline.torch import (
    DataLoader,
    StratifiedBatchSampler,
    TensorDataset,
    WeightedRandomSampler,
    weights_from_labels,
)

CLASSES = {"healthy": 9_500, "benign": 400, "malignant": 100}
BATCH = 64


def made_data() -> TensorDataset:
    labels = torch.repeat_interleave(torch.arange(len(CLASSES)), torch.tensor(list(CLASSES.values())))
    features = labels[:, None] + torch.randn(len(labels), 8, generator=torch.Generator().manual_seed(0))
    return TensorDataset(features, labels)


def counts_per_batch(data: TensorDataset, **options: object) -> torch.Tensor:
    """One row per batch, one column per class."""
    loader = DataLoader(data, num_workers=2, **options)
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
    shuffled = counts_per_batch(data, batch_size=BATCH, shuffle=True)
    show("shuffled: each sample once", shuffled)

    # Balanced on average: a sample's weight is one over the size of its class.
    weighted = WeightedRandomSampler(weights_from_labels(labels), num_samples=len(labels))
    drawn = counts_per_batch(data, batch_size=BATCH, sampler=weighted)
    show("weighted: each class equally often", drawn)

    # As the data is, but no batch without any: rare samples are gone through again and again.
    even = counts_per_batch(data, batch_sampler=StratifiedBatchSampler(labels, BATCH))
    show("stratified: each sample at least once, each class in each batch", even)

    share = drawn.sum(0) / drawn.sum()
    balanced = bool(((share - 1 / len(CLASSES)).abs() < 0.03).all()) and bool((drawn > 0).all())
    print(f"\nweighted: each class about a third, and in every batch: {'yes' if balanced else 'NO'}")
    alike = bool((even > 0).all()) and bool((even.max(0).values - even.min(0).values <= 1).all())
    print(f"stratified: every class in every batch, any two batches alike: {'yes' if alike else 'NO'}")
    return 0 if balanced and alike and torch.equal(shuffled.sum(0), labels.bincount()) else 1


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
