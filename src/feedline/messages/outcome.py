"""How a task went: a batch, a failure, or nothing; and what a worker has to say beside it. Plain values.

Promises: an outcome says everything about how a task went, the same for every kind of worker.
Not its job: how it is carried (workers), what to do about a failure (engine).
"""

from __future__ import annotations

import contextlib
import pickle
import traceback
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from feedline.errors import RemoteError, WorkerTraceback, add_note
from feedline.errors.masking import masked
from feedline.messages import sent_by_value
from feedline.messages.marks import Marks
from feedline.messages.task import Task

LONGEST_ERROR = 1_000
LONGEST_TRACE = 10_000
"""Characters kept of a bad sample's message and traceback: thousands of them may be kept, and some quote the data."""


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
    """The exception's name and message, or what else happened to it."""
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
    """A stream's part, by its number, and where it stands after this batch (see reading.stream_source)."""
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
