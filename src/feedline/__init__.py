"""feedline keeps training loops fed: a faster, unbreakable, resumable data loader.

    from feedline import DataLoader, Dataset

Imports flow downward only (held by import-linter):

    cli  →  diagnose  →  loader  →  workers  →  supervise  →  line | arena | observe  →  datasets, options, rng, errors

Importing feedline imports NumPy and the standard library, nothing else. What only looks at things (diagnose) is
imported when it is asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from feedline.stats import Stats, WorkerMemory
from feedline.worker_info import WorkerInfo, get_worker_info

if TYPE_CHECKING:
    from feedline.diagnose.findings import Finding
    from feedline.diagnose.preflight import preflight

__version__ = "0.1.0"

_ON_DEMAND = {"Finding": "feedline.diagnose.findings", "preflight": "feedline.diagnose.preflight"}

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
    "Finding",
    "IterableDataset",
    "MemoryShortage",
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
    "default_collate",
    "get_worker_info",
    "preflight",
    "random_split",
    "register_collate",
    "rng",
]


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'feedline' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_ON_DEMAND[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
