"""Which rank is this, and how many are there?

Takes: what the user says, torch.distributed if it is in use, and what launchers leave in the environment. Gives: the
number of ranks and this one's.
Promises: never imports torch; what the user says goes before what is found.
Not its job: sharing out (line/ranks, sources/sharing).
"""

from __future__ import annotations

import os
import sys
from typing import Any

from feedline.checks import check_whole
from feedline.errors import OptionError

_VARIABLES = (
    ("RANK", "WORLD_SIZE"),  # torchrun, Lightning, Accelerate
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def found_ranks() -> tuple[int, int] | None:
    """The number of ranks and this one's, if this is a job of several; None if nothing says so."""
    torchs: Any = sys.modules.get("torch.distributed")
    if torchs is not None and torchs.is_available() and torchs.is_initialized():
        return torchs.get_world_size(), torchs.get_rank()
    for rank, count in _VARIABLES:
        if rank in os.environ and count in os.environ:
            return int(os.environ[count]), int(os.environ[rank])
    return None


def ranks_or_found(count: int | None, rank: int | None) -> tuple[int, int]:
    """What is given, completed by what is found; an error if neither says it."""
    if count is None or rank is None:
        found = found_ranks()
        if found is None:
            names = ", ".join("/".join(pair) for pair in _VARIABLES)
            raise OptionError(
                "num_replicas and rank are not given, torch.distributed is not initialised and none of "
                f"{names} is set: pass both"
            )
        count, rank = (found[0] if count is None else count), (found[1] if rank is None else rank)
    return check_ranks(count, rank)


def check_ranks(count: int, rank: int) -> tuple[int, int]:
    """A number of ranks and one of them.

    >>> check_ranks(4, 3)
    (4, 3)
    """
    count = check_whole("num_replicas", count, least=1)
    rank = check_whole("rank", rank, least=0)
    if rank >= count:
        raise OptionError(f"rank must be below num_replicas={count}; got {rank}")
    return count, rank
