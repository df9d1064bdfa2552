"""The options of feedline.jax.DataLoader that other fronts do not have, and what they exclude.

Takes: what the user passed. Gives: `Own`, these options, checked, and the options of the core's loader that follow.
Promises: whatever several processes could not keep in step is refused when the loader is made. JAX is not imported.
Not its job: the options of every front (options.table), which sharding fits which batch (layout).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from feedline.collate.collator import Collator
from feedline.collate.padding import pad
from feedline.errors import OptionError
from feedline.errors.checks import check_flag
from feedline.options.option import Checked, check_each, option, rows
from feedline.options.single_values import is_stream, whole
from feedline.options.table import CoreOptions
from feedline.order.ranks import ranks_of


class OwnJaxOptions:
    """Options that only this front has, and one with another default."""

    global_batch_size: int | None = CoreOptions.global_batch_size
    sharding: Any = option(
        None,
        None,
        "Where batches go: a sharding, or a pytree prefix of them; None: over all devices (docs/jax.md).",
    )
    drop_last: bool = option(True, check_flag, "True leaves out a last batch that is not full: shapes stay the same.")
    pad_last: bool = option(
        False, check_flag, "True fills up the last batch and gives `(batch, mask)`; the mask is False for filling."
    )
    device_prefetch: int = option(
        1, whole(0), "The number of batches that are put on their devices before the loop asks for them."
    )
    batch_key: bool = option(
        False, check_flag, "True gives a `jax.random` key with each batch, the same on every process."
    )


class Own(Checked, OwnJaxOptions):
    """These options, checked."""

    sharding: Any


TABLE = {name: row for name, row in rows(CoreOptions).items() if name != "batch_size"} | dict(rows(OwnJaxOptions))
"""All options of this front."""


def check_own(given: Mapping[str, Any]) -> Own:
    """Check what was passed to DataLoader."""
    own = Own(**check_each(OwnJaxOptions, given))
    if given["batch_sampler"] is not None:
        if own.global_batch_size is not None or own.pad_last:
            name = "pad_last=True" if own.pad_last else f"global_batch_size={own.global_batch_size}"
            raise OptionError(f"batch_sampler already decides the batches: leave out {name}")
    elif own.global_batch_size is None:
        raise OptionError(
            "global_batch_size is missing: the number of samples in a batch over all processes, as 1024; it does not "
            "change with the number of processes"
        )
    for name in ("sampler", "batch_sampler"):
        if ranks_of(given[name]) > 1:
            raise OptionError(
                f"{name} gives one rank's share of an order, but this loader takes its rows of each global batch "
                f"itself: pass the sampler inside it ({name}.sampler)"
            )
    return own


def core_options(own: Own, given: Mapping[str, Any], processes: int, groups: int) -> dict[str, Any]:
    """The options of the core's loader: it makes this process's rows. `groups`: how many different sets there are."""
    stream = is_stream(given["dataset"])
    taken = {name: given[name] for name in rows(CoreOptions) if name in given and name != "global_batch_size"}
    by_batches = given["batch_sampler"] is not None
    taken["batch_size"] = 1 if by_batches else own.global_batch_size  # 1: the core's sign for "not given"
    taken["drop_last"] = own.drop_last and not own.pad_last and not by_batches
    if given["multiprocessing_context"] is None and given["num_workers"] and given["workers"] == "process":
        taken["multiprocessing_context"] = "spawn"  # from our server: JAX's threads do not survive a fork
    if given["seed"] is None and processes > 1:
        taken["seed"] = 0  # all processes need one order
    if stream:
        taken |= _of_stream(own, given, groups)
    if processes > 1:
        _check_in_step(given)
    if groups > 1 and _pads_freely(given["collate"] or given["collate_fn"]):
        raise OptionError(
            "collate pads each batch to its longest sample, and each process has other samples: their rows would have "
            "other shapes. Fix the length: pad(…, length=512)"
        )
    if given["on_error"] == "skip" and not own.pad_last and not stream:
        raise OptionError(
            "on_error='skip' gives smaller batches, of which each has another shape: set pad_last=True, which fills "
            "them up and gives a mask, or on_error='replace'"
        )
    return taken


def _pads_freely(collate: Any, deepest: int = 6) -> bool:
    """Is there a `pad` in it whose length is not fixed?"""
    if isinstance(collate, pad):
        return collate.length is None
    inside: Any = collate
    if isinstance(collate, Collator):
        inside = getattr(collate, "__dict__", {})
    parts = inside.values() if isinstance(inside, Mapping) else inside if isinstance(inside, (list, tuple)) else ()
    return deepest > 0 and any(_pads_freely(part, deepest - 1) for part in parts)


def _of_stream(own: Own, given: Mapping[str, Any], groups: int) -> dict[str, Any]:
    """Each process reads the whole stream and keeps its rows; with ranks="shard" it reads only its own batches."""
    if given["ranks"] != "shard":
        return {"ranks": "all"}
    if own.pad_last or not own.drop_last:
        raise OptionError(
            "ranks='shard' needs drop_last=True and pad_last=False: no process knows how many elements the others have"
        )
    assert own.global_batch_size is not None
    return {"batch_size": own.global_batch_size // groups, "uneven": given["uneven"] or "drop"}


def _check_in_step(given: Mapping[str, Any]) -> None:
    """What could let one process have another batch than the others."""
    if given["on_error"] == "skip":
        raise OptionError(
            "on_error='skip' gives one process a smaller batch, but all processes together make one global array: set "
            "on_error='replace'"
        )
    if not given["in_order"]:
        raise OptionError(
            "in_order=False lets each process have another batch at the same step: leave it out with several processes"
        )
