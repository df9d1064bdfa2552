"""torch's DataLoader with another engine.

Takes: torch's options, and feedline's own as keyword-only extras. Gives: a `torch.utils.data.DataLoader` whose
iterator is feedline's.
Promises: torch's signature, attributes, checks, order and draws; batches are tensors on shared memory.
Not its job: an epoch (engine), the order (orders), tensors (tensors, collate).
"""

from __future__ import annotations

import copy
import os
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.context import BaseContext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.utils.data
from torch.utils.data.datapipes.datapipe import IterDataPipe, MapDataPipe

from feedline.collate.composing import check_collate
from feedline.messages.outcome import BadSample
from feedline.observe.epoch_bar import WithProgress
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.recorder import Recorder
from feedline.observe.stats import Stats
from feedline.observe.stepping import StepBlock
from feedline.options.loader_line import loader_in_html, loader_in_words
from feedline.options.worker_count import as_number
from feedline.resume.endless import Forever
from feedline.torch.collate import compose
from feedline.torch.engine import Engine, streams
from feedline.torch.global_batches import GlobalBatches, batching
from feedline.torch.options import TORCHS, OwnTorchOptions, check_own

if TYPE_CHECKING:
    import typing_extensions

    T = typing_extensions.TypeVar("T", covariant=True, default=Any)
else:
    T = typing.TypeVar("T", covariant=True)  # TypeVar has a default only from Python 3.13 on
"""The type of a batch: what collate_fn returns."""


class _Epoch:
    """The number of the epoch that the next `iter()` will begin. A subclass may set an `epoch` of its own."""

    def __get__(self, loader: DataLoader[Any] | None, owner: type) -> Any:
        return self if loader is None else loader._feedline.epoch


