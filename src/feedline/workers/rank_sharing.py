"""Who divides a stream among ranks: the loader, the stream itself, or nobody?

Takes: a job, and the stream's code while it is opened and gives its first batch. Gives: a warning, once.
Promises: if both the stream and the loader would divide it, which would lose elements, that is an error. If neither
does, every rank reads all of it, with a warning unless the user said that this is intended.
Not its job: dividing (reading.stream_reader, order.rank_turns), noticing questions (rank_questions).
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from feedline.datasets import IterableDataset
from feedline.errors import OptionError
from feedline.errors.foreign import ask
from feedline.machine.rank_questions import Questions
from feedline.workers.job import Job

READ_BY_ALL = (
    "there are {ranks} ranks, and each of them reads every element that its IterableDataset gives: as far as feedline "
    "can see, the dataset does not ask for its rank. ranks='shard' divides the elements among ranks; ranks='all' says "
    "that every rank should read everything, or that the dataset already has only this rank's part of the data."
)
SHARED_TWICE = (
    "{option} divides the IterableDataset among ranks, but the dataset does so itself ({how}): if it is divided "
    "twice, elements are lost. Leave out {option}, or let the dataset read everything"
)
NAMED_ITS_RANK = (
    "{option} divides the IterableDataset among ranks, but the dataset asks for its rank, too. If it picks its "
    "part by its rank, elements are lost: then leave out {option}."
)


class RankSharing:
    """What one worker knows about how its stream is divided among ranks."""

    def __init__(self, job: Job) -> None:
        self._unshared = job.unshared
        self._shards = job.turns.ranks > 1 or job.share.ranks > 1
        self._option = "ranks='shard'" if job.share.ranks == 1 else "global_batch_size"
        self._questions = Questions() if job.stream and (self._shards or self._unshared) else None
        self._how = _told(job.dataset) if self._questions is not None else ""
        self._refused = SHARED_TWICE.format(option=self._option, how=self._how) if self._shards and self._how else ""

    def check(self) -> None:
        """Raise an error, in every epoch, if the stream is known to be divided twice."""
        if self._refused:
            raise OptionError(self._refused)

    def watched(self) -> AbstractContextManager[None]:
        """Watch whether the stream's code asks for its rank, until `judged` has been called."""
        return nullcontext() if self._questions is None else self._questions.watched()

    def judged(self) -> str:
        """The warning after the first batch; empty if there is none, and later."""
        asked, self._questions = self._questions, None
        if asked is None:
            return ""
        if not self._shards:
            is_shared = self._how or asked.rank or asked.count
            return "" if is_shared else READ_BY_ALL.format(ranks=self._unshared)
        if asked.count:
            self._refused = SHARED_TWICE.format(option=self._option, how="it asks for the number of ranks")
            self.check()
        return NAMED_ITS_RANK.format(option=self._option) if asked.rank else ""


def _told(dataset: Any) -> str:
    """How a dataset of ours, or of a known library, learnt its rank; empty if it did not."""
    ranks = ask(dataset, "ranks") if isinstance(dataset, IterableDataset) else None
    if isinstance(ranks, tuple) and ranks and isinstance(ranks[0], int) and ranks[0] > 1:
        return f"a {type(dataset).__name__} finds out its rank"
    if ask(dataset, "_distributed") is not None:
        return "split_dataset_by_node has given it its part"
    processes = ask(dataset, "num_processes")
    if isinstance(processes, int) and processes > 1 and isinstance(ask(dataset, "process_index"), int):
        return "Accelerate has given it its part"
    return ""
