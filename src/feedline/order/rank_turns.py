"""A stream's batches, shared out over ranks: of every R consecutive batches each rank gets one.

Takes: the user's options `ranks` and `uneven`, and the number of this rank. Gives: `Turns`.
Promises: batches are numbered over all ranks, so batch g is the same for any number of ranks. The batches of a step are
the next R. What happens at the end is named as in DistributedSampler, which shares out batches in the same way.
Not its job: reading (reading), finding the rank (machine.this_rank), noticing that a stream asks for it
(rank_questions).
"""

from __future__ import annotations

from typing import NamedTuple

from feedline.machine.this_rank import ranks as find_ranks

OWN_ENDS = (
    "uneven={uneven!r} is not possible: the IterableDataset reads its own share on each rank (it has shard(index, "
    "count), or looks at get_worker_info().num_workers), so no rank can know how many batches the others have. Set "
    "uneven='exact', and let ranks end at different steps (torch's Join helps) or after the same number of batches "
    "(loader.forever(batches_per_epoch=…))"
)
OTHER_RANKS = (
    "the state cannot be continued here: it was saved by rank {rank} of {ranks}, and the IterableDataset reads its "
    "own share on each rank, so the state does not say where the other ranks were. Continue with {ranks} ranks, each "
    "from the state that it saved itself"
)


class Turns(NamedTuple):
    """Which of the batches belong to this rank.

    >>> Turns(4, rank=1).after(9)
    12
    """

    ranks: int = 1
    rank: int = 0
    uneven: str = "exact"
    """What happens in the last step if there are fewer batches than ranks: "pad" gives the step's first batch to the
    ranks that have none, "drop" leaves the step out, "exact" lets some ranks end one step before the others."""

    def after(self, batch: int) -> int:
        """The number of the first batch of the step after the one that has this batch of this rank."""
        return batch - self.rank + self.ranks


ONE_RANK = Turns()


def turns_for(ranks: str | None, uneven: str | None) -> Turns:
    """This rank's turns as of now: torch.distributed may be initialised after the loader was made."""
    if ranks != "shard":
        return ONE_RANK
    count, rank = find_ranks(None, None, alone=True)
    return Turns(count, rank, uneven or "pad") if count > 1 else ONE_RANK


def unshared_ranks(ranks: str | None) -> int:
    """The number of ranks if each reads the whole stream and the user has not said that this is intended; else 0."""
    if ranks is not None:
        return 0
    try:
        count = find_ranks(None, None, alone=True)[0]
    except ValueError:  # the variables mean something else; a user who has not asked for ranks must not see an error
        return 0
    return count if count > 1 else 0
