"""Which rank is this, of the processes that train together, and how many ranks are there?

Takes: what the user says. Gives: (number of ranks, this rank), from the user; else from torch.distributed if it is
initialised; else from jax.distributed if that is initialised; else from the variables that launchers set.
Promises: a framework is asked only if it has been imported, and JAX only if the user has initialised jax.distributed:
otherwise JAX would look for its devices. Not its job: dividing data (order/ranks, sources).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from feedline.errors import OptionError
from feedline.errors.checks import check_whole
from feedline.errors.foreign import ask
from feedline.machine import loaded_torch
from feedline.machine.rank_questions import VARIABLES

RANKS = ("shard", "all")
"""How several ranks can read a stream: they divide its elements, or each rank reads all of them."""
UNEVEN = ("pad", "drop", "exact")
"""If the ranks cannot divide the samples evenly: repeat some, leave some out, or give some ranks fewer."""


def ranks(count: int | None, rank: int | None, alone: bool = False) -> tuple[int, int]:
    """How many ranks there are, and which this is. With `alone`, there is one rank if nothing was given or found.

    >>> ranks(4, 1)
    (4, 1)
    """
    if count is None or rank is None:
        found = _found()
        if found is None and alone and count is None and rank is None:
            found = (1, 0)
        if found is None:
            raise OptionError(_nothing_found())
        count, rank = (found[0] if count is None else count), (found[1] if rank is None else rank)
    count = check_whole("num_replicas", count, least=1)
    rank = check_whole("rank", rank, least=0)
    if rank >= count:
        raise OptionError(f"rank must be below num_replicas={count}; got {rank}")
    return count, rank


def _found() -> tuple[int, int] | None:
    if (torchs := loaded_torch.ranks()) is not None:
        return torchs
    if _is_begun(sys.modules.get("jax.distributed")):
        jax: Any = sys.modules["jax"]
        return jax.process_count(), jax.process_index()
    for rank, count in VARIABLES:
        if rank in os.environ and count in os.environ and not _is_only_asked_for(count):
            return int(os.environ[count]), int(os.environ[rank])
    return None


def _is_begun(jaxs: Any) -> bool:
    """Has jax.distributed been initialised? No, if the version cannot say or is not completely imported."""
    asked = ask(jaxs, "is_initialized")
    return asked is not None and bool(asked())


def _is_only_asked_for(count: str) -> bool:
    """In a job SLURM_NTASKS is what sbatch was asked for; SLURM_STEP_NUM_TASKS is how many srun has started."""
    return count == "SLURM_NTASKS" and "SLURM_JOB_ID" in os.environ


def _nothing_found() -> str:
    names = ", ".join("/".join(pair) for pair in VARIABLES if not _is_only_asked_for(pair[1]))
    srun = ", or start the script with srun" if "SLURM_JOB_ID" in os.environ else ""
    return (
        "num_replicas and rank are not given, neither torch.distributed nor jax.distributed is initialised and none of "
        f"{names} is set: pass both{srun}"
    )
