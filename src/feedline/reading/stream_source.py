"""The elements of a stream as its dataset gives them, one after the other, and the dataset's position.

Takes: an iterable, and perhaps a record of its position. Gives: numbered elements; a record of the current position.
Promises: each element is read after its number was announced. An iterable that keeps its own place by torchdata's
convention (`state_dict` and `load_state_dict` on what `iter()` gives, else on the iterable itself) continues there, and
nothing is read again. A dataset with a state besides that of its iterator gets it back before it is opened. A record is
plain data and does not change afterwards; a dataset that fails to give its state is not asked again, and the record
says why. After a worker's death only a complete state is used: that of a foreign dataset may lack something (Hugging
Face's lacks its shuffle buffer), so its part is read again from where the epoch began, and compared.
Not its job: sharing and batches (stream_reader), the shuffle buffer (shuffle_buffer).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from feedline.datasets import IterableDataset, MixtureReading
from feedline.errors import StateError
from feedline.messages.outcome import SourceCounts, since
from feedline.resume.state import NoState
from feedline.resume.stateful import is_stateful, load, saved

Record = dict[str, Any]
"""Where a part of a stream is. Most keys are stored in a loader's state, so no key may change its name or meaning.

    read      how many elements have been read
    own       of a stream in several parts: is this part a share that the dataset made itself?
    next      the number of the next batch
    of        whose state `state` is: "iterator" or "dataset"
    state     that state, pickled
    complete  True: the dataset's state has everything that its order depends on
    dataset   the state of the whole dataset, pickled, if it is not the same as `state`
    shuffle   the record of the shuffle buffer
    failures  how many of the last elements failed
    unread    the state of the dataset before anything was read from it
    seen      the number of the next batch, and a checksum of what was read before it
    problem   why there is no state

At the end of an epoch:
    ended     True: there are no more elements. The states are those at the end, if the dataset has any
    count     the number of elements
    total     the number of elements in all parts, if the number of parts has changed since
    anew      True: the states are those of the end of the last epoch, and the part is at the beginning of the next
    there     True: the dataset that will be read is already in this state

If a part is opened once more:
    until     what was `seen` last
    instead   the record to continue from if the elements differ
    again     True: the dataset got back the state that it had before a state was loaded
    say       a warning to give
"""


class StreamSource:
    """Elements, each read after its number was announced: `rng()` belongs to the element, not to its place in a batch.

    This is no generator: an iterator may raise for one element and continue with the next.

    >>> source = StreamSource(iter("abc"), print)
    >>> next(source), next(source), source.number
    0
    1
    ('a', 'b', 1)
    """

    def __init__(
        self, elements: Iterator[Any], announce: Callable[[int], None], keeper: Any = None, dataset: Any = None
    ) -> None:
        self._elements = elements
        self._announce = announce
        self._keeper = keeper
        self._counted = elements.counts() if isinstance(elements, MixtureReading) else {}
        self._has_counted = False
        self._dataset = dataset if is_stateful(dataset) else None
        self._problem: Record = {}
        self.tell_first: Callable[[bytes | NoState], None] | None = None
        """Called once with the dataset's state after its first element."""
        self._is_over = False
        self.number = -1
        """The number of the element read last."""
        self.died = False
        """Has it raised, and is it a generator, which cannot continue after an error?"""

    @classmethod
    def opened(
        cls, iterable: Any, announce: Callable[[int], None], record: Record | None = None, dataset: Any = None
    ) -> StreamSource:
        """A source at the beginning of the iterable, or at the position in a record."""
        of = record["of"] if record is not None else None
        if of == "dataset":
            _load(iterable, iterable, record)
        elements = iter(iterable)
        if of == "iterator":
            _load(elements, iterable, record)
        keeper = elements if is_stateful(elements) else iterable if is_stateful(iterable) else None
        source = cls(elements, announce, keeper, dataset)
        if record is not None:
            source.number = record.get("read", 0) - 1
        return source

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.number += 1
        self._announce(self.number)
        try:
            element = next(self._elements)
        except StopIteration:
            self.number -= self._is_over  # asked again after its end, it has not given one more
            self._is_over = True
            raise
        except Exception:
            self.died = self.is_generator
            raise
        if self.tell_first is not None:
            tell, self.tell_first = self.tell_first, None
            tell(saved(self._keeper))
        return element

    @property
    def is_generator(self) -> bool:
        """Is it a generator, which cannot continue after an error?"""
        return isinstance(self._elements, GeneratorType)

    def new_counts(self) -> SourceCounts:
        """Of a mixture of streams: what it has read from each since this was last called."""
        if not isinstance(self._elements, MixtureReading):
            return ()
        before, self._counted = self._counted, self._elements.counts()
        first, self._has_counted = not self._has_counted, True
        return since(before, self._counted, first)

    @property
    def of(self) -> str:
        """Which object keeps the state: "iterator", "dataset", or empty if there is none."""
        if self._keeper is None:
            return ""
        return "iterator" if self._keeper is self._elements else "dataset"

    def record(self) -> Record:
        """A record of the current position."""
        found: Record = {"read": self.number + 1}
        if self._keeper is None:
            return found | self._problem
        state = saved(self._keeper)
        if isinstance(state, NoState):
            self._keeper, self._problem = None, {"problem": str(state)}
            return found | self._problem
        found |= {"of": self.of, "state": state}
        if isinstance(self._keeper, IterableDataset):
            found["complete"] = True  # by its contract
        return found if self._dataset is self._keeper else found | state_of(self._dataset)

    def ended(self, whole: bool) -> Record:
        """The record at the end: the state with which the dataset, if it is kept, begins the next epoch."""
        record = self.record() if self._dataset is not None else {}
        ended = {"ended": True} | {name: record[name] for name in (*STATES, "problem") if name in record}
        return ended | {"count": self.number} if "state" in ended and not whole else ended


