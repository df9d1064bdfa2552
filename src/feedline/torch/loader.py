"""torch's DataLoader with another engine.

Takes: torch's options, and feedline's own as keyword-only extras. Gives: a `torch.utils.data.DataLoader` whose
iterator is feedline's.
Promises: torch's signature, attributes, checks, order and draws; batches are tensors on shared memory.
Not its job: an epoch (engine), the order (orders), tensors (tensors, collate).
"""

from __future__ import annotations

import copy
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Literal, TypeVar

import torch
import torch.utils.data
from torch.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

from feedline.care import check_care
from feedline.checks import check_flag, check_function, check_whole
from feedline.forever import Forever
from feedline.line.collators import check_collate
from feedline.messages import BadSample
from feedline.options import (
    check_assignment,
    check_buffer,
    check_fetch_threads,
    check_fetching,
    check_kind,
    check_population,
    check_restart,
    check_sampler,
    check_start_method,
    check_uneven,
)
from feedline.options import check_ranks as check_stream_ranks
from feedline.recorder import Recorder
from feedline.staffing import check_count
from feedline.stats import Stats
from feedline.torch.collators import compose
from feedline.torch.engine import Engine, Own, streams
from feedline.torch.known import check_ranks
from feedline.torch.reading import reads_many

T = TypeVar("T", covariant=True)


class _Epoch:
    """The number of the epoch that the next `iter()` will begin. A subclass may set an `epoch` of its own."""

    def __get__(self, loader: DataLoader[Any] | None, owner: type) -> Any:
        return self if loader is None else loader._feedline.epoch


