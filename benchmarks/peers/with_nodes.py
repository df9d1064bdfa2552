"""torchdata.nodes, put together as its guide for users of torch.utils.data does.

https://docs.pytorch.org/data/0.11/migrate_to_nodes_from_utils.html
Sampler, batches of indices, a mapper that reads and collates them, a prefetcher. Threads, its default: in a short
trial on a crowded machine its processes were slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import RandomSampler, default_collate
from torchdata.nodes import Batcher, Loader, Mapper, ParallelMapper, Prefetcher, SamplerWrapper

from peers.measure import Batches, endless, seconds_to_go_on
from peers.with_torch import DATASETS, OPTIONS
from peers.workloads import RESUME_BATCH, Numbers


class Collated:
    """From indices to a batch."""

    def __init__(self, dataset: Any, collate: Callable[[list[Any]], Any]) -> None:
        self.dataset, self.collate = dataset, collate

    def __call__(self, indices: Sequence[int]) -> Any:
        return self.collate([self.dataset[index] for index in indices])


def batches(workload: str) -> Batches:
    options, dataset = OPTIONS[workload], DATASETS[workload]()
    collated = Collated(dataset, options.get("collate_fn", default_collate))
    indices = Batcher(SamplerWrapper(RandomSampler(dataset)), options["batch_size"], drop_last=True)
    if workload in ("memory", "text"):
        return endless(Loader(Mapper(indices, collated)))
    if workload.startswith("wait"):
        # Singly, or a batch would be waited for by one thread.
        samples = ParallelMapper(
            SamplerWrapper(RandomSampler(dataset)), dataset.__getitem__, int(workload[5:]), method="thread"
        )
        together: Any = Mapper(Batcher(samples, options["batch_size"], drop_last=True), default_collate)
        return endless(Loader(Prefetcher(together, 2)))
    mapped = ParallelMapper(indices, collated, options["num_workers"], method="thread")
    return endless(Loader(Prefetcher(mapped, 2)))


def resume() -> Iterator[float]:
    def make() -> Loader[Any]:
        numbers = Numbers()
        indices = Batcher(SamplerWrapper(RandomSampler(numbers)), RESUME_BATCH, drop_last=True)
        return Loader(Mapper(indices, Collated(numbers, default_collate)))

    return seconds_to_go_on(make)
