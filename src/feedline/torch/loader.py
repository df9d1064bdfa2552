"""torch's DataLoader with another engine.

Takes: torch's options, and feedline's own as keyword-only extras. Gives: a `torch.utils.data.DataLoader` whose
iterator is feedline's.
Promises: torch's signature, attributes, checks, order and draws; batches are tensors on shared memory.
Not its job: the loop (loop), the order (orders), tensors (tensors, collate).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import torch
import torch.utils.data
from torch.utils.data import IterableDataset, default_collate, default_convert
from torch.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

from feedline.care import check_care
from feedline.checks import check_whole
from feedline.errors import OptionError
from feedline.line.collate import registrations
from feedline.line.passed import Passed
from feedline.line.plan import StreamPlan, Tasks
from feedline.loop import Feed
from feedline.messages import BadSample
from feedline.options import Options, check_kind
from feedline.state import Place
from feedline.stats import Stats
from feedline.torch.dialect import TORCH
from feedline.torch.orders import indices_of
from feedline.torch.transfer import Transfer, transferred
from feedline.workers.body import Job

T = TypeVar("T", covariant=True)


class DataLoader(torch.utils.data.DataLoader[T]):
    """A drop-in for `torch.utils.data.DataLoader`: the same options and the same order, another engine.

    feedline's own options are keyword-only: `workers` ("process" or "thread"), `shuffle_buffer` (for streams),
    `device` (batches arrive there, copied one ahead).

    >>> import torch
    >>> from feedline.torch import DataLoader, TensorDataset
    >>> data = TensorDataset(torch.arange(4) * 10, torch.arange(4))
    >>> for x, y in DataLoader(data, batch_size=3):
    ...     print(x, y)
    tensor([ 0, 10, 20]) tensor([0, 1, 2])
    tensor([30]) tensor([3])
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        workers: str = "process",
        shuffle_buffer: int = 0,
        stall_warning: float = 30,
        on_stall: str = "wait",
        on_error: str = "raise",
        max_errors: float | None = None,
        max_deaths: int = 2,
        error_log: str | os.PathLike[str] | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        care = check_care(locals())
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        vars(self).update(vars(care))  # readable under their names, as every other option
        self.on_error: str
        self.workers = check_kind(workers)
        self.shuffle_buffer = check_whole("shuffle_buffer", shuffle_buffer, least=0)
        self.device = None if device is None else torch.device(device)
        if self.shuffle_buffer and not self._streams:
            raise OptionError(
                "shuffle_buffer is for an IterableDataset; a map-style dataset takes shuffle=True instead"
            )
        if self.workers == "thread" and multiprocessing_context is not None:
            raise OptionError(
                "multiprocessing_context is for worker processes: leave it out, or leave out workers='thread'"
            )
        self._begin_anew()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_iterator" and value is None and "_feed" in self.__dict__:
            # Lightning and others end torch's persistent workers so; the next iteration begins with new ones.
            self._feed.close()
            self.__dict__["_base_seed"] = None

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        """Begin an epoch; draws from the generator exactly as torch's loader does."""
        if isinstance(self.dataset, (IterDataPipe, MapDataPipe)):
            return super().__iter__()  # data pipes are wired into torch's own iterator
        tasks = self._tasks()
        self._epochs += 1
        transfer = Transfer.chosen(self.pin_memory, self.pin_memory_device, self.device)
        batches = self._feed.begin(self._options(), tasks, Passed(Place(self._epochs)), self.__len__, self._job())
        if self.num_workers:
            batches.fill()  # torch takes the first indices from the sampler here, not in the first next()
        return transferred(batches, transfer)

    @property
    def errors(self) -> list[BadSample]:
        """The samples that failed and were left out or replaced (`on_error`), of all epochs; the last 10,000."""
        return self._feed.mishaps.samples

    def stats(self) -> Stats:
        """How the loader is doing: the memory of each worker process, measured now or when there last was one."""
        return self._feed.stats()

    def close(self) -> None:
        """End all workers now; batches in hand stay valid and the loader can be used again."""
        self._feed.close()

    def __enter__(self) -> DataLoader[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_feed", "_epochs", "_base_seed")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._begin_anew()

    def _begin_anew(self) -> None:
        self._feed = Feed()
        self._epochs = 0
        self._base_seed: int | None = None

    @property
    def _streams(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def _tasks(self) -> Tasks:
        if self._streams:
            self._draw_base_seed()
            plan = StreamPlan(self.dataset, self.batch_size, self.drop_last, self._seed, max(1, self.num_workers))
            return plan.tasks(self._epochs)
        sampler: Any = self._index_sampler
        # The sampler's iterator comes before the base seed, as in torch: either may draw from the same generator.
        indices = indices_of(sampler, self._auto_collation)
        if self._draw_base_seed() and self.num_workers:
            # torch asks once more after starting workers, and a sampler may draw (or count) when it is asked.
            indices = indices_of(sampler, self._auto_collation)
        return indices.tasks(self._seed, self._epochs)

    def _draw_base_seed(self) -> bool:
        # torch draws it once for persistent workers, and once per iteration otherwise.
        if self._base_seed is not None and self.persistent_workers and self.num_workers:
            return False
        self._base_seed = int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        return True

    @property
    def _seed(self) -> int:
        assert self._base_seed is not None
        return self._base_seed

    def _options(self) -> Options:
        return Options(
            dataset=self.dataset,
            stream=self._streams,
            batch_size=self.batch_size,
            shuffle=False,
            sampler=None,
            batch_sampler=None,
            num_workers=self.num_workers,
            collate_fn=None,
            drop_last=self.drop_last,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            multiprocessing_context=self.multiprocessing_context,
            prefetch_factor=self.prefetch_factor or 2,
            persistent_workers=self.persistent_workers and self.num_workers > 0,
            in_order=self.in_order,
            seed=self._seed,
            seeded=False,
            workers=self.workers,
            shuffle_buffer=self.shuffle_buffer,
            care=check_care(vars(self)),
        )

    def _job(self) -> Job:
        collate_fn: Any = self.collate_fn
        stock = default_collate if self._auto_collation else default_convert
        return Job(
            dataset=self.dataset,
            stream=self._streams,
            batched=self._auto_collation,
            batch_size=self.batch_size or 1,
            drop_last=self.drop_last,
            collate_fn=None if collate_fn is stock else collate_fn,
            worker_init_fn=self.worker_init_fn,
            shuffle_buffer=self.shuffle_buffer,
            seed=self._seed,
            num_workers=self.num_workers,
            registrations=registrations(),
            dialect=TORCH,
            on_error=self.on_error,
        )
