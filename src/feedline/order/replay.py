"""An order that is read again: checks that its past part is the same as before.

Takes: a place, and an order or a foreign sampler. Gives: the items after the place.
Promises: no data is read. If the order has changed since then (another seed, other weights, a sampler that redraws),
there is a StateError, and not a run that repeats some samples and misses others.
Not its job: orders that can be read from any place on (plan).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from feedline.errors import StateError
from feedline.resume.state import End, NoState, Place, Tail
from feedline.resume.stateful import is_stateful, load, saved


def compare(place: Place, before: Callable[[], Any]) -> None:
    """Are these indices, the last before the place, the same as when the place was saved?

    >>> compare(Place(samples=2, sampler=Tail.of([7, 8])), lambda: [7, 8])
    """
    tail = place.sampler
    if not isinstance(tail, Tail):
        return
    found = before()
    if Tail.of(found[len(found) - tail.count :]) == tail:
        return
    raise StateError(
        f"the state cannot be continued: before batch {place.batches} the sampler now gives other indices than when "
        "the state was saved. Its settings and data must be the same, and it must give the same order for the same "
        "epoch: seed its generator, define set_epoch, or give it state_dict() and load_state_dict(state)"
    )


def end_of(sampler: Any) -> End | NoState | None:
    """A sampler's own state between two epochs, or at the end of one; None if it has none."""
    if not is_stateful(sampler):
        return None
    state = saved(sampler)
    return state if isinstance(state, NoState) else End(state)


class Again(Iterator[Any]):
    """A foreign sampler's items from a place on. A sampler that can restore its place continues there; any other is
    read from the beginning, and the past items are thrown away. With `batches` each item is a batch.

    >>> next(Again(range(10), Place(samples=4, sampler=Tail.of([2, 3])), batches=False))
    4
    """

    def __init__(self, sampler: Any, place: Place, batches: bool) -> None:
        self._sampler = sampler
        self._place = place
        self._past = place.batches if batches else place.samples
        self._batches = batches
        self._keeper: Any = None
        self._source: Iterator[Any] | None = None
        # The sampler is as the epoch before left it.
        self._begins_epoch = isinstance(place.sampler, End) and not place.batches
        self._ended = isinstance(place.sampler, End) and not self._begins_epoch

    def open(self) -> None:
        """Ask for the sampler's iterator now; otherwise it is asked for with the first item."""
        if self._source is not None or self._ended:
            return
        if is_stateful(self._sampler):
            self._go_on(self._sampler)
        source = iter(self._sampler)
        if self._keeper is None and is_stateful(source):  # torchdata's samplers may keep their place in the iterator
            self._go_on(source)
        self._source = source

    def _go_on(self, keeper: Any) -> None:
        self._keeper, state = keeper, self._place.sampler
        if isinstance(state, bytes):
            load(keeper, state)
            self._past = 0
        elif self._begins_epoch and state.state is not None and keeper is self._sampler:
            load(keeper, state.state)

    def __next__(self) -> Any:
        if self._source is None:
            self.open()
        if self._ended or self._source is None:
            raise StopIteration
        if self._past:
            past, self._past = self._past, 0
            last = deque(islice(self._source, past), maxlen=Tail.LONGEST)
            compare(self._place, lambda: list(last[-1]) if self._batches and last else list(last))
        try:
            item = next(self._source)
        except StopIteration:
            if self._begins_epoch:  # the restored state was that of its end; this epoch begins now
                self._begins_epoch, self._source = False, iter(self._sampler)
                return next(self)
            self._ended = True
            raise
        self._begins_epoch = False
        return item

    def state(self) -> Any:
        """The sampler's own state; None if it has none, and the reason if it has one that cannot be saved."""
        if self._keeper is None or isinstance(self._keeper, NoState):
            return self._keeper
        if self._ended:  # it may have begun again: its own state would then repeat the epoch
            return end_of(self._keeper)
        state = saved(self._keeper)
        if isinstance(state, NoState):  # it is asked once, and not for every batch
            self._keeper = state
        return state
