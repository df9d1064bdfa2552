"""What makes a torch DataLoader ours: its state between epochs, and an epoch made from its options.

Takes: a torch DataLoader (its public attributes only) and feedline's own options. Gives: iterators over batches.
Promises: torch's draws from the generator at torch's moments. All our state is here, under one name of the loader:
subclasses have attributes and methods of their own, which must not meet ours.
Not its job: torch's options and their checks (loader), the order (orders), the loop (loop).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.utils.data
from torch._C._autograd import _profiler_enabled
from torch.utils.data import IterableDataset, default_collate, default_convert

from feedline.care import Care
from feedline.line.collate import registrations
from feedline.line.passed import Passed
from feedline.line.plan import StreamPlan, Tasks
from feedline.loop import BatchIterator, Feed
from feedline.options import Options
from feedline.state import Place
from feedline.torch.dialect import TORCH
from feedline.torch.orders import indices_of
from feedline.torch.reading import reads_many
from feedline.torch.transfer import Transfer, transferred
from feedline.workers.body import Job

Loader = torch.utils.data.DataLoader[Any]


@dataclass(frozen=True)
class Own:
    """The options that torch does not have."""

    workers: str
    shuffle_buffer: int
    device: torch.device | None
    care: Care

    def by_name(self) -> dict[str, Any]:
        """As they were given."""
        return {
            "workers": self.workers,
            "shuffle_buffer": self.shuffle_buffer,
            "device": self.device,
            **vars(self.care),
        }


def streams(dataset: Any) -> bool:
    """Is it read by iterating?"""
    return isinstance(dataset, IterableDataset)


class Engine:
    """One loader's, for all its epochs."""

    def __init__(self, own: Own) -> None:
        self.own = own
        self.feed = Feed()
        self._epochs = 0
        self._base_seed: int | None = None

    def __getstate__(self) -> Own:  # a copy, or another process's, begins with nothing under way
        return self.own

    def __setstate__(self, own: Own) -> None:
        self.__init__(own)  # type: ignore[misc]

    def begin(self, loader: Loader) -> Iterator[Any]:
        """An epoch; draws from the generator exactly as torch's loader does."""
        if loader.num_workers and loader.prefetch_factor == 0:
            raise AssertionError("prefetch_factor must be greater than 0")  # which torch notices here, too
        tasks = self._tasks(loader)
        self._epochs += 1
        transfer = Transfer.chosen(loader.pin_memory, loader.pin_memory_device, self.own.device)
        passed = Passed(Place(self._epochs, shards=max(1, loader.num_workers) if streams(loader.dataset) else 0))
        options, job = self._options(loader), self._job(loader)
        batches = self.feed.begin(options, tasks, passed, loader.__len__, job, TorchIterator)
        if loader.num_workers:
            batches.fill()  # torch takes the first indices from the sampler here, not in the first next()
        return transferred(batches, transfer)

    def close(self) -> None:
        """End all workers now."""
        self.feed.close()

    def forget(self) -> None:
        """End all workers; the next epoch draws a base seed even if they are persistent."""
        self.feed.close()
        self._base_seed = None

    def _tasks(self, loader: Loader) -> Tasks:
        if streams(loader.dataset):
            seed, _ = self._draw_base_seed(loader)
            shards = max(1, loader.num_workers)
            return StreamPlan(loader.dataset, loader.batch_size, loader.drop_last, seed, shards).tasks(self._epochs)
        sampler: Any = loader._index_sampler
        at_once = reads_many(loader.dataset)
        # The sampler's iterator comes before the base seed, as in torch: either may draw from the same generator.
        indices = indices_of(sampler, loader._auto_collation, at_once)
        seed, is_new = self._draw_base_seed(loader)
        if is_new and loader.num_workers:
            # torch asks once more after starting workers, and a sampler may draw (or count) when it is asked.
            indices = indices_of(sampler, loader._auto_collation, at_once)
        return indices.tasks(seed, self._epochs)

    def _draw_base_seed(self, loader: Loader) -> tuple[int, bool]:
        # torch draws it once for persistent workers, and once per iteration otherwise.
        if self._base_seed is not None and loader.persistent_workers and loader.num_workers:
            return self._base_seed, False
        self._base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=loader.generator).item())
        return self._base_seed, True

    def _options(self, loader: Loader) -> Options:
        assert self._base_seed is not None
        return Options(
            dataset=loader.dataset,
            stream=streams(loader.dataset),
            batch_size=loader.batch_size,
            shuffle=False,
            sampler=None,
            batch_sampler=None,
            num_workers=loader.num_workers,
            collate_fn=None,
            drop_last=loader.drop_last,
            timeout=loader.timeout,
            worker_init_fn=loader.worker_init_fn,
            multiprocessing_context=loader.multiprocessing_context,
            prefetch_factor=loader.prefetch_factor or 2,
            persistent_workers=loader.persistent_workers and loader.num_workers > 0,
            in_order=loader.in_order,
            seed=self._base_seed,
            seeded=False,
            workers=self.own.workers,
            shuffle_buffer=self.own.shuffle_buffer,
            care=self.own.care,
        )

    def _job(self, loader: Loader) -> Job:
        assert self._base_seed is not None
        collate_fn: Any = loader.collate_fn
        stock = default_collate if loader._auto_collation else default_convert
        return Job(
            dataset=loader.dataset,
            stream=streams(loader.dataset),
            batched=loader._auto_collation,
            batch_size=loader.batch_size or 1,
            drop_last=loader.drop_last,
            collate_fn=None if collate_fn is stock else collate_fn,
            worker_init_fn=loader.worker_init_fn,
            shuffle_buffer=self.own.shuffle_buffer,
            seed=self._base_seed,
            num_workers=loader.num_workers,
            registrations=registrations(),
            dialect=TORCH,
            on_error=self.own.care.on_error,
        )


class TorchIterator(BatchIterator):
    """One epoch, whose waiting a profiler sees under the name it looks for."""

    def __next__(self) -> Any:
        if not _profiler_enabled():
            return super().__next__()
        with torch.autograd.profiler.record_function("enumerate(DataLoader)#TorchIterator.__next__"):
            return super().__next__()
