"""feedline for PyTorch: change one import line.

    from feedline.torch import DataLoader          # instead of torch.utils.data

Datasets, samplers and functions are torch's own; only the loader's engine is feedline's. Importing this imports torch;
`import feedline` does not.
"""

from typing import Any

import torch.utils.data
from torch.utils.data import (
    BatchSampler,
    ChainDataset,
    ConcatDataset,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    StackDataset,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
    default_convert,
    get_worker_info,
    random_split,
)

from feedline.rng import rng
from feedline.torch.adopt import with_feedline
from feedline.torch.collators import compose, detection, drop_invalid, keep, pack, pad, stack
from feedline.torch.loader import DataLoader

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "compose",
    "default_collate",
    "default_convert",
    "detection",
    "drop_invalid",
    "get_worker_info",
    "keep",
    "pack",
    "pad",
    "random_split",
    "rng",
    "stack",
    "with_feedline",
]


def __getattr__(name: str) -> Any:
    """Whatever else torch's module has: data pipes and the like."""
    if name in torch.utils.data.__all__:
        return getattr(torch.utils.data, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
