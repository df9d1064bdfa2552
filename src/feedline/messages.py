"""What travels along the line: tasks out, outcomes back. Plain values, the same for every kind of worker.

Promises: a task says everything about a batch (who runs it changes nothing); an outcome says everything about how
it went. Not its job: how either is carried (workers), or what to do about a failure (loader, supervise).
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import gcd
from typing import Any, NamedTuple

from feedline import sent_by_value
from feedline.datasets import Array, Empty, IntArray
from feedline.errors import RemoteError, WorkerTraceback, add_note
from feedline.masking import masked
from feedline.observe.marks import Marks

__all__ = [
    "Array",
    "AsGiven",
    "BadSample",
    "Empty",
    "Failure",
    "IntArray",
    "Notice",
    "Outcome",
    "Tally",
    "Task",
]

LONGEST_ERROR = 1_000
LONGEST_TRACE = 10_000
"""Characters kept of a bad sample's message and traceback: thousands of them may be kept, and some quote the data."""


class AsGiven(list[Any]):
    """Indices as a list, and the very object that a batch sampler gave for them."""

    def __init__(self, given: Any, indices: Iterable[Any]) -> None:
        super().__init__(indices)
        self.given = given

    def __reduce__(self) -> tuple[Any, ...]:
        return AsGiven, (self.given, list(self))


class Task(NamedTuple):
    """One batch to make. `indices` is None for a stream, whose next elements are taken instead."""

    seq: int
    epoch: int
    seed: int
    indices: IntArray | Sequence[Any] | None
    first: int = -1
    """Place of the first index in the epoch, where an index may come twice; -1 where each comes once."""
    avoid: tuple[tuple[int, str], ...] = ()
    """Positions that are not to be read, and why: each killed or stalled a worker. One that is named twice did so
    again while it was replaced, and is left out. A stream's elements cannot be avoided."""
    alone: bool = False
    """Read the samples one by one even if the dataset can read many at once."""
    shards: int = 0
    """For a stream: in how many parts it is read; this batch is of part `seq` mod `shards`."""
    place: dict[str, Any] | None = None
    """For a part of a stream that is opened in its middle: where it stands, as `Outcome.stream` once said."""
    stride: int = 1
    """From one index's place in the epoch to the next one's: several ranks take turns. Of a stream, from one of this
    rank's batches to the next one."""
    rows: tuple[int, int, int, int] | None = None
    """Of a part of a batch: its first row and the one after its last, of how many, and how many the smallest part has
    (arena.joint.Rows). None for a whole batch."""

    @property
    def shard(self) -> int:
        """The part of the stream; for other data just the task's number."""
        return self.seq % self.shards if self.shards else self.seq

    @property
    def lane(self) -> int:
        """Decides which worker reads that part: of a stream's parts a rank has every Nth only."""
        return self.shard // gcd(self.stride, self.shards) if self.shards else self.seq

    @property
    def lanes(self) -> int:
        """How many of the stream's parts this rank reads."""
        return self.shards // gcd(self.stride, self.shards)


@dataclass(frozen=True)
class Failure:
    """An exception on its way to the consumer."""

    name: str
    message: str
    notes: tuple[str, ...]
    trace: str
    pickled: bytes | None
    original: BaseException | None = field(default=None, compare=False)

    @classmethod
    def of(cls, error: BaseException, same_process: bool) -> Failure:
        """Take down an exception; across processes as a pickle if it survives one, and always as text."""
        noted = getattr(error, "__notes__", ())
        notes = tuple(map(_text_of, noted)) if isinstance(noted, (list, tuple)) else ()
        name, message = type(error).__qualname__, _text_of(error)
        if same_process:
            return cls(name, message, notes, "", None, error)
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(name, message, notes, trace, _pickle_exception(error))

    def exception(self) -> BaseException:
        """The exception to raise at the consumer: the original's type where that can be rebuilt."""
        if self.original is not None:
            return self.original
        error = self._rebuilt()
        error.__cause__ = WorkerTraceback(self.trace)
        known = getattr(error, "__notes__", ())
        for note in self.notes:
            if note not in known:
                add_note(error, note)
        return error

    def _rebuilt(self) -> BaseException:
        error: object = None
        with contextlib.suppress(Exception):  # an exception class may do anything while it is rebuilt
            error = pickle.loads(self.pickled) if self.pickled is not None else None
        if isinstance(error, BaseException):
            return error
        stand_in: type[RemoteError] = type(
            self.name.rpartition(".")[2], (RemoteError,), {"__module__": "feedline.remote"}
        )
        return stand_in(self.message)


