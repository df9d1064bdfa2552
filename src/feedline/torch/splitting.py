"""Train, validation and test, as torch's Subsets.

Takes and promises the same as `feedline.split`. Gives: `torch.utils.data.Subset`, from which this package's loader
reads whole batches if the dataset inside allows it.
Not its job: which sample goes where (datasets/splitting).
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any, TypeVar, cast

from torch.utils.data import Dataset, Subset

from feedline.datasets import IntArray, length_of, split_indices

T = TypeVar("T")


def split(
    dataset: Dataset[T],
    fractions: Mapping[str, float],
    *,
    labels: Any = None,
    groups: Any = None,
    keys: Any = None,
    seed: int = 0,
) -> dict[str, Subset[T]]:
    """`feedline.split` for torch: the same samples in each part, as torch's Subsets.

    >>> import torch
    >>> from feedline.torch import TensorDataset, split
    >>> parts = split(TensorDataset(torch.arange(10)), {"train": 0.8, "test": 0.2}, seed=1)
    >>> {name: [x.item() for x, in part] for name, part in parts.items()}
    {'train': [0, 1, 2, 4, 5, 7, 8, 9], 'test': [3, 6]}
    """
    size = length_of(dataset, "dataset")
    indices = split_indices(size, fractions, labels=labels, groups=groups, keys=keys, seed=seed)
    return {name: Subset(dataset, cast(Any, _packed(part))) for name, part in indices.items()}


def _packed(part: IntArray) -> array[int]:
    """Eight bytes per index, like NumPy's array, but its items are Python ints: a dataset may need them."""
    packed = array("q")
    packed.frombytes(part.tobytes())
    return packed
