"""feedline for PyTorch: change one import line.

    from feedline.torch import DataLoader          # instead of torch.utils.data

Datasets, samplers and functions are torch's own; only the loader's engine is feedline's, and what torch has no name
for. (feedline's samplers of torch's names, such as WeightedRandomSampler, work too: they are in `feedline`.) Importing
this imports torch; `import feedline` does not.
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

from feedline.datasets import Mixture
from feedline.order.blocks import BlockSampler
from feedline.order.buckets import BucketBatchSampler
from feedline.order.lengths import lengths_of
from feedline.order.mixing import MixtureSampler
from feedline.order.sampler import BatchOrderSampler
from feedline.order.stratified import StratifiedBatchSampler
from feedline.order.weighted import weights_from_labels
from feedline.randomness.rng import rng
from feedline.torch.adopt import with_feedline
from feedline.torch.collators import compose, detection, drop_invalid, keep, pack, pad, stack
from feedline.torch.loader import DataLoader
from feedline.torch.noise import measure_gradient_noise
from feedline.torch.splitting import split
from feedline.torch.stateful_loader import StatefulDataLoader

__all__ = [
    "BatchOrderSampler",
    "BatchSampler",
    "BlockSampler",
    "BucketBatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterableDataset",
    "Mixture",
    "MixtureSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "StatefulDataLoader",
    "StratifiedBatchSampler",
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
    "lengths_of",
    "measure_gradient_noise",
    "pack",
    "pad",
    "random_split",
    "rng",
    "split",
    "stack",
    "weights_from_labels",
    "with_feedline",
]


def __getattr__(name: str) -> Any:
    """Whatever else torch's module has: data pipes and the like."""
    if name in torch.utils.data.__all__:
        return getattr(torch.utils.data, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
