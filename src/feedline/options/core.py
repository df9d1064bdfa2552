"""The options of feedline.DataLoader, checked.

Takes: what the user passed. Gives: `LoaderOptions`, which everything else may rely on.
Promises: every wrong option is refused when the loader is made, with a message that names it and says what would be
right. Whatever torch refuses is refused here, too.
Not its job: acting on the options.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from feedline.datasets import reads_many
from feedline.errors import OptionError, OptionTypeError
from feedline.options.option import Checked, check_each, picked
from feedline.options.single_values import is_stream
from feedline.options.table import CoreOptions, ErrorPolicy
from feedline.options.together import check_together, uneven_end
from feedline.options.worker_count import as_number


class LoaderOptions(Checked, CoreOptions):
    """Options after checking, and values derived from them. `batch_size` is None if a batch sampler decides."""

    stream: bool
    """Is the dataset read by iterating?"""
    batched: bool
    """Does a task make a batch, or pass on a single sample?"""
    error_policy: ErrorPolicy
    seeded: bool
    """Was the seed given by the user?"""
    prefetch_factor: int


def check_options(given: Mapping[str, Any]) -> LoaderOptions:
    """Check what was passed to DataLoader, and add derived values."""
    values = check_each(CoreOptions, given)
    values["num_workers"] = as_number(values["num_workers"], values["prefetch_factor"])
    options = LoaderOptions(**values, stream=is_stream(values["dataset"]))
    check_together(options, options.stream, reads_many)
    _check_workers(options)
    _check_sampling(options)
    return LoaderOptions(**vars(options) | _following(values))


def _following(values: dict[str, Any]) -> dict[str, Any]:
    """Values derived from correct options, and the meaning of None."""
    by_batch_sampler, seed = values["batch_sampler"] is not None, values["seed"]
    if seed is None:
        together = values["ranks"] == "shard" or values["global_batch_size"] is not None  # ranks that need one seed
        seed = 0 if together else secrets.randbits(62)
    return {
        "batch_size": None if by_batch_sampler else values["global_batch_size"] or values["batch_size"],
        "batched": by_batch_sampler or values["batch_size"] is not None,
        "prefetch_factor": values["prefetch_factor"] or 2,  # torch's default
        "seed": seed,
        "seeded": values["seed"] is not None,
        "error_policy": picked(ErrorPolicy, values),
        "assignment": values["assignment"] or "free",
        "uneven": uneven_end(values["ranks"], values["uneven"]),
    }


def _check_workers(options: CoreOptions) -> None:
    if options.num_workers:
        return
    if options.multiprocessing_context is not None:
        raise OptionError("multiprocessing_context needs num_workers > 0: without workers nothing is started")
    if options.prefetch_factor is not None:
        raise OptionError("prefetch_factor needs num_workers > 0: without workers nothing is loaded ahead")
    if options.persistent_workers:
        raise OptionError("persistent_workers=True needs num_workers > 0")


def _check_sampling(options: LoaderOptions) -> None:
    if options.stream:
        _check_stream(options)
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


def _check_stream(options: LoaderOptions) -> None:
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
    except (TypeError, ValueError) as error:  # Python raises these if __len__ returns no length
        wrong = OptionTypeError if isinstance(error, TypeError) else OptionError
        raise wrong(f"dataset ({kind}) has a __len__ that fails ({error}): let it return the sample count") from error
