"""Samples made into what the user gets, in a worker: collated in the way the job says, or converted one by one.

Takes: samples, and `empty`, which gives memory. Gives: a batch, how many samples are in it, what was counted meanwhile.
Promises: straight into that memory where the way to collate allows it; nothing shares memory with the dataset; an error
says for which indices.
Not its job: reading samples (line.fetch), default collation and the collators themselves (line).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from feedline.errors import add_note
from feedline.line.collators import Collator, Making, NothingLeft
from feedline.line.fetch import brief
from feedline.messages import Empty, Tally
from feedline.progress import COLLATING, PLACE, SINCE, Row, clock
from feedline.workers.job import Job

Made = tuple[Any, int, Tally | None]
"""A batch, how many samples are in it, and what its collator has counted."""


class Maker:
    """One worker's."""

    def __init__(self, job: Job, own_process: bool, row: Row) -> None:
        self._job = job
        self._own_process = own_process
        self._row = row
        self._collator = job.collate_fn if isinstance(job.collate_fn, Collator) else None

    def made(self, samples: list[Any], empty: Empty, names: Any) -> Made:
        """Of these samples, or of the only one there is."""
        return self.batch(samples, empty, names) if self._job.batched else (self.single(samples[0], empty), 1, None)

    def batch(self, samples: list[Any], empty: Empty, names: Any) -> Made:
        """Of these samples."""
        if self._collator is not None:
            return self._make_by(self._collator, samples, empty, names)
        size = len(samples if names is None else names)  # what __getitems__ returned may be any iterable
        return self._collated(samples, empty, names), max(1, size), None  # collate_fn may make one of nothing

    def _make_by(self, collator: Collator, samples: list[Any], empty: Empty, names: Any) -> Made:
        """Straight into the slot."""
        self._row[PLACE], self._row[SINCE] = COLLATING, clock()
        own = partial(self._owned, empty=empty)
        making = Making(collator.arrays or self._job.dialect.arrays, empty, names, own)
        try:
            batch = collator.make(samples, making)
        except NothingLeft:
            return None, 0, making.tally
        except Exception as error:
            _note_indices(error, names)
            raise
        counted = making.tally if any(vars(making.tally).values()) else None
        return batch, len(samples) - making.tally.dropped, counted

    def _collated(self, samples: list[Any], empty: Empty, names: Any) -> Any:
        self._row[PLACE], self._row[SINCE] = COLLATING, clock()
        collate_fn = self._job.collate_fn
        if collate_fn is None:
            return self._job.dialect.collate(samples, empty, names)
        try:
            return self._owned(collate_fn(samples), empty)
        except Exception as error:
            _note_indices(error, names)
            raise

    def single(self, sample: Any, empty: Empty) -> Any:
        """One sample that is not batched (`batch_size=None`)."""
        self._row[PLACE], self._row[SINCE] = COLLATING, clock()
        if self._collator is not None:  # the sample is a batch of samples by itself
            try:
                return self._make_by(self._collator, sample, empty, None)[0]
            except Exception as error:
                add_note(
                    error,
                    "feedline: with batch_size=None what the dataset gives is collated as it is, as a whole batch of "
                    "samples; set batch_size to have batches made of it",
                )
                raise
        convert = self._job.collate_fn or self._job.dialect.convert
        return self._owned(convert(sample), empty)

    def _owned(self, tree: Any, empty: Empty) -> Any:
        # Another process's batch is pickled, which copies it anyway, and straight into the slot.
        return tree if self._own_process else self._job.dialect.own(tree, empty, self._job.dataset)


def _note_indices(error: Exception, names: Any) -> None:
    where = "" if names is None else f" for dataset indices {brief(names)}"
    add_note(error, f"feedline: raised by collate_fn{where}")
