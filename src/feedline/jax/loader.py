"""DataLoader for JAX: wires the core's loader to shardings and devices.

Takes: the user's options. Gives: global batches on their devices, epoch after epoch.
Promises: the same options and seed give the same global batches for any number of processes; nothing is communicated.
Not its job: loading (feedline.loader), which rows are here (layout), the step to the devices (transfer, placing).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.context import BaseContext
from typing import Any, Literal

import jax
import numpy as np

from feedline import loader as core
from feedline.collate.collator import Collator
from feedline.errors import OptionError, StateError
from feedline.jax.dialect import JAX
from feedline.jax.layout import Layout
from feedline.jax.options import OwnJaxOptions, check_own, core_options
from feedline.jax.placing import Placer
from feedline.jax.row_plan import RowPlan, check_places
from feedline.jax.shapes import Counted, JaxStats, told
from feedline.jax.transfer import How, Placed
from feedline.observe.stats import Stats
from feedline.observe.stepping import StepBlock
from feedline.options.core import LoaderOptions
from feedline.order.plan import Plan
from feedline.order.rank_turns import Turns
from feedline.reading.fetch import batch_reader
from feedline.resume.endless import Forever


class DataLoader(OwnJaxOptions, core.DataLoader[Any]):
    """Global batches of a dataset, as arrays that are on their devices; for any number of processes.

    A batch is a pytree of `jax.Array`. Each process loads the rows that its devices hold, according to the sharding.
    Options that `feedline.DataLoader` has too mean the same, but `drop_last` is True: a batch of another shape would
    have to be compiled for. (docs/jax.md)

    Options:
        dataset: The data: it has `__getitem__` and `__len__`, or it is iterated over (a stream).
        global_batch_size: The number of samples in a batch of all ranks; each makes its share (docs/elastic.md).
        shuffle: True reads the samples in a random order, a new one in each epoch.
        sampler: An iterable of indices, one for each sample; it decides the order.
        batch_sampler: An iterable of lists of indices, one for each batch; it decides the batches.
        num_workers: The number of workers; 0 loads without any, "auto" finds out how many (docs/auto-workers.md).
        collate_fn: A function that makes a batch from a list of samples; None stacks each field.
        sharding: Where batches go: a sharding, or a pytree prefix of them; None: over all devices (docs/jax.md).
        drop_last: True leaves out a last batch that is not full: shapes stay the same.
        pad_last: True fills up the last batch and gives `(batch, mask)`; the mask is False for filling.
        device_prefetch: The number of batches that are put on their devices before the loop asks for them.
        batch_key: True gives a `jax.random` key with each batch, the same on every process.
        timeout: The loop waits this many seconds for a batch, then raises an error; 0 waits as long as it takes.
        worker_init_fn: A function that each worker calls with its number before its first sample.
        multiprocessing_context: How processes start: "fork", "forkserver", "spawn" or a context; None: as usual.
        prefetch_factor: The number of batches that each worker makes in advance; None means 2.
        persistent_workers: True keeps the workers from one epoch to the next.
        in_order: False delivers a batch as soon as it is made, whatever the order of the sampler.
        seed: Order and random draws follow from the seed and the epoch; None draws a seed.
        workers: The kind of workers: "process", "thread" for samples that wait, "ray" for a cluster (docs/workers.md).
        ray_options: For workers="ray": options of Ray's actors, such as `resources` (docs/ray.md).
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
        assignment: "free": any free worker makes the next batch; "in_turn": each makes every Nth (docs/workers.md).
        ranks: "shard" divides a stream among the ranks; with "all" each rank reads all of it (docs/streams.md).
        uneven: How a stream divided among ranks ends: "pad" (also for None), "drop" or "exact" (docs/streams.md).

    >>> import numpy as np
    >>> from feedline import ArrayDataset
    >>> data = ArrayDataset(x=np.arange(10.0), y=np.arange(10))
    >>> loader = DataLoader(data, global_batch_size=4, sharding=jax.devices()[0])
    >>> [batch["y"].tolist() for batch in loader]
    [[0, 1, 2, 3], [4, 5, 6, 7]]
    >>> loader = DataLoader(data, global_batch_size=4, sharding=jax.devices()[0], pad_last=True)
    >>> [(batch["y"].tolist(), mask.tolist()) for batch, mask in loader][-1]
    ([8, 9, 9, 9], [True, True, False, False])
    """

    _dialect = JAX

    def __init__(
        self,
        dataset: Any,
        global_batch_size: int | None = None,
        shuffle: bool | None = None,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        *,
        sharding: Any = None,
        drop_last: bool = True,
        pad_last: bool = False,
        device_prefetch: int = 1,
        batch_key: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        in_order: bool = True,
        seed: int | None = None,
        workers: str = "process",
        ray_options: dict[str, Any] | None = None,
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
        assignment: str = "free",
        ranks: str | None = None,
        uneven: str | None = None,
    ) -> None:
        given = {name: value for name, value in locals().items() if name not in ("self", "__class__")}
        own = check_own(given)
        self.layout = Layout(sharding)
        self.sharding = self.layout.tree
        self.global_batch_size, self.pad_last = own.global_batch_size, own.pad_last
        self.device_prefetch, self.batch_key = own.device_prefetch, own.batch_key
        self._size = own.global_batch_size or 0
        groups = self.layout.rows(self._size).groups if self._size else jax.process_count()
        self._counters = Counted()
        if on_epoch_end is not None and callable(on_epoch_end):
            given["on_epoch_end"] = partial(told, on_epoch_end, self._counters)
        super().__init__(**core_options(own, given, jax.process_count(), groups))
        if seed is None:  # whatever was chosen instead, a state's seed may replace it
            self.options = LoaderOptions(**vars(self.options) | {"seeded": False})
        function = self.options.collate_fn
        self._placer = Placer(self.layout, self.pad_last, function is not None and not isinstance(function, Collator))
        self._check_batches()

    def __iter__(self) -> Placed:  # type: ignore[override]
        """Begin an epoch. With persistent workers, an epoch that is still running on them is given up."""
        if self.options.uneven == "exact" and self._is_shared and self.layout.rows(self._size).groups > 1:
            raise OptionError(
                "uneven='exact' gives some processes one batch more than others, which would wait for them for ever: "
                "loop over loader.forever(batches_per_epoch=…), or set uneven='drop'"
            )
        return self._placed()

    @property
    def _is_shared(self) -> bool:
        """Does each process read only its own part of a stream?"""
        return self.options.ranks == "shard"

    def _placed(self) -> Placed:
        batches, passed = self._begin()
        seed = self.options.seed if self.batch_key else None
        how = How(
            self.layout,
            self._placer,
            self._counters,
            self._session.tell_once,
            self.device_prefetch,
            self._size,
            self.pad_last,
            seed,
            self._is_shared,
        )
        return Placed(batches, passed, how)

    def forever(self, batches_per_epoch: int) -> Forever:
        """Batches without end, in virtual epochs of exactly `batches_per_epoch`; when the data ends, it is reshuffled.

        >>> import numpy as np
        >>> endless = DataLoader(np.arange(4), 2, seed=1).forever(batches_per_epoch=3)
        >>> [batch.tolist() for batch in endless]
        [[0, 1], [2, 3], [0, 1]]
        """
        # No process ever comes to an end, so none waits for one that has, however unevenly a stream is divided.
        return Forever(self, batches_per_epoch, self._placed)

    def stats(self) -> JaxStats:
        """How the loader is doing; with the shapes of batches, and waiting for copies apart from waiting for data."""
        return self._counters.added_to(super().stats())

    def step(self) -> StepBlock:
        """Measures the training step by the host's clock: `with loader.step():` around it, in the loop (docs/step.md).

        A function of JAX's returns before its result is there. What is inside counts as a step for as long as it takes
        the host, so wait in it for the result of this step or of the one before: `jax.block_until_ready(loss)`.
        """
        return self._step()

    def _step(self) -> StepBlock:
        return self._session.step(on_device=False)

    def state_dict(self) -> dict[str, Any]:
        """Where the run stands: a small JSON value, the same on every process and valid for any number of them.

        Only delivered batches count. Orbax saves it with `ocp.args.JsonSave(loader.state_dict())` (docs/jax.md).
        """
        more = {"global_batch_size": self.global_batch_size, "sharding": str(self.layout)}
        return super().state_dict() | more

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next iteration goes on where the state was saved, with any number of processes and any mesh.

        The global batch size must be the same: otherwise other samples would be in each batch.
        """
        then = state.get("global_batch_size") if isinstance(state, dict) else None
        if then is not None and then != self.global_batch_size:
            raise StateError(
                f"the state was saved with global_batch_size={then} ({state.get('sharding')}), and now it is "
                f"{self.global_batch_size} ({self.layout}): the batches would be others. If the mesh has changed, keep "
                f"global_batch_size={then}; to change it on purpose, set state['global_batch_size'] to the new number"
            )
        here = {name: value for name, value in state.items() if name != "global_batch_size"} if then else state
        super().load_state_dict(here)

    @property
    def weight(self) -> float:
        """1: a batch is a global array, and a mean over it is one over all its rows, whoever has loaded them."""
        return 1.0

    @property
    def _share_given(self) -> None:
        return None

    def _planned(self) -> Plan:
        plan = super()._planned()
        return plan if self.options.stream else RowPlan(plan, self.layout, self._size if self.pad_last else 0)

    def _turns(self) -> Callable[[], Turns]:
        if not self._is_shared:
            return Turns
        rows = self.layout.rows(self._size)
        return partial(Turns, rows.groups, rows.group, self.options.uneven or "drop")

    def _check_batches(self) -> None:
        """Whatever can be known before a worker starts: can the shardings divide all batches, and their leaves?"""
        if not self._size:
            return
        rows = self.layout.rows(self._size)
        if self._is_shared and (rows.size % rows.groups or not _is_slice(rows.mine, rows.group)):
            raise OptionError(
                f"ranks='shard' gives each process one stretch of the batch's rows, all of one length, and "
                f"{self.layout} gives this process {len(rows.mine)} of {rows.size} rows: leave out ranks"
            )
        if self.options.stream:
            return
        if not (self.options.drop_last or self.pad_last) and (short := _last(self.options, self._size)):
            self.layout.rows(short)
        if self._plan.repeats:
            check_places(rows)
        reader = batch_reader(self.dataset) if self.options.collate_fn is None else None
        if reader is not None and not reader.draws and len(self.dataset):
            first = reader.read(np.zeros(1, np.int64), np.empty)
            if first is not NotImplemented:
                self._placer.check(first, rows)


def _is_slice(rows: Any, group: int) -> bool:
    """Are these the rows of that group, if groups have equal stretches, one after the other?"""
    return bool(np.array_equal(rows, np.arange(group * len(rows), (group + 1) * len(rows))))


def _last(options: Any, size: int) -> int:
    """The number of samples in a last batch that is not full; 0 if there is none, or it is not known."""
    try:
        return int(len(options.dataset if options.sampler is None else options.sampler) % size)
    except TypeError:  # a sampler without a length
        return 0