class DataLoader(torch.utils.data.DataLoader[T], OwnTorchOptions):
    """A drop-in for `torch.utils.data.DataLoader`: the same options and the same order, another engine.

    feedline's own options are keyword-only. `loader.collate_fn` is then the function made from `collate`; with
    `num_workers="auto"`, `loader.num_workers` is the usual number.

    Options:
        dataset: The data: it has `__getitem__` and `__len__`, or it is iterated over (a stream).
        batch_size: The number of samples in a batch; None delivers single samples.
        shuffle: True reads the samples in a random order, a new one in each epoch.
        sampler: An iterable of indices, one for each sample; it decides the order.
        batch_sampler: An iterable of lists of indices, one for each batch; it decides the batches.
        num_workers: The number of workers; 0 loads without any, "auto" finds out how many (docs/auto-workers.md).
        collate_fn: A function that makes a batch from a list of samples; None stacks each field.
        pin_memory: True copies each batch into pinned memory, from which copies to a GPU are fast.
        drop_last: True leaves out a last batch that is not full.
        timeout: The loop waits this many seconds for a batch, then raises an error; 0 waits as long as it takes.
        worker_init_fn: A function that each worker calls with its number before its first sample.
        multiprocessing_context: How processes start: "fork", "forkserver", "spawn" or a context; None: as usual.
        generator: The generator that the order and the seed of the workers are drawn from; None is torch's default.
        prefetch_factor: The number of batches that each worker makes in advance; None means 2.
        persistent_workers: True keeps the workers from one epoch to the next.
        pin_memory_device: The kind of device that memory is pinned for; torch finds it if empty.
        in_order: False delivers a batch as soon as it is made, whatever the order of the sampler.
        workers: The kind of workers: "process", "thread" for samples that wait, "ray" for a cluster (docs/workers.md).
        ray_options: For workers="ray": options of Ray's actors, such as `resources` (docs/ray.md).
        global_batch_size: The number of samples in a batch of all ranks; each makes its share (docs/elastic.md).
        shuffle_buffer: A stream is shuffled in a buffer of this many elements; 0 leaves its order (docs/streams.md).
        collate: How each field becomes a batch, instead of collate_fn: `{"tokens": pad(0)}` (docs/collation.md).
        fetch_threads: Each worker reads this many samples at a time; 0 reads one after another (docs/latency.md).
        stall_warning: After this many seconds without a batch a warning shows what each worker does; 0: never.
        on_stall: "restart" replaces a worker stuck in one sample for `timeout` (or else `stall_warning`) seconds.
        on_error: "skip" makes a batch without a sample that fails, "replace" puts its nearest good neighbour there.
        max_errors: This many samples may fail under "skip" and "replace"; below 1 it is a share of the samples read.
        max_deaths: This many workers may die at one sample before the sample is given up.
        error_log: A file that gets one JSON line for each sample that fails.
        on_epoch_end: A function that is called with `loader.stats()` after each epoch (docs/seeing.md).
        prefetch_next_epoch: False: persistent workers read nothing before an epoch begins (docs/across-epochs.md).
        assignment: "in_turn": each makes every Nth batch; "free": any free one does; None: as torch (docs/workers.md).
        ranks: "shard" divides a stream among the ranks; with "all" each rank reads all of it (docs/streams.md).
        uneven: How a stream divided among ranks ends: "pad" (also for None), "drop" or "exact" (docs/streams.md).
        device: Batches are copied to this device, each while the batch before it is in use.
        snapshot_every_n_steps: A stream is asked for its state after every Nth batch of a worker; 0 or None: once.

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
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[Any], T] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        workers: str = "process",
        ray_options: dict[str, Any] | None = None,
        global_batch_size: int | None = None,
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
        prefetch_next_epoch: bool = True,
        assignment: str | None = None,
        ranks: str | None = None,
        uneven: str | None = None,
        device: str | torch.device | None = None,
        snapshot_every_n_steps: int | None = 1,
    ) -> None:
        given = locals() | {
            "num_workers": as_number(num_workers, prefetch_factor),
            "collate_fn": check_collate(collate, collate_fn, compose),
        }
        own = check_own(given, streams(dataset))
        vars(self)["_workers_elsewhere"] = workers == "ray"
        super().__init__(**{name: given[name] for name in TORCHS} | batching(given, streams(dataset)))
        self._feedline = Engine(own)
        for name, value in vars(own).items():
            vars(self).setdefault(name, value)  # for reading; a subclass may use such a name for itself

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_iterator" and value is None and "_feedline" in self.__dict__:
            # Lightning and others end torch's persistent workers in this way; the next iteration starts new ones.
            self._feedline.forget()

    def check_worker_number_rationality(self) -> None:
        """Torch's advice counts the CPUs of this machine, which says nothing of workers on a cluster."""
        if not vars(self)["_workers_elsewhere"]:
            super().check_worker_number_rationality()

    @property
    def _index_sampler(self) -> Any:  # torch's own asks it for indices; this engine takes a rank's rows afterwards
        own = vars(self).get("batch_sampler")
        return own.of_all if isinstance(own, GlobalBatches) else super()._index_sampler

    def __len__(self) -> int:
        """The number of batches in an epoch; this rank's if ranks share a stream."""
        if "_feedline" in self.__dict__ and self._feedline.own.ranks == "shard":
            return len(self._feedline.stream_plan(self))
        return super().__len__()

    def __repr__(self) -> str:
        return loader_in_words(self, self._feedline.own.workers)

    def _repr_html_(self) -> str:
        return loader_in_html(self, self._feedline.own.workers)

    def __iter__(self) -> Iterator[T]:  # type: ignore[override]
        """Begin an epoch; draws from the generator exactly as torch's loader does."""
        if _is_pipe(self.dataset):
            return super().__iter__()
        batches: Iterator[T] = self._get_iterator()
        return batches

    def _get_iterator(self) -> Any:
        # As in torch, this method makes the iterator: subclasses override and call it.
        return super()._get_iterator() if _is_pipe(self.dataset) else self._feedline.begin(self)

    epoch = _Epoch()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch that comes next; samplers with a `set_epoch`, such as torch's DistributedSampler, are told too.

        The order of feedline's samplers depends on it. The order of torch's RandomSampler is drawn again for every
        epoch, whatever its number.
        """
        self._feedline.set_epoch(self, epoch)

    @property
    def weight(self) -> float:
        """What to multiply the mean loss of the latest batch by, with `global_batch_size`; else 1 (docs/elastic.md)."""
        return self._feedline.weight

    @property
    def _share_given(self) -> tuple[int, float] | None:
        return self._feedline.share_given

    def forever(self, batches_per_epoch: int) -> Forever:
        """Batches without end, in virtual epochs of exactly `batches_per_epoch`; see `feedline.DataLoader.forever`."""
        return Forever(self, batches_per_epoch)

    def progress(self, name: str | None = None) -> WithProgress[T]:
        """One epoch with a progress bar: samples per second, and the share of the time that the loop waited.

        The bar is tqdm's or rich's (whichever is installed) in a terminal, and HTML in a notebook; in a log it is one
        line at the end. A resumed epoch begins at its place. `name` is shown instead of the epoch's number.

        >>> import contextlib, sys
        >>> from feedline.torch import DataLoader
        >>> with contextlib.redirect_stderr(sys.stdout):  # so that this example can be tested
        ...     for batch in DataLoader(range(3), batch_size=2).progress("train"):  # doctest: +ELLIPSIS
        ...         print(batch)
        tensor([0, 1])
        tensor([2])
        train: 2 of 2 batches, ... samples/s, waited ... % of ... s
        """
        return WithProgress(self, lambda: self._feedline.batches_before(self), name)

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands, as a small dict; it can be taken at any moment.

        Only delivered batches count: batches that were made ahead come again. The dict has what the order was drawn
        from: seeds, and the states of the user's generators. If the dataset or the sampler has a
        `state_dict()` of its own, `json` can write the dict only if it can write what that returns.

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
        """The next iteration goes on where the state was saved; a state that cannot be continued exactly is refused."""
        if _is_pipe(self.dataset):
            warnings.warn("a data pipe has no state: it will be read from its beginning", stacklevel=2)
        else:
            self._feedline.load(self, state)

    def errors(self) -> list[BadSample]:
        """The samples that failed and were left out or replaced (`on_error`), over all epochs; the last 10,000."""
        return self._feedline.session.errors

    def stats(self) -> Stats:
        """How the loader is doing: memory of each worker process, share of padding in the batches, and so on."""
        return self._feedline.session.stats()

    def _step(self) -> StepBlock:
        """`step()`, also where a user's subclass has an attribute of that name."""
        return self._feedline.session.step()

    def _flow_now(self) -> EpochStats | None:
        return self._feedline.session.flow_now()

    def step(self) -> StepBlock:
        """Measures the training step: `with loader.step():` around it, in the loop (docs/step.md).

        `stats()`, reports and traces then tell the step from waiting and from the rest; with torch on a GPU, by the
        GPU's own time. A batch that is asked for inside counts as waited for, not as a step.

        >>> from feedline.torch import DataLoader
        >>> loader = DataLoader(range(6), batch_size=2)
        >>> for batch in loader:
        ...     with loader.step():
        ...         _ = batch.sum()
        >>> loader.stats().epoch.steps, loader.stats().epoch.basis
        (3, 'loader.step()')
        """
        return self._step()

    def trace(self, path: str | os.PathLike[str]) -> Recorder:
        """Record all following epochs in Chrome's trace format: open the file in https://ui.perfetto.dev.

        There is one row per worker (fetch, each sample, collate) and one for the training loop (wait, compute). The
        file is written after each epoch and when recording stops: `with loader.trace("run.json"): ...`, or `.stop()`.
        """
        return self._feedline.session.trace(path)

    def report(self, path: str | os.PathLike[str]) -> Recorder:
        """Record all following epochs as one HTML page: it says whether the loader is the bottleneck, and what to do.

        The page needs no network. It has the timeline, waiting and utilisation, the slowest samples, the memory of each
        worker, labels per batch, padding and errors. Written when a trace is: `with loader.report("run.html"): ...`
        """
        return self._feedline.session.report(path)

    def draw(
        self,
        path: str | os.PathLike[str],
        kind: str | None = None,
        *,
        labels: Any = None,
        lengths: Any = None,
        epoch: int | None = None,
    ) -> str:
        """Draw the coming epoch as SVG or PNG (`feedline[plot]`), from the loader's plan; returns what was drawn.

        `kind` is "classes" or "sources" (in each batch), "padding", "order", or "batch" (images of the first batch);
        None draws what the data suggests. `labels` and `lengths` have one value for each sample; labels are
        also found in the dataset. Only "batch", and "padding" without lengths, read samples.
        """
        from feedline.diagnose.drawing.draw import draw

        return draw(self, path, kind, labels=labels, lengths=lengths, epoch=epoch)

    def close(self) -> None:
        """End all workers now; batches that the user holds stay valid, and the loader can be used again."""
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
    return isinstance(dataset, (IterDataPipe, MapDataPipe))  # torch's own iterator must read these
