"""Every error that feedline itself raises, in one tree.

    FeedlineError
    ├── OptionError (ValueError)            an option is wrong; the message names it and what would be right
    │   └── OptionTypeError (TypeError)     …it has the wrong type
    ├── CollateError (RuntimeError)         samples do not fit into one batch; names field, sample and shapes
    │   └── CollateTypeError (TypeError)    …because of a value that cannot be in a batch
    ├── StateError (ValueError)             a saved state cannot be continued here; names the difference
    ├── ShippingError (TypeError)           something cannot travel to a worker; named by attribute path
    ├── MemoryShortage (MemoryError)        the system refused memory for a batch
    ├── MissingPackage (ImportError)        a package is needed and not installed; names it and how to install it
    ├── SourceError (RuntimeError)          data cannot be read from its source; names the table, file, host or key
    ├── TooManyErrors (RuntimeError)        more samples failed than `max_errors` allows
    └── WorkerError (RuntimeError)          what happened to a worker
        ├── WorkerDied                      it was killed, or ended by itself
        ├── WorkerTimeout (TimeoutError)    nothing came within `timeout` seconds
        │   └── StalledSample               a sample that was stuck in one worker after another
        └── RemoteError                     an exception of user code that cannot be rebuilt here; a class is
                                            made for it, with the original's name

An exception raised by user code (dataset, collate_fn, sampler, worker_init_fn) keeps its type. It gets a note that says
where it happened and, if that was another process, that process's traceback as its cause.
Not its job: deciding what happens after an error (supervise).
"""

from __future__ import annotations

from typing import Any

from feedline.errors.masking import masked


class FeedlineError(Exception):
    """Every error that feedline itself raises. Its text never has a password or key from an address."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*(masked(each) if isinstance(each, str) else each for each in args), **more)


class OptionError(FeedlineError, ValueError):
    """An option has a value that cannot be used."""


class OptionTypeError(OptionError, TypeError):
    """An option has a type that cannot be used."""


class CollateError(FeedlineError, RuntimeError):
    """The samples of a batch do not fit together."""


class CollateTypeError(CollateError, TypeError):
    """A sample holds a value that cannot be in a batch."""


class StateError(FeedlineError, ValueError):
    """A saved state does not fit this loader."""


class ShippingError(FeedlineError, TypeError):
    """The dataset, or something sent with it, cannot be sent to a worker process."""


class MemoryShortage(FeedlineError, MemoryError):
    """The system refused memory for a batch."""


class MissingPackage(FeedlineError, ImportError):
    """A feature needs a package that is not installed."""


class SourceError(FeedlineError, RuntimeError):
    """A source of data (a table, a file, a host, an object) cannot be opened or read."""


class TooManyErrors(FeedlineError, RuntimeError):
    """More samples failed than `max_errors` allows."""


class WorkerError(FeedlineError, RuntimeError):
    """Something happened to a worker."""


class WorkerDied(WorkerError):
    """A worker process ended without being told to."""


class WorkerTimeout(WorkerError, TimeoutError):
    """No batch came within the loader's `timeout`."""


class StalledSample(WorkerTimeout):
    """A sample was stuck, was tried again in another worker, and was stuck there too."""


class RemoteError(WorkerError):
    """Replaces a worker's exception that could not be sent; subclasses have the original's name."""


class WorkerTraceback(Exception):
    """The cause of a re-raised exception: the traceback in the worker."""

    def __init__(self, text: str) -> None:
        self.text = masked(text)
        super().__init__(self.text)

    def __str__(self) -> str:
        return "\n\n" + self.text


def noted(error: BaseException) -> str:
    """What one of our sources noted about the record at which the error was raised: its key, its offset; "" if nothing.

    >>> error = ValueError()
    >>> add_note(error, "feedline: at the row with id = 7")
    >>> noted(error)
    'at the row with id = 7'
    """
    notes = getattr(error, "__notes__", None)
    ours = [str(note) for note in notes if str(note).startswith("feedline: ")] if isinstance(notes, list) else []
    return ours[0].removeprefix("feedline: ")[:300] if ours else ""


def add_note(error: BaseException, note: str) -> None:
    """Attach a line to an exception (PEP 678; Python 3.10 has no `add_note` but the attribute works the same)."""
    notes = getattr(error, "__notes__", None)
    if not isinstance(notes, list):
        notes = []
        try:
            error.__notes__ = notes  # type: ignore[attr-defined, unused-ignore]
        except Exception:  # no attribute can be set on some exceptions, such as frozen dataclasses: they get no note
            return
    note = masked(note)  # it may hold an address, a description, a row
    if note not in notes:  # one object may be raised several times
        notes.append(note)
