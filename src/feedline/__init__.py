"""feedline keeps training loops fed: a faster, unbreakable, resumable data loader.

    from feedline import DataLoader, Dataset

Imports flow downward only (docs/design.md shows the layers, import-linter enforces them).
Importing feedline imports only NumPy and the standard library. The package diagnose, which only inspects, is imported
when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feedline import collate, errors
from feedline.collate.default import default_collate, register_collate
from feedline.datasets import (
    ArrayDataset,
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Mixture,
    MixtureStream,
    StackDataset,
    Subset,
    TensorDataset,
    random_split,
    split,
)
from feedline.datasets.shared_list import SharedList
from feedline.errors import (
    CollateError,
    CollateTypeError,
    FeedlineError,
    MemoryShortage,
    MissingPackage,
    OptionError,
    OptionTypeError,
    RemoteError,
    ShippingError,
    SourceError,
    StalledSample,
    StateError,
    TooManyErrors,
    WorkerDied,
    WorkerError,
    WorkerTimeout,
)
from feedline.loader import DataLoader
from feedline.machine.worker_info import WorkerInfo, get_worker_info
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.stats import AutoWorkers, CollateStats, SourceStats, Stats, WorkerChange, WorkerMemory
from feedline.order.blocks import BlockSampler
from feedline.order.buckets import BucketBatchSampler
from feedline.order.lengths import lengths_of
from feedline.order.mixing import MixtureSampler
from feedline.order.ranks import DistributedSampler
from feedline.order.sampler import BatchOrderSampler, Sampler
from feedline.order.samplers import BatchSampler, RandomSampler, SequentialSampler, SubsetRandomSampler
from feedline.order.stratified import StratifiedBatchSampler
from feedline.order.weighted import WeightedRandomSampler, weights_from_labels
from feedline.practice.largest import largest_batch
from feedline.practice.learning_rate import scale_learning_rate, warmup
from feedline.practice.micro_batches import accumulate
from feedline.practice.noise import gradient_noise
from feedline.randomness.rng import rng
from feedline.workers.one_thread import threads_per_worker

if TYPE_CHECKING:
    from feedline.diagnose.doctor.consult import doctor
    from feedline.diagnose.findings import Finding
    from feedline.diagnose.preflight import preflight
    from feedline.diagnose.tune.tune_page import TuneResult
    from feedline.diagnose.tune.tuner import tune
    from feedline.sources.samples.materializing import materialize
    from feedline.sources.samples.sample_cache import cached

__version__ = "0.1.0"

_ON_DEMAND = {
    "Finding": "feedline.diagnose.findings",
    "TuneResult": "feedline.diagnose.tune.tune_page",
    "cached": "feedline.sources.samples.sample_cache",
    "materialize": "feedline.sources.samples.materializing",
    "doctor": "feedline.diagnose.doctor.consult",
    "preflight": "feedline.diagnose.preflight",
    "tune": "feedline.diagnose.tune.tuner",
}

__all__ = [
    "ArrayDataset",
    "AutoWorkers",
    "BatchOrderSampler",
    "BatchSampler",
    "BlockSampler",
    "BucketBatchSampler",
    "ChainDataset",
    "CollateError",
    "CollateStats",
    "CollateTypeError",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "EpochStats",
    "FeedlineError",
    "Finding",
    "IterableDataset",
    "MemoryShortage",
    "MissingPackage",
    "Mixture",
    "MixtureSampler",
    "MixtureStream",
    "OptionError",
    "OptionTypeError",
    "RandomSampler",
    "RemoteError",
    "Sampler",
    "SequentialSampler",
    "SharedList",
    "ShippingError",
    "SourceError",
    "SourceStats",
    "StackDataset",
    "StalledSample",
    "StateError",
    "Stats",
    "StratifiedBatchSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "TooManyErrors",
    "TuneResult",
    "WeightedRandomSampler",
    "WorkerChange",
    "WorkerDied",
    "WorkerError",
    "WorkerInfo",
    "WorkerMemory",
    "WorkerTimeout",
    "accumulate",
    "cached",
    "collate",
    "default_collate",
    "doctor",
    "errors",
    "get_worker_info",
    "gradient_noise",
    "largest_batch",
    "lengths_of",
    "materialize",
    "preflight",
    "random_split",
    "register_collate",
    "rng",
    "scale_learning_rate",
    "split",
    "threads_per_worker",
    "tune",
    "warmup",
    "weights_from_labels",
]


def __getattr__(name: str) -> Any:
    if name not in _ON_DEMAND:
        raise AttributeError(f"module 'feedline' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_ON_DEMAND[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
