"""feedline for PyTorch: change one import line.

    from feedline.torch import DataLoader          # instead of torch.utils.data

Datasets, samplers and functions are torch's own; only the loader's engine is feedline's, and whatever torch does not
have. (feedline's samplers with torch's names, such as WeightedRandomSampler, work too: they are in `feedline`.)
Importing this package imports torch; `import feedline` does not.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

from feedline import errors
from feedline.datasets import Mixture, MixtureStream
from feedline.datasets.shared_list import SharedList
from feedline.order.blocks import BlockSampler
from feedline.order.buckets import BucketBatchSampler
from feedline.order.lengths import lengths_of
from feedline.order.mixing import MixtureSampler
from feedline.order.sampler import BatchOrderSampler
from feedline.order.stratified import StratifiedBatchSampler
from feedline.order.weighted import weights_from_labels
from feedline.practice.largest import largest_batch
from feedline.practice.learning_rate import scale_learning_rate, warmup
from feedline.practice.micro_batches import accumulate
from feedline.randomness.rng import rng
from feedline.torch import collate
from feedline.torch.adopt import with_feedline
from feedline.torch.loader import DataLoader
from feedline.torch.noise import gradient_noise
from feedline.torch.splitting import split
from feedline.torch.stateful_loader import StatefulDataLoader

if TYPE_CHECKING:
    from feedline.diagnose.doctor.consult import doctor
    from feedline.diagnose.preflight import preflight
    from feedline.diagnose.tune.tuner import tune

_ON_DEMAND = ("doctor", "preflight", "tune")
"""Names of `feedline` that are imported when they are first used."""

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
    "MixtureStream",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "SharedList",
    "StackDataset",
    "StatefulDataLoader",
    "StratifiedBatchSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "accumulate",
    "collate",
    "default_collate",
    "default_convert",
    "doctor",
    "errors",
    "get_worker_info",
    "gradient_noise",
    "largest_batch",
    "lengths_of",
    "preflight",
    "random_split",
    "rng",
    "scale_learning_rate",
    "split",
    "tune",
    "warmup",
    "weights_from_labels",
    "with_feedline",
]


def __getattr__(name: str) -> Any:
    """Everything else in torch's module: data pipes and the like."""
    if name in torch.utils.data.__all__:
        return getattr(torch.utils.data, name)
    if name in _ON_DEMAND:
        return getattr(import_module("feedline"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
