"""The table of options: name, type, default, check and one sentence, each declared once.

Gives: tables (option.rows lists their options), from which loaders and checked values derive. `CommonOptions` are the
options of every front, `CoreOptions` those of `feedline.DataLoader`; torch's front adds its own (torch.options).
Promises: signatures, class docstrings and docs/options.md agree with this table (tests/torch/test_table_of_options.py).
`python docs/make_options.py` writes the docstrings and the page.
Not its job: options that exclude each other (together), acting on options.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from multiprocessing.context import BaseContext
from typing import Any

from feedline.errors.checks import check_file, check_flag, check_function
from feedline.machine.this_rank import RANKS, UNEVEN
from feedline.observe.stats import Stats
from feedline.options.option import REQUIRED, Checked, option
from feedline.options.single_values import (
    actor_options,
    choice,
    count_or_share,
    dataset,
    flag_or_none,
    iterable_or_none,
    kind_of_workers,
    or_none,
    seconds,
    seed_or_none,
    start_method,
    whole,
)
from feedline.options.worker_count import check_count

ASSIGNMENTS = ("free", "in_turn")


class TorchsOptions:
    """Options that torch has too, with its names, defaults and meanings. In torch's front torch checks them."""

    dataset: Any = option(
        REQUIRED, dataset, "The data: it has `__getitem__` and `__len__`, or it is iterated over (a stream)."
    )
    batch_size: int | None = option(
        1,
        or_none(whole(1, otherwise=", or None for no batching")),
        "The number of samples in a batch; None delivers single samples.",
    )
    shuffle: bool = option(
        None, flag_or_none, "True reads the samples in a random order, a new one in each epoch.", takes="bool | None"
    )
    sampler: Iterable[Any] | None = option(
        None, iterable_or_none, "An iterable of indices, one for each sample; it decides the order."
    )
    batch_sampler: Iterable[Any] | None = option(
        None, iterable_or_none, "An iterable of lists of indices, one for each batch; it decides the batches."
    )
    num_workers: int = option(
        0,
        check_count,
        'The number of workers; 0 loads without any, "auto" finds out how many (docs/auto-workers.md).',
        takes="int | Literal['auto']",
    )
    collate_fn: Callable[[Any], Any] | None = option(
        None, check_function, "A function that makes a batch from a list of samples; None stacks each field."
    )
    drop_last: bool = option(False, check_flag, "True leaves out a last batch that is not full.")
    timeout: float = option(
        0,
        seconds("wait as long as it takes"),
        "The loop waits this many seconds for a batch, then raises an error; 0 waits as long as it takes.",
    )
    worker_init_fn: Callable[[int], None] | None = option(
        None, check_function, "A function that each worker calls with its number before its first sample."
    )
    multiprocessing_context: str | BaseContext | None = option(
        None,
        start_method,
        'How processes start: "fork", "forkserver", "spawn" or a context; None: as usual.',
    )
    prefetch_factor: int | None = option(
        None, or_none(whole(1)), "The number of batches that each worker makes in advance; None means 2."
    )
    persistent_workers: bool = option(False, check_flag, "True keeps the workers from one epoch to the next.")
    in_order: bool = option(
        True, check_flag, "False delivers a batch as soon as it is made, whatever the order of the sampler."
    )


class ErrorPolicyOptions:
    """What to do about slow, bad and deadly samples (docs/when-things-go-wrong.md)."""

    stall_warning: float = option(
        30,
        seconds("never warn"),
        "After this many seconds without a batch a warning shows what each worker does; 0: never.",
    )
    on_stall: str = option(
        "wait",
        choice("wait", "restart"),
        '"restart" replaces a worker stuck in one sample for `timeout` (or else `stall_warning`) seconds.',
    )
    on_error: str = option(
        "raise",
        choice("raise", "skip", "replace"),
        '"skip" makes a batch without a sample that fails, "replace" puts its nearest good neighbour there.',
    )
    # The same index counts once over all epochs, a stream's element each time. A share is judged as soon as it allows
    # 10 bad samples (after 1,000 samples for 0.01) and at the end of each epoch.
    max_errors: float | None = option(
        None,
        or_none(count_or_share),
        'This many samples may fail under "skip" and "replace"; below 1 it is a share of the samples read.',
    )
    max_deaths: int = option(2, whole(1), "This many workers may die at one sample before the sample is given up.")
    error_log: str | None = option(
        None,
        check_file,
        "A file that gets one JSON line for each sample that fails.",
        takes="str | os.PathLike[str] | None",
    )


class OwnOptions(ErrorPolicyOptions):
    """Options of every front that torch does not have."""

    workers: str = option(
        "process",
        kind_of_workers,
        'The kind of workers: "process", "thread" for samples that wait, "ray" for a cluster (docs/workers.md).',
    )
    ray_options: dict[str, Any] | None = option(
        None, or_none(actor_options), 'For workers="ray": options of Ray\'s actors, such as `resources` (docs/ray.md).'
    )
    global_batch_size: int | None = option(
        None,
        or_none(whole(1)),
        "The number of samples in a batch of all ranks; each makes its share (docs/elastic.md).",
    )
    shuffle_buffer: int = option(
        0, whole(0), "A stream is shuffled in a buffer of this many elements; 0 leaves its order (docs/streams.md)."
    )
    collate: Any = option(
        None, None, 'How each field becomes a batch, instead of collate_fn: `{"tokens": pad(0)}` (docs/collation.md).'
    )
    fetch_threads: int = option(
        0,
        whole(0, otherwise=" (0: one sample after the other)"),
        "Each worker reads this many samples at a time; 0 reads one after another (docs/latency.md).",
    )
    on_epoch_end: Callable[[Stats], object] | None = option(
        None, check_function, "A function that is called with `loader.stats()` after each epoch (docs/seeing.md)."
    )
    prefetch_next_epoch: bool = option(
        True,
        check_flag,
        "False: persistent workers read nothing before an epoch begins (docs/across-epochs.md).",
    )
    assignment: str | None = option(
        "free",
        or_none(choice(*ASSIGNMENTS)),
        '"free": any free worker makes the next batch; "in_turn": each makes every Nth (docs/workers.md).',
        takes="str",
    )
    ranks: str | None = option(
        None,
        or_none(choice(*RANKS)),
        '"shard" divides a stream among the ranks; with "all" each rank reads all of it (docs/streams.md).',
    )
    uneven: str | None = option(
        None,
        or_none(choice(*UNEVEN)),
        'How a stream divided among ranks ends: "pad" (also for None), "drop" or "exact" (docs/streams.md).',
    )


class CommonOptions(TorchsOptions, OwnOptions):
    """Options of every front."""


class CoreOptions(CommonOptions):
    """Options of feedline.DataLoader."""

    seed: int = option(
        None,
        seed_or_none,
        "Order and random draws follow from the seed and the epoch; None draws a seed.",
        takes="int | None",
    )


class ErrorPolicy(Checked, ErrorPolicyOptions):
    """What to do about slow, bad and deadly samples, checked."""
