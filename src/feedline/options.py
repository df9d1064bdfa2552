"""The loader's options, checked in one place.

Takes: what the user passed. Gives: an `Options` value that everything else may rely on.
Promises: every wrong option is refused at construction with a message naming it and what would be right.
Not its job: acting on the options.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from typing import Any

from feedline.care import Care, check_care
from feedline.checks import check_choice, check_flag, check_function, check_seconds, check_seed, check_whole
from feedline.datasets import reads_many
from feedline.errors import OptionError, OptionTypeError
from feedline.foreign import ask, has
from feedline.staffing import AutoCount, check_count
from feedline.stats import Stats
from feedline.world import RANKS, UNEVEN

START_METHODS = ("fork", "forkserver", "spawn")
KINDS = ("process", "thread")
ASSIGNMENTS = ("free", "in_turn")


@dataclass(frozen=True)
class Options:
    """A loader's options after checking; `batch_size` is None for no batching or when a batch sampler decides."""

    dataset: Any
    stream: bool
    batch_size: int | None
    shuffle: bool
    sampler: Iterable[Any] | None
    batch_sampler: Iterable[Any] | None
    num_workers: int
    collate_fn: Callable[[Any], Any] | None
    drop_last: bool
    timeout: float
    worker_init_fn: Callable[[int], None] | None
    multiprocessing_context: str | BaseContext | None
    prefetch_factor: int
    persistent_workers: bool
    in_order: bool
    seed: int
    seeded: bool
    """Was the seed given by the user?"""
    workers: str
    shuffle_buffer: int
    care: Care
    fetch_threads: int = 0
    """How many of a batch's samples each worker reads at a time; 0: one, or many of those that are awaited."""
    on_epoch_end: Callable[[Stats], object] | None = None
    """Called with the loader's stats when an epoch's end has been met."""
    assignment: str = "free"
    """Which worker makes a batch: any free one, or each in turn ("in_turn")."""
    across_epochs: bool = True
    """Are the next epoch's first batches made while this one's last are consumed, where that is safe?"""
    ranks: str | None = None
    """Of a stream under several ranks: are its elements shared out ("shard"), or does each rank read all ("all")?"""
    uneven: str = "pad"
    """What becomes of the last step of a stream that is shared out over ranks (line.turns)."""

    @property
    def batched(self) -> bool:
        """Does a task make a batch, or hand on a single sample?"""
        return self.batch_size is not None or self.batch_sampler is not None


def check_options(given: dict[str, Any]) -> Options:
    """Check what was passed to DataLoader, torch's exclusions among them, and fill in what follows from it."""
    dataset, num_workers = given["dataset"], check_count(given["num_workers"], given["prefetch_factor"])
    stream = _is_stream(dataset)
    options = Options(
        dataset=dataset,
        stream=stream,
        batch_size=_batch_size(given["batch_size"]),
        shuffle=check_flag("shuffle", False if given["shuffle"] is None else given["shuffle"]),
        sampler=_iterable("sampler", given["sampler"]),
        batch_sampler=_iterable("batch_sampler", given["batch_sampler"]),
        num_workers=num_workers,
        collate_fn=check_function("collate_fn", given["collate_fn"]),
        drop_last=check_flag("drop_last", given["drop_last"]),
        timeout=check_seconds("timeout", given["timeout"], "wait as long as it takes"),
        worker_init_fn=check_function("worker_init_fn", given["worker_init_fn"]),
        multiprocessing_context=_context(given["multiprocessing_context"], num_workers),
        prefetch_factor=_prefetch(given["prefetch_factor"], num_workers),
        persistent_workers=_persistent(given["persistent_workers"], num_workers),
        in_order=check_flag("in_order", given["in_order"]),
        seed=_seed(given["seed"], given["ranks"]),
        seeded=given["seed"] is not None,
        workers=check_kind(given["workers"]),
        shuffle_buffer=check_whole("shuffle_buffer", given["shuffle_buffer"], least=0),
        care=check_care(given),
        fetch_threads=check_fetch_threads(given["fetch_threads"]),
        on_epoch_end=check_function("on_epoch_end", given["on_epoch_end"]),
        across_epochs=check_flag("across_epochs", given["across_epochs"]),
        assignment=check_assignment(given["assignment"], num_workers, stream) or "free",
        ranks=check_ranks(given["ranks"], stream),
        uneven=check_uneven(given["uneven"], given["ranks"]),
    )
    check_start_method(options.workers, options.multiprocessing_context)
    check_buffer(options.shuffle_buffer, options.stream)
    check_restart(options.care, options.timeout)
    check_fetching(options.fetch_threads, dataset, stream, options.batched, reads_many)
    _check_sampling(options)
    return _without_default_batch_size(options)


