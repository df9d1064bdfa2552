"""A stream's batches, shared out over ranks: of each R batches in a row a rank has one.

Takes: what the user says (`ranks`, `uneven`), and the rank this is. Gives: `Turns`.
Promises: batches are numbered over all ranks, so that batch g is the same one for any number of ranks. The batches of a
step are the next R. The words for what happens at the end are those of DistributedSampler, which shares out batches so.
Not its job: reading (stream), finding out the rank (world), noticing that a stream asks for it (rank_questions).
"""

from __future__ import annotations

from typing import NamedTuple

from feedline.machine.this_rank import ranks as find_ranks

OWN_ENDS = (
    "uneven={uneven!r} cannot be kept: the IterableDataset reads a share of its own on each rank (it has shard(index, "
    "count), or looks at get_worker_info().num_workers), so no rank can know how many batches the others have. Say "
    "uneven='exact', and let ranks end at different steps (torch's Join helps) or after the same number of batches "
    "(loader.forever(batches_per_epoch=…))"
)
OTHER_RANKS = (
    "the state cannot be continued here: it was saved by rank {rank} of {ranks}, and the IterableDataset reads a share "
    "of its own on each rank, so where the other ranks stood is not in it. Continue with {ranks} ranks, each from the "
    "state that it has saved itself"
)


class Turns(NamedTuple):
    """Which of the batches are this rank's.

    >>> Turns(4, rank=1).after(9)
    12
    """

    ranks: int = 1
    rank: int = 0
    uneven: str = "exact"
    """What becomes of the last step if there is no batch for each rank: "pad" gives its first one again to those that
    have none, "drop" leaves the step out, "exact" lets some ranks end a step before the others."""

    def after(self, batch: int) -> int:
        """The number that the step after that of one of this rank's batches begins with."""
        return batch - self.rank + self.ranks


ONE_RANK = Turns()


def turns_for(ranks: str | None, uneven: str | None) -> Turns:
    """This rank's, as things stand now: torch.distributed may be initialised after the loader was made."""
    if ranks != "shard":
        return ONE_RANK
    count, rank = find_ranks(None, None, alone=True)
    return Turns(count, rank, uneven or "pad") if count > 1 else ONE_RANK


def unshared_ranks(ranks: str | None) -> int:
    """How many ranks each read all that a stream gives, if nobody has said that this is meant; else 0."""
    if ranks is not None:
        return 0
    try:
        count = find_ranks(None, None, alone=True)[0]
    except ValueError:  # variables of another meaning, which are nobody's fault who has not asked for ranks
        return 0
    return count if count > 1 else 0