class DataLoader(torch.utils.data.DataLoader[T]):
    """A drop-in for `torch.utils.data.DataLoader`: the same options and the same order, another engine.

    feedline's own options are keyword-only: `workers` ("process" or "thread", see docs/workers.md), `assignment`
    ("in_turn", as torch does and the default: each worker makes every Nth batch; "free": whoever is free makes the next
    one; docs/workers.md), `shuffle_buffer` (for streams), `device` (batches arrive there, copied one ahead), `collate`
    (how each field becomes a batch: `collate={"tokens": pad(0), "boxes": keep}`, instead of a collate_fn; it then is
    `loader.collate_fn`), `across_epochs` (False: persistent workers whose assignment is free read nothing of an epoch
    before it begins), `fetch_threads` (so many of a batch's samples each worker reads at a time, for samples that wait;
    docs/latency.md), `ranks` (for streams under several ranks: "shard" shares the elements out, `uneven` says how it
    ends; "all": each rank reads all it has; docs/streams.md). `num_workers="auto"`: as many as it takes, found out
    while it runs (`print(loader.stats())`); `loader.num_workers` then is the usual number.

    >>> import torch
    >>> from feedline.torch import DataLoader, TensorDataset
    >>> data = TensorDataset(torch.arange(4) * 10, torch.arange(4))
    >>> for x, y in DataLoader(data, batch_size=3):
    ...     print(x, y)
    tensor([ 0, 10, 20]) tensor([0, 1, 2])
    tensor([30]) tensor([3])
    """

    workers: str
    shuffle_buffer: int
    fetch_threads: int
    ranks: str | None
    uneven: str | None
    device: torch.device | None

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | Literal["auto"] = 0,
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
        collate: Any = None,
        fetch_threads: int = 0,
        stall_warning: float = 30,
        on_stall: str = "wait",
        on_error: str = "raise",
        max_errors: float | None = None,
        max_deaths: int = 2,
        error_log: str | os.PathLike[str] | None = None,
        on_epoch_end: Callable[[Stats], object] | None = None,
        across_epochs: bool = True,
        assignment: str | None = None,
        ranks: str | None = None,
        uneven: str | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        own = Own(
            check_kind(workers),
            check_whole("shuffle_buffer", shuffle_buffer, least=0),
            None if device is None else torch.device(device),
            check_care(locals()),
            check_function("on_epoch_end", on_epoch_end),
            check_flag("across_epochs", across_epochs),
            check_fetch_threads(fetch_threads),
            assignment,
            check_stream_ranks(ranks, streams(dataset)),
            check_uneven(uneven, ranks),
        )
        if isinstance(num_workers, str):  # else torch's checks are the ones
            num_workers = check_count(num_workers, prefetch_factor)
        check_assignment(assignment, num_workers, streams(dataset))
        collate_fn = check_collate(collate, collate_fn, compose)
        check_start_method(own.workers, multiprocessing_context)
        check_restart(own.care, timeout)
        check_buffer(own.shuffle_buffer, streams(dataset))
        batched = batch_size is not None or batch_sampler is not None
        check_fetching(own.fetch_threads, dataset, streams(dataset), batched, reads_many)
        check_sampler(sampler)
        check_ranks(sampler)
        check_ranks(batch_sampler)
        check_population(batch_sampler, dataset)
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
        self._feedline = Engine(own)
        for name, value in own.by_name().items():
            vars(self).setdefault(name, value)  # for reading; a subclass may use such a name for its own

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_iterator" and value is None and "_feedline" in self.__dict__:
            # Lightning and others end torch's persistent workers so; the next iteration begins with new ones.
            self._feedline.forget()

    def __len__(self) -> int:
        """Batches in an epoch; of a stream that ranks share, this rank's."""
        if "_feedline" in self.__dict__ and self._feedline.own.ranks == "shard":
            return len(self._feedline.stream_plan(self))
        return super().__len__()

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        """Begin an epoch; draws from the generator exactly as torch's loader does."""
        if _is_pipe(self.dataset):
            return super().__iter__()
        batches: Iterator[T] = self._get_iterator()
        return batches

    def _get_iterator(self) -> Any:
        # As in torch the place that makes the iterator: subclasses override and call it.
        return super()._get_iterator() if _is_pipe(self.dataset) else self._feedline.begin(self)

    epoch = _Epoch()

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; samplers with a `set_epoch`, as torch's DistributedSampler, are told too.

        The order of feedline's samplers follows it. That of torch's RandomSampler is drawn anew for every epoch,
        whatever its number.
        """
        self._feedline.set_epoch(self, epoch)

    def forever(self, batches_per_epoch: int) -> Forever:
        """Batches without end, in virtual epochs of exactly that many; see `feedline.DataLoader.forever`."""
        return Forever(self, batches_per_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands, at any moment, as a small dict.

        What has been delivered counts; batches made ahead do not, and come again. What the order was drawn from is in
        it: seeds, and how the user's generators stood. `json` can write it if it can write what the dataset's and the
        sampler's own `state_dict()` return, if they have one.

        >>> from feedline.torch import DataLoader
        >>> loader = DataLoader(range(10), batch_size=4, shuffle=True)
        >>> iterator = iter(loader)
        >>> _ = next(iterator)
        >>> again = DataLoader(range(10), batch_size=4, shuffle=True, num_workers=2)
        >>> again.load_state_dict(loader.state_dict())
        >>> [batch.tolist() for batch in again] == [batch.tolist() for batch in iterator]
        True
        """
        return {} if _is_pipe(self.dataset) else self._feedline.state(self)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next iteration go on where the state was saved; refused if it would not be the same."""
        if _is_pipe(self.dataset):
            warnings.warn("a data pipe has no state: it will be read from its beginning", stacklevel=2)
        else:
            self._feedline.load(self, state)

    @property
    def errors(self) -> list[BadSample]:
        """The samples that failed and were left out or replaced (`on_error`), of all epochs; the last 10,000."""
        return self._feedline.feed.errors

    def stats(self) -> Stats:
        """How the loader is doing: the memory of each worker process, how much of the batches is padding, and so on."""
        return self._feedline.feed.stats()

    def trace(self, path: str | os.PathLike[str]) -> Recorder:
        """Record the epochs from the next one on, in Chrome's trace format: open the file in https://ui.perfetto.dev.

        There is one row per worker (fetch, each sample, collate) and one for the training loop (wait, compute). The
        file is written after each epoch and when recording stops: `with loader.trace("run.json"): ...`, or `.stop()`.
        """
        return self._feedline.feed.trace(path)

    def report(self, path: str | os.PathLike[str]) -> Recorder:
        """Record the epochs from the next one on, as one HTML page: is the loader the bottleneck, and what to do.

        The page needs no network. It has the timeline, waiting and utilisation, the slowest samples, the memory of each
        worker, labels per batch, padding and errors. Written as `trace` writes: `with loader.report("run.html"): ...`
        """
        return self._feedline.feed.report(path)

    def close(self) -> None:
        """End all workers now; batches in hand stay valid and the loader can be used again."""
        self._feedline.close()

    def __enter__(self) -> DataLoader[T]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._feedline.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_feedline": copy.copy(self._feedline)}


def _is_pipe(dataset: Any) -> bool:
    return isinstance(dataset, (IterDataPipe, MapDataPipe))  # wired into torch's own iterator