class BadSample(NamedTuple):
    """A sample that could not be read, where the loader was told to go on without it (`on_error`)."""

    index: Any
    """As the sampler gave it; None in a stream."""
    place: int
    """Its position in the batch; in a stream, the element's number."""
    what: str
    """What the dataset's `describe(index)` says, if it has one; of a stream, what it noted of the record: its key."""
    error: str
    """The exception's name and message, or what else befell it."""
    trace: str = ""
    replacement: Any = None
    """The index that was read instead, if any."""
    epoch: int = 0
    seq: int = 0
    """The number of its batch."""

    @classmethod
    def of(cls, error: Exception, task: Task, index: Any, place: int, what: str) -> BadSample:
        """Take down what reading it raised."""
        trace = masked("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        text = masked(error_line(error))[:LONGEST_ERROR]
        return cls(index, place, masked(what), text, trace[-LONGEST_TRACE:], None, task.epoch, task.seq)


@dataclass
class Tally:
    """What a batch was made of, counted by its collators while they make it."""

    places: int = 0
    """Elements of padded arrays…"""
    padding: int = 0
    """…and how many of them are padding."""
    room: int = 0
    """Places in packed rows…"""
    filled: int = 0
    """…and how many of them hold something."""
    cut: int = 0
    """Samples that were cut short."""
    dropped: int = 0
    """Samples that were left out as invalid."""
    emptied: int = 0
    """1 if none were left, so that there is no batch."""


class Apart(Enum):
    """Why a piece of a batch is none: the batch has to be made by one worker."""

    ONCE = 1
    """This one has: its samples differ, or cannot be collated."""
    ALWAYS = 2
    """All of them: what is in a sample depends on those before it (it draws from a global generator), or a batch is of
    a kind that is not put together again."""


class Drawing(NamedTuple):
    """A generator that the dataset holds, and that its samples draw from in a worker."""

    path: str
    began: bytes
    """A number for the state it had when the worker began."""


class Notice(NamedTuple):
    """What a worker has to say beside its batch: rare, so all of it shares one field of the outcome."""

    warning: str | None = None
    """Something the user should be warned of once."""
    tally: Tally | None = None
    marks: tuple[Marks, ...] = ()
    """When it (or each of its pieces) was made, while somebody records."""
    apart: Apart | None = None
    """Of a piece of a batch: that it is of no use."""
    took: float | None = None
    """Of a piece of a batch: the seconds for each of its samples."""
    drawing: tuple[Drawing, ...] = ()
    ranks: str = ""
    """What the user should be warned of once, about sharing a stream out over ranks."""
    ended_by: str = ""
    """Of a stream that every worker reads whole: the error after which it ended in this one."""
    elements: int = -1
    """Of such a stream at its end: how many elements it had here; -1 where that is not known."""


class Outcome(NamedTuple):
    """How a task went: a batch, a failure, or nothing because its stream had ended."""

    seq: int
    batch: Any = None
    size: int = 0
    """Samples in the batch; 0 without a failure means there is nothing to deliver."""
    failure: Failure | None = None
    ended: bool = False
    """The stream this task read from has no more elements."""
    notice: Notice | None = None
    bad: tuple[BadSample, ...] = ()
    """The samples that failed and were left out or replaced."""
    stream: tuple[int, Any] | None = None
    """A stream's part, by its number, and where it stands after this batch (see line.source)."""
    whole: bool | None = None
    """Of a stream just opened: is it read whole by this worker, and not a share of its own? Else None."""

    @property
    def dropped(self) -> int:
        """Samples that were read, and left out as invalid."""
        return 0 if self.notice is None or self.notice.tally is None else self.notice.tally.dropped


def with_marks(outcome: Outcome, marks: Marks) -> Outcome:
    """The same, and when it was made."""
    return outcome._replace(notice=(outcome.notice or Notice())._replace(marks=(marks,)))


def notice_of(warning: str | None, tally: Tally | None, ranks: str = "", ended_by: str = "") -> Notice | None:
    """None if there is nothing to say."""
    there_is = warning or tally or ranks or ended_by
    return Notice(warning, tally, ranks=ranks, ended_by=ended_by) if there_is else None


def error_line(error: BaseException) -> str:
    """An exception's name and message, as the last line of a traceback has them.

    >>> error_line(ValueError("truncated")), error_line(StopIteration())
    ('ValueError: truncated', 'StopIteration')
    """
    text = _text_of(error)
    return f"{type(error).__qualname__}: {text}" if text else type(error).__qualname__


def _text_of(thing: object) -> str:
    try:
        return str(thing)
    except Exception:  # a broken __str__ must not hide the error itself
        return f"<{type(thing).__qualname__} whose __str__ fails>"


def _pickle_exception(error: BaseException) -> bytes | None:
    for form in (error, _Anew(type(error), _text_of(error))):
        with contextlib.suppress(Exception):
            data = sent_by_value.dumps(form)
            # Many exceptions pickle but cannot be rebuilt: find out here, not at the consumer.
            if type(pickle.loads(data)) is type(error):
                return data
    return None


class _Anew(NamedTuple):
    """An exception to be made from its text, as torch does it: for one that holds a lock, say."""

    kind: type[BaseException]
    message: str

    def __reduce__(self) -> tuple[Any, ...]:
        return self.kind, (self.message,)
