"""A foreign sampler, asked again: what is past is taken once more and thrown away, and seen to be the same.

Takes: the sampler's iterator, how many items are past, and the `Tail` of a saved place. Gives: the items after those.
Promises: no data is read; an order that has changed since is a StateError and not a run that repeats some samples and
misses others.
Not its job: samplers that can say where they stand (plan.Kept), or whose order is a function of the seed (plan).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from feedline.errors import StateError
from feedline.state import Place, Tail


class Replayed(Iterator[Any]):
    """The items from a place on. With `batches` each item is a batch of indices.

    >>> first = Replayed(iter(range(10)), Place(samples=4, sampler=Tail.of([2, 3])), batches=False)
    >>> next(first)
    4
    """

    def __init__(self, source: Iterator[Any], place: Place, batches: bool) -> None:
        self._source = source
        self._past = place.batches if batches else place.samples
        self._batches = batches
        self._tail = place.sampler if isinstance(place.sampler, Tail) else None

    def __next__(self) -> Any:
        if self._past:
            past, self._past = self._past, 0
            self._compare(deque(islice(self._source, past), maxlen=Tail.LONGEST), past)
        return next(self._source)

    def _compare(self, last: deque[Any], past: int) -> None:
        if self._tail is None:
            return
        indices = list(last[-1]) if self._batches and last else list(last)
        if Tail.of(indices[-self._tail.count :]) != self._tail:
            raise StateError(
                f"the state cannot be continued: asked again, the sampler does not give the {past} "
                f"{'batches' if self._batches else 'indices'} before the saved place as it did then. Its order must be "
                "the same for the same epoch (seed its generator, or define set_epoch), or give it state_dict() and "
                "load_state_dict(state)"
            )