def check_start_method(workers: str, multiprocessing_context: Any) -> None:
    """Threads are not started like processes."""
    if workers == "thread" and multiprocessing_context is not None:
        raise OptionError(
            "multiprocessing_context is for worker processes: leave it out, or leave out workers='thread'"
        )


def check_assignment(value: Any, num_workers: int, stream: bool) -> str | None:
    """Which worker makes a batch; None if that is left to the loader."""
    if value is None:
        return None
    chosen = check_choice("assignment", value, ASSIGNMENTS)
    if chosen == "in_turn" and isinstance(num_workers, AutoCount) and not stream:
        raise OptionError(
            "assignment='in_turn' gives every Nth batch to the same worker, and with num_workers='auto' their number "
            "changes: give a number of workers, or leave out assignment"
        )
    return chosen


def check_buffer(shuffle_buffer: int, stream: bool) -> None:
    """Only a stream is shuffled as it comes."""
    if shuffle_buffer and not stream:
        raise OptionError("shuffle_buffer is for an IterableDataset; a map-style dataset takes shuffle=True instead")


def check_ranks(value: Any, stream: bool) -> str | None:
    """Only of a stream is it unknown what each rank reads: samplers share out indices."""
    if value is None:
        return None
    if not stream:
        raise OptionError(
            "ranks is for an IterableDataset; a map-style dataset is shared out over ranks by its sampler: "
            "sampler=DistributedSampler(dataset)"
        )
    return check_choice("ranks", value, RANKS)


def check_uneven(value: Any, ranks: Any) -> str:
    """The words of DistributedSampler, and its default."""
    if value is not None and ranks != "shard":
        raise OptionError(
            "uneven says how an IterableDataset ends that is shared out over ranks: say ranks='shard', too"
        )
    return check_choice("uneven", "pad" if value is None else value, UNEVEN)


def check_fetch_threads(value: Any) -> int:
    """A number of samples to be read at a time."""
    return check_whole("fetch_threads", value, least=0, otherwise=" (0: one sample after the other)")


def check_fetching(
    fetch_threads: int, dataset: Any, stream: bool, batched: bool, reads_many: Callable[[Any], bool]
) -> None:
    """Only a batch of samples that are read one by one can be read several at a time."""
    if not fetch_threads:
        return
    if stream:
        raise OptionError("fetch_threads is for a map-style dataset: a stream gives one element after the other")
    if not batched:
        raise OptionError(
            "fetch_threads reads the samples of a batch at a time, and with batch_size=None there is but one: set "
            "batch_size, or use more workers (workers='thread' for samples that wait)"
        )
    if reads_many(dataset):
        raise OptionError(
            f"fetch_threads is for samples that are read one by one, but {type(dataset).__name__} reads many at once "
            "(__getitems__) and decides itself how: leave out fetch_threads"
        )


def check_sampler(sampler: Any) -> None:
    """A sampler of whole batches has an option of its own."""
    if ask(sampler, "makes_batches", False) is True:
        raise OptionError(
            f"{type(sampler).__name__} makes whole batches: pass it as batch_sampler instead of sampler, and leave out "
            "batch_size"
        )


def check_population(batch_sampler: Any, dataset: Any) -> None:
    """A sampler made of one label or length per sample must have been made for this dataset."""
    population = ask(batch_sampler, "population")
    if population is None:
        return
    try:
        size = len(dataset)
    except Exception:  # it need not have a length, where a sampler says what there is
        return
    if size != population:
        raise OptionError(
            f"batch_sampler was made for {population} samples, but the dataset has {size}: give it one label or length "
            "for each sample; to load only some of them, make a Subset(dataset, indices)"
        )


def _check_sampling(options: Options) -> None:
    check_sampler(options.sampler)
    if options.stream:
        _check_stream(options)
    check_population(options.batch_sampler, options.dataset)
    if options.batch_sampler is not None:
        others = {
            f"batch_size={options.batch_size}": options.batch_size != 1,
            "shuffle=True": options.shuffle,
            "sampler": options.sampler is not None,
            "drop_last=True": options.drop_last,
        }
        wrong = [name for name, is_given in others.items() if is_given]
        if wrong:
            raise OptionError(f"batch_sampler already decides the batches: leave out {', '.join(wrong)}")
    if options.sampler is not None and options.shuffle:
        raise OptionError(
            "sampler and shuffle=True exclude each other: the sampler decides the order; drop one of them"
        )
    if options.batch_size is None and options.drop_last:
        raise OptionError("drop_last=True needs a batch_size; with batch_size=None there are no batches to drop")
    if not options.stream and options.sampler is None and options.batch_sampler is None:
        _check_length(options.dataset)


