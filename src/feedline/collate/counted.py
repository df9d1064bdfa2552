"""What a loader's collators have counted, and a hint if there is one to give.

Takes: the tally of each batch as it is delivered. Gives: `CollateStats`, and a hint, once, if much is padding.
Not its job: counting within a batch (collate).
"""

from __future__ import annotations

import threading
from collections import deque

from feedline.errors.counting import counted
from feedline.messages.outcome import Tally
from feedline.observe.stats import CollateStats

KEPT = 1_000
HINT_ABOVE = 0.4
HINT_BATCHES = 20
"""Padded batches before the share is judged. With 8 of the log-normal lengths of benchmarks/collation.py in a batch,
the share of one batch has a standard deviation of 0.11, that of 20 batches 0.03; larger batches differ less."""


class Collated:
    """The counts over all batches of a loader."""

    def __init__(self) -> None:
        self._places = self._padding = self._room = self._filled = self._cut = self._dropped = self._emptied = 0
        self._batches = 0
        self._shares: deque[float] = deque(maxlen=KEPT)
        self._hinted = False
        # Reentrant: the garbage collector may write a dropped loop's recording in a thread that holds the lock.
        self._lock = threading.RLock()

    def take(self, tally: Tally) -> str | None:
        """Count a batch; returns a hint, if it is time for one."""
        with self._lock:
            return self._take(tally)

    def _take(self, tally: Tally) -> str | None:
        self._room += tally.room
        self._filled += tally.filled
        self._cut += tally.cut
        self._dropped += tally.dropped
        self._emptied += tally.emptied
        if not tally.places:
            return None
        self._batches += 1
        self._places += tally.places
        self._padding += tally.padding
        self._shares.append(tally.padding / tally.places)
        if self._hinted or self._batches < HINT_BATCHES or self._padding <= HINT_ABOVE * self._places:
            return None
        self._hinted = True
        return _hint(self._padding / self._places, self._batches)

    def stats(self) -> CollateStats:
        """The counts so far."""
        with self._lock:
            return CollateStats(
                padding=self._padding / self._places if self._places else None,
                padding_of_batches=tuple(self._shares),
                fill=self._filled / self._room if self._room else None,
                cut=self._cut,
                dropped=self._dropped,
                emptied=self._emptied,
            )


def nothing_valid(dropped: int) -> str:
    """The message for an epoch in which every sample was left out."""
    return (
        f"the epoch has ended without a single batch: drop_invalid left out all {counted(dropped, 'sample')}. "
        "Does the dataset return None for every index, or does valid= return False for every sample?"
    )


def _hint(share: float, batches: int) -> str:
    return (
        f"{share:.0%} of the values in the first {batches} padded batches are padding, which costs a model as much "
        "time as data. Put samples of similar lengths into a batch (batch_sampler=BucketBatchSampler(…)), put several "
        "sequences into one row (pack), or, if pad has a fixed length=, leave that out. (This warning comes once.)"
    )
