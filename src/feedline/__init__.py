"""feedline keeps training loops fed: a faster, unbreakable, resumable data loader.

    from feedline import DataLoader, Dataset

Imports flow downward only (held by import-linter):

    loader  →  workers  →  supervise  →  line | arena | observe  →  datasets, options, rng, errors, messages

Importing feedline imports NumPy and the standard library, nothing else.
"""

from feedline.datasets import (
    ArrayDataset,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Mixture,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
    split,
)
from feedline.errors import (
    CollateError,
    CollateTypeError,
    FeedlineError,
    MemoryShortage,
    OptionError,
    OptionTypeError,
    RemoteError,
    ShippingError,
    StalledSample,
    StateError,
    TooManyErrors,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from feedline.line.collate import default_collate, register_collate
from feedline.line.mixing import MixtureSampler
from feedline.line.ranks import DistributedSampler
from feedline.line.sampler import Sampler
from feedline.line.samplers import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from feedline.line.weighted import WeightedRandomSampler
from feedline.loader import DataLoader
from feedline.practice.largest import largest_batch
from feedline.practice.learning_rate import scale_learning_rate, warmup
from feedline.practice.micro_batches import accumulate
from feedline.practice.noise import gradient_noise
from feedline.rng import rng
from feedline.shared_list import SharedList
from feedline.stats import Stats, WorkerMemory
from feedline.worker_info import WorkerInfo, get_worker_info

__version__ = "0.1.0"

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "ChainDataset",
    "CollateError",
    "CollateTypeError",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "FeedlineError",
    "IterableDataset",
    "MemoryShortage",
    "Mixture",
    "MixtureSampler",
    "OptionError",
    "OptionTypeError",
    "RandomSampler",
    "RemoteError",
    "Sampler",
    "SequentialSampler",
    "SharedList",
    "ShippingError",
    "StackDataset",
    "StalledSample",
    "StateError",
    "Stats",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "TooManyErrors",
    "WeightedRandomSampler",
    "WorkerDied",
    "WorkerError",
    "WorkerInfo",
    "WorkerMemory",
    "WorkerTimeout",
    "accumulate",
    "default_collate",
    "get_worker_info",
    "gradient_noise",
    "largest_batch",
    "random_split",
    "register_collate",
    "rng",
    "scale_learning_rate",
    "split",
    "warmup",
]
