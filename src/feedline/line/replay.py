"""An order that is had again: what is past is seen to be the same as it was then.

Takes: a place, and the sampler's order or iterator. Gives: the items after those that are past.
Promises: no data is read; an order that has changed since (another seed, other weights, a sampler that draws anew) is a
StateError, and not a run that repeats some samples and misses others.
Not its job: samplers that can say where they stand (plan.Kept).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from feedline.errors import StateError
from feedline.state import Place, Tail


def compare(place: Place, before: Callable[[], Any]) -> None:
    """Are these indices, the last before the place, those that were there when it was saved?

    >>> compare(Place(samples=2, sampler=Tail.of([7, 8])), lambda: [7, 8])
    """
    tail = place.sampler
    if not isinstance(tail, Tail):
        return
    found = before()
    if Tail.of(found[len(found) - tail.count :]) == tail:
        return
    raise StateError(
        f"the state cannot be continued: the sampler does not give the indices before batch {place.batches} as it did "
        "when the state was saved. Its settings and data must be the same, and its order the same for the same epoch: "
        "seed its generator, define set_epoch, or give it state_dict() and load_state_dict(state)"
    )


class Replayed(Iterator[Any]):
    """A foreign sampler, asked again: what is past is taken and thrown away. With `batches` each item is a batch.

    >>> next(Replayed(iter(range(10)), Place(samples=4, sampler=Tail.of([2, 3])), batches=False))
    4
    """

    def __init__(self, source: Iterator[Any], place: Place, batches: bool) -> None:
        self._source = source
        self._place = place
        self._past = place.batches if batches else place.samples
        self._batches = batches

    def __next__(self) -> Any:
        if self._past:
            past, self._past = self._past, 0
            last = deque(islice(self._source, past), maxlen=Tail.LONGEST)
            compare(self._place, lambda: list(last[-1]) if self._batches and last else list(last))
        return next(self._source)
