"""The result of a task: a batch, a failure, or nothing; and what else a worker reports. Plain values.

Promises: an outcome says everything about the result of a task, the same for every kind of worker.
Not its job: how it is sent (workers), what to do about a failure (engine).
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
"""How many characters of a bad sample's message and traceback are kept: there may be thousands, and some quote data."""


@dataclass(frozen=True)
class Failure:
    """An exception that is sent to the consumer."""

    name: str
    message: str
    notes: tuple[str, ...]
    trace: str
    pickled: bytes | None
    original: BaseException | None = field(default=None, compare=False)

    @classmethod
    def of(cls, error: BaseException, same_process: bool) -> Failure:
        """Store an exception; for another process as text, and also as a pickle if that works."""
        noted = getattr(error, "__notes__", ())
        notes = tuple(map(_text_of, noted)) if isinstance(noted, (list, tuple)) else ()
        name, message = type(error).__qualname__, _text_of(error)
        if same_process:
            return cls(name, message, notes, "", None, error)
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        return cls(name, message, notes, trace, _pickle_exception(error))

    def exception(self) -> BaseException:
        """The exception to raise at the consumer, of the original type if that can be rebuilt."""
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
    """A sample that could not be read, in a loader that was told to go on without it (`on_error`)."""

    index: Any
    """As the sampler gave it; None in a stream."""
    place: int
    """Its position in the batch; in a stream, the element's number."""
    what: str
    """What the dataset's `describe(index)` says, if it has that method; in a stream, the record's key if known."""
    error: str
    """The exception's name and message, or another reason."""
    trace: str = ""
    replacement: Any = None
    """The index that was read instead, if any."""
    epoch: int = 0
    seq: int = 0
    """The number of its batch."""

    @classmethod
    def of(cls, error: Exception, task: Task, index: Any, place: int, what: str) -> BadSample:
        """Store the exception that reading it raised."""
        trace = masked("".join(traceback.format_exception(type(error), error, error.__traceback__)))
        text = masked(error_line(error))[:LONGEST_ERROR]
        return cls(index, place, masked(what), text, trace[-LONGEST_TRACE:], None, task.epoch, task.seq)


@dataclass
class Tally:
    """Counts that collators make while they make a batch."""

    places: int = 0
    """Elements of padded arrays."""
    padding: int = 0
    """How many of these are padding."""
    room: int = 0
    """Places in packed rows."""
    filled: int = 0
    """How many of these are filled."""
    cut: int = 0
    """Samples that were cut short."""
    dropped: int = 0
    """Samples that were left out as invalid."""
    emptied: int = 0
    """1 if no sample was left, so that there is no batch."""


class Apart(Enum):
    """Why a piece of a batch cannot be used: one worker has to make the whole batch."""

    ONCE = 1
    """Only this batch: its samples differ, or cannot be collated."""
    ALWAYS = 2
    """All batches: a sample depends on those before it (it draws from a global generator), or batches of this kind
    cannot be joined."""


class Drawing(NamedTuple):
    """A generator that the dataset holds and that samples draw from in a worker."""

    path: str
    began: bytes
    """A digest of its state when the worker began."""


SourceCounts = tuple[tuple[str, int, int], ...]
"""Of some sources of a mixture: the name, samples, and how often it came to its end."""


def since(
    before: dict[str, tuple[int, int]], after: dict[str, tuple[int, int]], is_first: bool = False
) -> SourceCounts:
    """What has been added to the counts; when it is asked for first, also of those to which nothing was.

    >>> since({"a": (1, 0), "b": (1, 0)}, {"a": (5, 1), "b": (1, 0)})
    (('a', 4, 1),)
    >>> since({"a": (0, 0), "b": (0, 0)}, {"a": (5, 1), "b": (0, 0)}, is_first=True)
    (('a', 5, 1), ('b', 0, 0))
    """
    return tuple(
        (name, samples - before[name][0], passes - before[name][1])
        for name, (samples, passes) in after.items()
        if is_first or (samples, passes) != before[name]
    )


class Notice(NamedTuple):
    """What a worker reports apart from its batch. It is rare, so all of it shares one field of the outcome."""

    warning: str | None = None
    """A warning for the user, to be given once."""
    tally: Tally | None = None
    marks: tuple[Marks, ...] = ()
    """When the batch (or each of its pieces) was made, for a recording."""
    apart: Apart | None = None
    """For a piece of a batch: why it cannot be used."""
    took: float | None = None
    """For a piece of a batch: seconds per sample."""
    drawing: tuple[Drawing, ...] = ()
    ranks: str = ""
    """A warning for the user, to be given once, about dividing a stream among ranks."""
    ended_by: str = ""
    """For a stream that every worker reads whole: the error after which it ended in this worker."""
    sources: SourceCounts = ()
    """For a mixture of streams: what this batch has of each source."""
    elements: int = -1
    """For such a stream at its end: how many elements this worker found; -1 if that is not known."""


class Outcome(NamedTuple):
    """The result of a task: a batch, a failure, or nothing because its stream has ended."""

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
    """The number of a stream's part, and where it is after this batch (see reading.stream_source)."""
    whole: bool | None = None
    """For a stream that was just opened: does this worker read all of it, not only a share? Otherwise None."""

    share: tuple[int, int, int] | None = None
    """For a stream of which each rank keeps its rows: as in `Task.share`, which a stream's tasks do not have because
    nobody knows before how many elements there will be."""

    @property
    def dropped(self) -> int:
        """Samples that were read and then left out as invalid."""
        return 0 if self.notice is None or self.notice.tally is None else self.notice.tally.dropped


def made(seq: int, batch: Any, size: int) -> Outcome:
    """The same as `Outcome(seq, batch, size)`, in half the time: one is made for each batch.

    >>> made(3, "a batch", 1) == Outcome(3, "a batch", 1)
    True
    """
    return _new(Outcome, (seq, batch, size) + _NOTHING_ELSE)  # noqa: RUF005  # * takes three times as long


_new, _NOTHING_ELSE = tuple.__new__, tuple(Outcome(0))[3:]


def with_marks(outcome: Outcome, marks: Marks) -> Outcome:
    """The outcome, with the marks of when it was made."""
    return outcome._replace(notice=(outcome.notice or Notice())._replace(marks=(marks,)))


def notice_of(
    warning: str | None, tally: Tally | None, ranks: str = "", ended_by: str = "", sources: SourceCounts = ()
) -> Notice | None:
    """A notice; None if there is nothing to report."""
    there_is = warning or tally or ranks or ended_by or sources
    return Notice(warning, tally, ranks=ranks, ended_by=ended_by, sources=sources) if there_is else None


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
    for form in (error, _ByTypeAndText(type(error), _text_of(error))):
        with contextlib.suppress(Exception):
            data = sent_by_value.dumps(form)
            # Many exceptions can be pickled but not rebuilt: check that here, not at the consumer.
            if type(pickle.loads(data)) is type(error):
                return data
    return None


class _ByTypeAndText(NamedTuple):
    """An exception rebuilt from its text, as torch does, for example if the original holds a lock."""

    kind: type[BaseException]
    message: str

    def __reduce__(self) -> tuple[Any, ...]:
        return self.kind, (self.message,)