def _check_stream(options: Options) -> None:
    if options.shuffle:
        raise OptionError(
            "shuffle=True cannot reorder an IterableDataset; use shuffle_buffer=N to shuffle as it streams"
        )
    for name in ("sampler", "batch_sampler"):
        if getattr(options, name) is not None:
            raise OptionError(f"{name} picks indices, and an IterableDataset has none: leave {name} out")


def _check_length(dataset: Any) -> None:
    kind = type(dataset).__qualname__
    if not hasattr(type(dataset), "__len__"):
        raise OptionTypeError(
            f"dataset ({kind}) has no __len__, so the loader cannot tell which indices "
            "there are: define __len__, or pass a sampler or batch_sampler, or make it an IterableDataset"
        )
    try:
        len(dataset)
    except (TypeError, ValueError) as error:  # what Python makes of a __len__ that gives no length
        wrong = OptionTypeError if isinstance(error, TypeError) else OptionError
        raise wrong(f"dataset ({kind}) has a __len__ that fails ({error}): let it return the sample count") from error


def _without_default_batch_size(options: Options) -> Options:
    if options.batch_sampler is None:
        return options
    return Options(**{**options.__dict__, "batch_size": None})


def _is_stream(dataset: Any) -> bool:
    if isinstance(dataset, type):
        raise OptionTypeError(
            f"dataset is the class {dataset.__qualname__}; pass an instance: {dataset.__qualname__}(…)"
        )
    # By name, so that torch's IterableDataset is known without importing torch; it inherits a __getitem__.
    named_so = any(parent.__name__ == "IterableDataset" for parent in type(dataset).__mro__)
    if has(dataset, "__getitem__") and not named_so:
        return False
    if has(dataset, "__iter__"):
        return True
    raise OptionTypeError(
        f"dataset ({type(dataset).__qualname__}) has neither __getitem__ (map-style) nor __iter__ (iterable)"
    )


def _batch_size(value: Any) -> int | None:
    if value is None:
        return None
    return check_whole("batch_size", value, least=1, otherwise=", or None for no batching")


def _iterable(name: str, value: Any) -> Any:
    if isinstance(value, type):
        raise OptionTypeError(f"{name} is the class {value.__qualname__}; pass an instance: {value.__qualname__}(…)")
    if value is not None and not has(value, "__iter__") and not has(value, "__getitem__"):
        raise OptionTypeError(f"{name} must be something to iterate over (or None); got {value!r}")
    return value


def _context(value: Any, num_workers: int) -> str | BaseContext | None:
    if value is None:
        return None
    if num_workers == 0:
        raise OptionError("multiprocessing_context needs num_workers > 0: without workers nothing is started")
    if isinstance(value, str):
        if value not in START_METHODS:
            raise OptionError(f"multiprocessing_context must be one of {', '.join(START_METHODS)}; got {value!r}")
        return value
    if isinstance(value, BaseContext):
        return value
    raise OptionTypeError(f"multiprocessing_context must be a start method's name or a context; got {value!r}")


def _prefetch(value: Any, num_workers: int) -> int:
    if value is None:
        return 2  # torch's default
    if num_workers == 0:
        raise OptionError("prefetch_factor needs num_workers > 0: without workers nothing is loaded ahead")
    return check_whole("prefetch_factor", value, least=1)


def _persistent(value: Any, num_workers: int) -> bool:
    if check_flag("persistent_workers", value) and num_workers == 0:
        raise OptionError("persistent_workers=True needs num_workers > 0")
    return bool(value)


def _seed(value: Any, ranks: Any) -> int:
    if value is None:
        return 0 if ranks == "shard" else secrets.randbits(62)  # ranks that share a stream must draw alike
    return check_seed(value)


def check_kind(value: Any) -> str:
    """A kind of workers."""
    if not isinstance(value, str):
        raise OptionTypeError(
            f"workers says of which kind they are, {' or '.join(map(repr, KINDS))}; got {value!r}. "
            "How many there are is num_workers."
        )
    if value == "auto":
        raise OptionError(
            "workers='auto' is no more: it chose threads for datasets that threads cannot share. Leave it out for "
            "processes, or say workers='thread' for samples that wait or release the GIL; `feedline doctor` tells which"
        )
    return check_choice("workers", value, KINDS)


def check_restart(care: Care, timeout: float) -> None:
    """A stuck worker can only be restarted after some time."""
    if care.on_stall == "restart" and not timeout and not care.stall_warning:
        raise OptionError(
            "on_stall='restart' needs timeout or stall_warning above 0: after how long is a worker stuck?"
        )
