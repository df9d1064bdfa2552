"""torchdata's StatefulDataLoader, by its name and signature: feedline's loader is stateful anyway.

Takes: torchdata's options, and feedline's own as keyword-only extras. Gives: feedline's loader for torch.
Promises: code written for torchdata's loader runs after changing the import; states are feedline's, and torchdata's
states are refused.
Not its job: everything else (loader, engine).
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

from feedline.errors import StateError
from feedline.torch.loader import DataLoader

if TYPE_CHECKING:
    import typing_extensions

    T = typing_extensions.TypeVar("T", covariant=True, default=Any)
else:
    T = typing.TypeVar("T", covariant=True)  # TypeVar has a default only from Python 3.13 on
"""The type of a batch: what collate_fn returns."""


class StatefulDataLoader(DataLoader[T]):
    """`DataLoader`, for users who come from torchdata: `from feedline.torch import StatefulDataLoader`.

    The options are those of `DataLoader`. torchdata's `snapshot_every_n_steps` is for states that take long to make:
    on resuming, the batches between the latest snapshot and the place are read again.

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

    >>> from feedline.torch import StatefulDataLoader
    >>> loader = StatefulDataLoader(range(6), batch_size=2, snapshot_every_n_steps=3)
    >>> batches = iter(loader)
    >>> _ = next(batches)
    >>> again = StatefulDataLoader(range(6), batch_size=2)
    >>> again.load_state_dict(loader.state_dict())
    >>> list(again)
    [tensor([2, 3]), tensor([4, 5])]
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next iteration goes on where the state was saved; an empty state is ignored, as in torchdata."""
        if state_dict == {}:
            return
        if isinstance(state_dict, dict) and state_dict.keys() & {"_snapshot", "_num_yielded"}:
            raise StateError(
                "the state was saved by torchdata's StatefulDataLoader, and feedline cannot continue from it: finish "
                "the epoch with StatefulDataLoader, or begin a new epoch"
            )
        super().load_state_dict(state_dict)