class Loaded:
    """What later epochs must know about a dataset that a state was loaded into."""

    before: bytes | NoState | None = None
    """The dataset's state before the load; None if no state was loaded."""
    unread: bytes | NoState | None = None
    """The dataset's state before anything was read from it, if it was opened here then: an epoch that begins with it is
    whole, while a dataset that has been read may be in the middle, or at the end."""
    mark: bytes | NoState | None = None
    """The dataset's state one element after a load within an epoch; an epoch that begins with it began there again."""


STATES = ("of", "state", "complete", "dataset", "count", "total")


def next_epoch_record(ended: Record) -> Record:
    """How a part that has ended begins the next epoch; empty if its dataset has no state."""
    return {"anew": True} | {name: ended[name] for name in STATES if name in ended} if "state" in ended else {}


def again(begun: Record | None, latest: Record | None) -> Record | None:
    """Where a part is opened whose worker has died: as it began the epoch, or at its iterator's latest state."""
    if latest is None or goes_on(latest):
        return latest or begun
    place = {**(begun or {}), "until": latest.get("seen")}
    return place | {"instead": latest} if latest.get("of") == "dataset" else place


def goes_on(record: Record) -> bool:
    """Is the state complete? An iterator's is by torchdata's contract, an `IterableDataset`'s by ours."""
    is_complete = record.get("of") == "iterator" or "complete" in record
    return is_complete and "state" in record and "anew" not in record  # else a shuffle buffer has just begun


def state_of(dataset: Any) -> Record:
    """The state of a dataset as a whole; empty if it has none."""
    state = saved(dataset) if is_stateful(dataset) else None
    return {"dataset": state} if isinstance(state, bytes) else {}


def load_dataset(dataset: Any, record: Record) -> None:
    """Load the state of the whole dataset, before it is opened."""
    if "dataset" in record:
        _check(dataset, dataset)
        load(dataset, record["dataset"])


def _load(keeper: Any, iterable: Any, record: Any) -> None:
    _check(keeper, iterable)
    load(keeper, record["state"])


def _check(keeper: Any, iterable: Any) -> None:
    if not is_stateful(keeper):
        raise StateError(
            f"the state was saved by the state_dict() of {type(iterable).__name__} or its iterator, which cannot load "
            "it now: continue with the code that saved it"
        )
