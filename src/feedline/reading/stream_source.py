"""The elements of a stream as its dataset gives them, one after the other, and where the dataset stands.

Takes: an iterable, and perhaps a record of where it stood. Gives: numbered elements; a record of where it stands now.
Promises: each element is read with its own number announced. One that keeps its own place by torchdata's convention
(`state_dict` and `load_state_dict` on what `iter()` gives, else on the iterable itself) goes on there, and nothing is
read again. A dataset with a state beside that of its iterator has its own back before it is opened. A record is plain
data and does not change afterwards; who cannot say where it stands is not asked again, and the record says why.
After a death only a state that is complete is gone on from: that of another's dataset may lack something (Hugging
Face's lacks its shuffle buffer), so its part is read again from where the epoch began, and compared.
Not its job: sharing and batches (stream), the shuffle buffer (shuffled).

What a record holds: `read`, the elements read so far; `own`, whether this part was a share of the dataset's own (with
several parts); `next`, the number of the batch that comes next; `of`, whose state it is ("iterator" or "dataset");
`state`, that state, pickled; `complete`, whether a dataset's is all there is to know; `dataset`, that of the dataset as
a whole, if it is another; `shuffle`, what shuffled says of its buffer; `failures`, how many of the last elements
failed; `unread`, the state of the dataset before anything was read of it; `seen`, the batch that comes next and a
number for what was read before it, if there is one; or `problem`, why
there is no state. `ended`: there is no more, and these were the states at the end, if the dataset has one, and the
`count` of elements; `total`, of those of all parts, if their number has changed since. `anew`: they are those of the
end of the epoch before, and the part is at the beginning of the next; `there`: the dataset that is to be read is so
already.
Where a part is opened once more: `until`, what was `seen` last; `instead`, a record to go on from if other elements
come; `again`: the dataset has got back the state that it had before one was loaded; `say`: what to warn of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import GeneratorType
from typing import Any

from feedline.datasets import IterableDataset
from feedline.errors import StateError
from feedline.resume.state import Unsaid
from feedline.resume.stateful import is_stateful, load, saved

Record = dict[str, Any]


class StreamSource:
    """Elements, each read with its own number announced: `rng()` belongs to the element, not to its place in a batch.

    No generator: an iterator may raise for one element and go on with the next.

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
        self._dataset = dataset if is_stateful(dataset) else None
        self._problem: Record = {}
        self.tell_first: Callable[[bytes | Unsaid], None] | None = None
        """Who is told, once, what the dataset says of its place after its first element."""
        self.number = -1
        """Of the element read last."""
        self.died = False
        """Has it raised, and is one of those that cannot go on after an error?"""

    @classmethod
    def opened(
        cls, iterable: Any, announce: Callable[[int], None], record: Record | None = None, dataset: Any = None
    ) -> StreamSource:
        """From its beginning, or from where a record says it stood."""
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
        """Is it one of those that cannot go on after an error?"""
        return isinstance(self._elements, GeneratorType)

    @property
    def of(self) -> str:
        """Who can say where it stands; empty if nobody can."""
        if self._keeper is None:
            return ""
        return "iterator" if self._keeper is self._elements else "dataset"

    def record(self) -> Record:
        """Where it stands."""
        found: Record = {"read": self.number + 1}
        if self._keeper is None:
            return found | self._problem
        state = saved(self._keeper)
        if isinstance(state, Unsaid):
            self._keeper, self._problem = None, {"problem": str(state)}
            return found | self._problem
        found |= {"of": self.of, "state": state}
        if isinstance(self._keeper, IterableDataset):
            found["complete"] = True  # by its contract
        return found if self._dataset is self._keeper else found | state_of(self._dataset)

    def ended(self, whole: bool) -> Record:
        """What is left of it at its end: what the dataset, if it lives on, begins the next epoch with."""
        record = self.record() if self._dataset is not None else {}
        ended = {"ended": True} | {name: record[name] for name in (*STATES, "problem") if name in record}
        return ended | {"count": self.number} if "state" in ended and not whole else ended


class Loaded:
    """What is to be known, in later epochs, of a dataset that a state was loaded into."""

    before: bytes | Unsaid | None = None
    """What it said of itself before that; None if no state was loaded."""
    unread: bytes | Unsaid | None = None
    """What it said of itself before anything was read of it, if it was opened here then: with that an epoch is whole,
    while a dataset that has been read may say that it stands in the middle, or at the end."""
    mark: bytes | Unsaid | None = None
    """What it said one element after a state of the middle of an epoch: who says so again has begun there again."""


STATES = ("of", "state", "complete", "dataset", "count", "total")


def anew(ended: Record) -> Record:
    """How a part that has ended begins the next epoch; empty if its dataset says nothing of itself."""
    return {"anew": True} | {name: ended[name] for name in STATES if name in ended} if "state" in ended else {}


def again(begun: Record | None, latest: Record | None) -> Record | None:
    """Where a part is opened whose worker has died: as the epoch began with it, or where its iterator says it stood."""
    if latest is None or goes_on(latest):
        return latest or begun
    place = {**(begun or {}), "until": latest.get("seen")}
    return place | {"instead": latest} if latest.get("of") == "dataset" else place


def goes_on(record: Record) -> bool:
    """Is its state complete: an iterator's by torchdata's contract, an `IterableDataset`'s by ours?"""
    is_complete = record.get("of") == "iterator" or "complete" in record
    return is_complete and "state" in record and "anew" not in record  # else a shuffle buffer has just begun


def state_of(dataset: Any) -> Record:
    """What a dataset as a whole says of itself; empty if it says nothing."""
    state = saved(dataset) if is_stateful(dataset) else None
    return {"dataset": state} if isinstance(state, bytes) else {}


def load_dataset(dataset: Any, record: Record) -> None:
    """Have a dataset be as it said, before it is opened."""
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
