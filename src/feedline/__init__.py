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
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
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
from feedline.line.collators import (
    Collator,
    DetectionBatch,
    PackedBatch,
    Padded,
    compose,
    detection,
    drop_invalid,
    keep,
    pack,
    pad,
    stack,
)
from feedline.line.ranks import DistributedSampler
from feedline.line.samplers import (
    BatchSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from feedline.loader import DataLoader
from feedline.rng import rng
from feedline.shared_list import SharedList
from feedline.stats import CollateStats, Flow, Stats, WorkerMemory
from feedline.worker_info import WorkerInfo, get_worker_info

__version__ = "0.1.0"

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "ChainDataset",
    "CollateError",
    "CollateStats",
    "CollateTypeError",
    "Collator",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DetectionBatch",
    "DistributedSampler",
    "FeedlineError",
    "Flow",
    "IterableDataset",
    "MemoryShortage",
    "OptionError",
    "OptionTypeError",
    "PackedBatch",
    "Padded",
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
    "compose",
    "default_collate",
    "detection",
    "drop_invalid",
    "get_worker_info",
    "keep",
    "pack",
    "pad",
    "random_split",
    "register_collate",
    "rng",
    "stack",
]
