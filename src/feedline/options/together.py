"""Options that must fit each other, in every front.

Takes: options, each of which is right by itself. Gives: nothing, or an `OptionError` that says which do not fit and
what to do.
Not its job: single values (single_values), what torch refuses by itself (core says the same for feedline.DataLoader).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedline.errors import OptionError
from feedline.errors.foreign import ask
from feedline.options.table import CommonOptions
from feedline.options.worker_count import AutoCount


def check_together(options: CommonOptions, stream: bool, reads_many: Callable[[Any], bool]) -> None:
    """All checks of this module. `reads_many` says whether a dataset has its own way to read many samples at once."""
    if options.workers != "process" and options.multiprocessing_context is not None:
        raise OptionError(
            f"multiprocessing_context is for worker processes: leave it out, or leave out workers={options.workers!r}"
        )
    _check_cluster(options, stream)
    if options.shuffle_buffer and not stream:
        raise OptionError("shuffle_buffer is for an IterableDataset; a map-style dataset takes shuffle=True instead")
    _check_error_policy(options)
    _check_ranks(options, stream)
    if options.global_batch_size is not None:
        _check_global(options)
    check_assignment(options.assignment, options.num_workers, stream)
    if options.fetch_threads:
        _check_fetching(options, stream, reads_many)
    check_sampler(options.sampler)
    _check_population(options.batch_sampler, options.dataset)


def _check_cluster(options: CommonOptions, stream: bool) -> None:
    if options.workers != "ray":
        if options.ray_options is not None:
            raise OptionError("ray_options is for workers='ray': leave it out, or set workers='ray'")
    elif isinstance(options.num_workers, AutoCount) and stream:
        raise OptionError(
            "a stream is divided by the number of workers, which does not change: with workers='ray' say how many, not "
            "num_workers='auto', such as num_workers=int(ray.available_resources()['CPU'])"
        )
    elif not options.num_workers:
        raise OptionError("workers='ray' needs num_workers > 0: without workers nothing is sent to the cluster")


def check_assignment(assignment: str | None, num_workers: int, stream: bool) -> None:
    """A changing number of workers cannot take turns."""
    if assignment == "in_turn" and isinstance(num_workers, AutoCount) and not stream:
        raise OptionError(
            "assignment='in_turn' gives every Nth batch to the same worker, but with num_workers='auto' the number of "
            "workers changes: give a number of workers, or leave out assignment"
        )


def uneven_end(ranks: str | None, uneven: str | None) -> str | None:
    """What `uneven` means: if ranks share a stream, the default is DistributedSampler's."""
    return uneven or ("pad" if ranks == "shard" else None)


def check_sampler(sampler: Any) -> None:
    """Refuse a sampler of whole batches: there is another option for it."""
    if ask(sampler, "makes_batches", False) is True:
        raise OptionError(
            f"{type(sampler).__name__} makes whole batches: pass it as batch_sampler instead of sampler, and leave out "
            "batch_size"
        )


def _check_error_policy(options: CommonOptions) -> None:
    if options.max_errors is not None and options.on_error == "raise":
        raise OptionError("max_errors needs on_error='skip' or 'replace': with 'raise' the first error is raised")
    if options.on_stall == "restart" and not options.timeout and not options.stall_warning:
        raise OptionError(
            "on_stall='restart' needs timeout or stall_warning above 0: after how long is a worker stuck?"
        )


def _check_ranks(options: CommonOptions, stream: bool) -> None:
    """`ranks` is for streams only: for indices, samplers decide what each rank reads."""
    if options.ranks is not None and not stream:
        raise OptionError(
            "ranks is for an IterableDataset; a map-style dataset is divided among ranks by its sampler: "
            "sampler=DistributedSampler(dataset)"
        )
    if options.uneven is not None and options.ranks != "shard":
        raise OptionError("uneven says how an IterableDataset that is divided among ranks ends: set ranks='shard', too")


def _check_global(options: CommonOptions) -> None:
    """All ranks together make a batch: whatever lets one of them have other rows, or a batch at another step."""
    size = f"global_batch_size={options.global_batch_size}"
    if options.batch_size != 1:
        raise OptionError(
            f"batch_size={options.batch_size} and {size} exclude each other: a rank's batches have their size from "
            f"{size} and the number of ranks; leave out one of them"
        )
    if options.batch_sampler is not None:
        raise OptionError(
            f"batch_sampler already decides the batches: leave out {size}. (Lightning puts one in to predict, and on "
            "several ranks: predict with a loader that has batch_size=, and train with "
            "Trainer(use_distributed_sampler=False))"
        )
    if _shares_out(options.sampler):
        raise OptionError(
            f"the {type(options.sampler).__name__} gives one rank's share of an order, and {size} gives each rank its "
            "share of every batch: shared out twice, samples are lost. Leave the sampler out, or pass the one inside "
            "it; under Lightning, Trainer(use_distributed_sampler=False)"
        )
    if options.ranks is not None:
        raise OptionError(
            f"ranks={options.ranks!r} and {size} exclude each other: with {size} ranks read the stream together, and "
            "each keeps its rows of every batch; leave out one of them"
        )
    if options.on_error == "skip":
        raise OptionError(
            f"on_error='skip' gives a rank fewer rows than its share, and perhaps no batch where others have one, but "
            f"{size} is a batch of all ranks: set on_error='replace'"
        )
    if not options.in_order:
        raise OptionError(
            f"in_order=False lets each rank have another batch at the same step, but {size} is one batch of all ranks: "
            "leave it out"
        )


def _shares_out(sampler: Any) -> bool:
    ranks = ask(sampler, "num_replicas")
    return isinstance(ranks, int) and ranks > 1


def _check_fetching(options: CommonOptions, stream: bool, reads_many: Callable[[Any], bool]) -> None:
    """Several samples can be read at a time only if they are read one by one, for a batch."""
    if stream:
        raise OptionError("fetch_threads is for a map-style dataset: a stream gives one element after the other")
    if options.batch_size is None and options.batch_sampler is None:
        raise OptionError(
            "fetch_threads reads several samples of a batch at a time, but with batch_size=None there is only one: set "
            "batch_size, or use more workers (workers='thread' for samples that wait)"
        )
    if reads_many(options.dataset):
        raise OptionError(
            f"fetch_threads is for samples that are read one by one, but {type(options.dataset).__name__} reads many "
            "at once (__getitems__) and decides itself how: leave out fetch_threads"
        )


def _check_population(batch_sampler: Any, dataset: Any) -> None:
    """A sampler made from one label or length per sample must have been made for this dataset."""
    population = ask(batch_sampler, "population")
    if population is None:
        return
    try:
        size = len(dataset)
    except Exception:  # with a sampler the dataset need not have a length
        return
    if size != population:
        raise OptionError(
            f"batch_sampler was made for {population} samples, but the dataset has {size}: give it one label or length "
            "for each sample; to load only some of them, make a Subset(dataset, indices)"
        )
