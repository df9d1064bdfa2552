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
    """Every error that feedline itself raises. Its text never has a password or key from an address.

    **Do:** catch it where any of them should be handled alike. Each is also a builtin exception (`ValueError`, …).

    >>> from feedline import DataLoader, FeedlineError
    >>> try:
    ...     DataLoader([1, 2], batch_size=0)
    ... except FeedlineError as error:
    ...     isinstance(error, ValueError)
    True
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*(masked(each) if isinstance(each, str) else each for each in args), **more)


class OptionError(FeedlineError, ValueError):
    """An option has a value that cannot be used.

    **Do:** what the message says; it names the option, and what would be right.

    >>> from feedline import DataLoader
    >>> DataLoader([1, 2], batch_size=2, on_error="ignore")
    Traceback (most recent call last):
    feedline.errors.OptionError: on_error must be one of 'raise', 'skip', 'replace'; got 'ignore'
    """


class OptionTypeError(OptionError, TypeError):
    """An option has a type that cannot be used.

    **Do:** give the type that the message names.

    >>> from feedline import DataLoader
    >>> DataLoader([1, 2], batch_size="2")
    Traceback (most recent call last):
    feedline.errors.OptionTypeError: batch_size must be a whole number of at least 1, or None for no batching; got '2'
    """


class CollateError(FeedlineError, RuntimeError):
    """The samples of a batch do not fit together.

    **Do:** give them one shape in `__getitem__`, or pad them: `collate=pad(0)` (docs/collation.md).

    >>> import numpy as np
    >>> from feedline import DataLoader
    >>> next(iter(DataLoader([np.zeros(2), np.zeros(3)], batch_size=2)))
    Traceback (most recent call last):
    feedline.errors.CollateError: samples of one batch differ in shape: the value of dataset index 1 (sample 1 of ...
    """


class CollateTypeError(CollateError, TypeError):
    """A sample holds a value that cannot be in a batch.

    **Do:** return arrays, numbers and texts, use `collate={"field": keep}`, or `register_collate` for a type of yours.

    >>> from feedline import DataLoader
    >>> next(iter(DataLoader([{1, 2}, {3}], batch_size=2)))
    Traceback (most recent call last):
    feedline.errors.CollateTypeError: the value of dataset index 0 (sample 0 of the batch) is a builtins.set and ...
    """


class StateError(FeedlineError, ValueError):
    """A saved state does not fit this loader.

    **Do:** make the loader as it was when the state was saved. What may differ is in docs/resuming.md.

    >>> from feedline import DataLoader
    >>> DataLoader(range(20)).load_state_dict(DataLoader(range(10)).state_dict())
    Traceback (most recent call last):
    feedline.errors.StateError: the state cannot be continued here, because the data had another length when it was ...
    """


class ShippingError(FeedlineError, TypeError):
    """The dataset, or something sent with it, cannot be sent to a worker process.

    **Do:** make what the message names inside the worker, on first use (docs/cannot-pickle.md).

    >>> import threading
    >>> from feedline import DataLoader
    >>> locks = [threading.Lock()]
    >>> next(iter(DataLoader(locks, num_workers=1, multiprocessing_context="spawn")))
    Traceback (most recent call last):
    feedline.errors.ShippingError: dataset[0]: _thread.lock cannot be sent to a worker process ...
    """


class MemoryShortage(FeedlineError, MemoryError):
    """The system refused memory for a batch.

    **Do:** lower `batch_size`, `prefetch_factor` or `num_workers`, keep fewer batches, or give the container more
    memory.

    >>> issubclass(MemoryShortage, MemoryError)
    True
    """


class MissingPackage(FeedlineError, ImportError):
    """A feature needs a package that is not installed.

    **Do:** run the `pip install` that the message has.

    >>> issubclass(MissingPackage, ImportError)
    True
    """


class SourceError(FeedlineError, RuntimeError):
    """A source of data (a table, a file, a host, an object) cannot be opened or read.

    **Do:** look at what the message names: the table, file, host or key. Passwords in it are `***`.

    >>> from feedline.sources import FolderDataset
    >>> FolderDataset("/no/such/folder")
    Traceback (most recent call last):
    feedline.errors.SourceError: /no/such/folder: cannot be read as a folder of classes: No such file or directory
    """


class TooManyErrors(FeedlineError, RuntimeError):
    """More samples failed than `max_errors` allows.

    **Do:** look at `loader.errors()`: repair the samples, leave them out, or raise `max_errors`.

    >>> import logging
    >>> from feedline import DataLoader
    >>> logging.getLogger("feedline").disabled = True
    >>> class Broken(list):
    ...     def __getitem__(self, index): raise OSError("the disk has gone")
    >>> next(iter(DataLoader(Broken([1, 2, 3]), on_error="skip", max_errors=1)))
    Traceback (most recent call last):
    feedline.errors.TooManyErrors: 2 of the 2 samples that this loader has read failed, which is more than ...
    >>> logging.getLogger("feedline").disabled = False
    """


class WorkerError(FeedlineError, RuntimeError):
    """Something happened to a worker.

    **Do:** see the classes derived from it.

    >>> issubclass(WorkerDied, WorkerError) and issubclass(WorkerTimeout, WorkerError)
    True
    """


class WorkerDied(WorkerError):
    """A worker process ended without being told to.

    **Do:** repair or leave out the sample that the message names, or set `on_error="skip"`. If the worker was killed by
    SIGKILL, the machine or container most likely ran out of memory (docs/when-things-go-wrong.md).

    >>> import os, warnings
    >>> from feedline import DataLoader
    >>> class Deadly(list):
    ...     def __getitem__(self, index): os._exit(3)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # of the first death
    ...     next(iter(DataLoader(Deadly([1]), num_workers=1, multiprocessing_context="fork")))
    Traceback (most recent call last):
    feedline.errors.WorkerDied: dataset[0] has killed 2 workers. The last: worker ...
    """


class WorkerTimeout(WorkerError, TimeoutError):
    """No batch came within the loader's `timeout`.

    **Do:** read the stacks in the message; raise `timeout`, or set `on_stall="restart"` (docs/when-things-go-wrong.md).

    >>> import time
    >>> from feedline import DataLoader
    >>> class Slow(list):
    ...     def __getitem__(self, index): time.sleep(600)
    >>> next(iter(DataLoader(Slow([1]), num_workers=1, timeout=0.1, multiprocessing_context="fork")))
    Traceback (most recent call last):
    feedline.errors.WorkerTimeout: no batch came within timeout=0.1 s: the loop has been waiting for a batch ...
    """


class StalledSample(WorkerTimeout):
    """A sample was stuck, was tried again in another worker, and was stuck there too.

    **Do:** repair or leave out the sample that the message names, or set `on_error="skip"`.

    >>> issubclass(StalledSample, WorkerTimeout)
    True
    """


class RemoteError(WorkerError):
    """Replaces a worker's exception that could not be sent; subclasses have the original's name.

    **Do:** as with the original exception, whose traceback in the worker is the cause of this one.

    >>> issubclass(RemoteError, WorkerError)
    True
    """


class WorkerTraceback(Exception):
    """The cause of a re-raised exception: the traceback in the worker.

    >>> from feedline import DataLoader
    >>> class Broken(list):
    ...     def __getitem__(self, index): raise ValueError("truncated file")
    >>> try:
    ...     next(iter(DataLoader(Broken([1]), num_workers=1, multiprocessing_context="fork")))
    ... except ValueError as error:
    ...     type(error.__cause__).__name__, "in __getitem__" in str(error.__cause__)
    ('WorkerTraceback', True)
    """

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
