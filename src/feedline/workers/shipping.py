"""Sends the job to worker processes that do not share the parent's memory.

Takes: a `Job`. Gives: a `Parcel`, which each worker opens. Large arrays exist once, in shared memory that all workers
map; a worker that writes to them changes only its own copy.
Promises: if pickle fails, cloudpickle is tried (lambdas, notebook classes); an object that neither can send is named by
its attribute path before any worker is started. Classes sent by value are recognised when objects of them come back
(sent_by_value). Locks, queues and similar objects are passed when the process is started (inherited).
Not its job: starting the workers (processes). Under fork nothing is shipped.
"""

from __future__ import annotations

import contextlib
import copyreg
import io
import os
import pickle
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial, partialmethod
from typing import Any, NamedTuple

import numpy as np

from feedline.arena.segment import JOB_SLOT, Segment, to_page
from feedline.datasets import Empty
from feedline.errors import ShippingError
from feedline.messages.sent_by_value import SentByValue
from feedline.workers.inherited import Inherited, kinds, unpacking_with
from feedline.workers.job import Job

LARGE = 1 << 12  # a buffer smaller than a page stays inside the pickle
_DEEPEST = 12


class Parcel(NamedTuple):
    """Where the pickle and its buffers are in the segment's cargo slot."""

    head: tuple[int, int]
    buffers: list[tuple[int, int]]
    size: int
    inherited: list[Any]
    """Locks and similar objects, which Python can pass to a process only while starting it."""
    sent: SentByValue
    """The classes and functions in it that cannot be imported by name."""

    def open(self, segment: Segment) -> Job:
        """Rebuild the job, in a worker."""
        mapping = segment.map(JOB_SLOT, self.size, private=True)
        buffers = [mapping.view(start, size) for start, size in self.buffers]
        with unpacking_with(self.inherited):
            reader = pickle.Unpickler(io.BytesIO(mapping.view(*self.head)), buffers=buffers)
            job = reader.load()
            self.sent.arrive(*reader.load())
        assert isinstance(job, Job)
        return job


def ship(job: Job, segment: Segment, by_value: bool = False) -> Parcel:
    """Write the job into the segment, or raise ShippingError. The main script's classes go by value if `by_value`, or
    if workers cannot import it."""
    head, buffers, inherited, sent = _packed(job, by_value or _interactive())
    if job.dialect.hides_main and b"__main__" in head:
        head, buffers, inherited, sent = _packed(job, by_value=True)
    pieces = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    places, end = [], 0
    for piece in pieces:
        places.append((end, piece.nbytes))
        end = to_page(end + piece.nbytes)
    segment.allocate(JOB_SLOT, 0, end)
    mapping = segment.map(JOB_SLOT, end)
    for piece, (start, size) in zip(pieces, places, strict=True):
        np.frombuffer(mapping.view(start, size), np.uint8)[:] = np.frombuffer(piece, np.uint8)
    return Parcel(places[0], places[1:], end, inherited, sent)


def _packed(job: Job, by_value: bool) -> tuple[bytes, list[pickle.PickleBuffer], list[Any], SentByValue]:
    """The pickle, its large buffers, what is passed when a process starts, and what goes by value."""
    buffers: list[pickle.PickleBuffer] = []

    def out_of_band(buffer: pickle.PickleBuffer) -> bool:
        if buffer.raw().nbytes < LARGE:
            return True
        buffers.append(buffer)
        return False

    sent = SentByValue()
    head, inherited = _dump(job, out_of_band, buffers, by_value, sent)
    return head, buffers, inherited, sent


def _dump(
    job: Job, out_of_band: Any, buffers: list[pickle.PickleBuffer], by_value: bool, sent: SentByValue
) -> tuple[bytes, list[Any]]:
    if not by_value:  # the main script's classes by name: workers can import it
        try:
            return _pickled(job, pickle.Pickler, out_of_band, sent)
        except Exception:  # cloudpickle may succeed, and otherwise has a better message
            buffers.clear()
    import cloudpickle  # slow to import, and most datasets do not need it

    try:
        return _pickled(job, cloudpickle.Pickler, out_of_band, sent)
    except Exception as error:
        raise _explain(job, error) from error


def weigh(job: Job, most: int) -> int:
    """How many bytes of pickle would be sent, at most `most`. Large buffers do not count, because they are shared.

    Raises ShippingError if the job cannot be sent.
    """
    import cloudpickle

    def large(buffer: pickle.PickleBuffer) -> bool:
        return buffer.raw().nbytes < LARGE

    refused: Exception = Exception()
    for make in (pickle.Pickler, cloudpickle.Pickler):
        scale = _Scale(most)
        try:
            _write(job, make, large, scale)
            return scale.weight
        except _Enough:
            return most
        except Exception as error:
            refused = error
    raise _explain(job, refused) from refused


class _Enough(Exception):
    """Ends the pickling: the limit of bytes to count is reached."""


class _Scale(io.RawIOBase):
    """A file that keeps only its size."""

    def __init__(self, most: int) -> None:
        self.weight, self._most = 0, most

    def write(self, data: Any) -> int:
        self.weight += len(data)
        if self.weight > self._most:
            raise _Enough
        return len(data)


def _pickled(job: Job, make: type[Any], out_of_band: Any, sent: SentByValue) -> tuple[bytes, list[Any]]:
    stream = io.BytesIO()
    inherited = _write(job, make, out_of_band, stream, sent)
    return stream.getvalue(), inherited


def _write(job: Job, make: type[Any], out_of_band: Any, stream: Any, sent: SentByValue | None = None) -> list[Any]:
    inherited = Inherited()
    reducers = {kind: partial(_reduced, reducer) for kind, reducer in job.dialect.reducers.items()}
    kind = _pickler(make, {**reducers, **inherited.reducers()}, sent)
    pickler = kind(stream, protocol=5, buffer_callback=out_of_band)
    pickler.dump(job)
    if sent is not None:
        sent.in_use, sent.went = make is not pickle.Pickler, len(sent.things)
        pickler.dump((sent.things, sent.in_use))  # by the same pickler, so that these are the job's objects, not copies
    inherited.check_pickling()
    return inherited.things


def _pickler(make: type[Any], reducers: dict[type, Any], sent: SentByValue | None = None) -> Any:
    # cloudpickle's is a mapping; pickle's, a descriptor of its instances, which then use copyreg's.
    known = copyreg.dispatch_table if make is pickle.Pickler else make.dispatch_table
    table = {**known, **reducers}
    # As a class attribute: cloudpickle's class has its own table there, and ignores one set on an instance.
    own: dict[str, Any] = {"dispatch_table": table}
    if sent is not None and make is not pickle.Pickler:
        own["reducer_override"] = partialmethod(_noting, make, sent)
    return type("Pickler", (make,), own)


def _noting(pickler: Any, make: type[Any], sent: SentByValue, thing: Any) -> Any:
    """Reduce as cloudpickle does, and note the classes and functions that it sends by value."""
    reduced = make.reducer_override(pickler, thing)
    if reduced is not NotImplemented:
        sent.add(thing)
    return reduced


def _reduced(reducer: Callable[[Any, Empty], Any], value: Any) -> Any:
    return reducer(value, np.empty)


def _interactive() -> bool:
    # Classes defined at a prompt are in a module that no worker can import, so they must be sent by value.
    main = sys.modules["__main__"]
    return getattr(main, "__spec__", None) is None and not os.path.exists(getattr(main, "__file__", None) or "")


def without_unimportable_main() -> contextlib.AbstractContextManager[None]:
    """Used while workers are started: else Python would make them import a script read from standard input."""
    return without_main() if _interactive() else contextlib.nullcontext()


@contextlib.contextmanager
def without_main() -> Iterator[None]:
    """Hides the main script while a worker is started, so that the worker does not import (and run) it."""
    main: Any = sys.modules["__main__"]
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    if file is not None:
        del main.__file__
    main.__spec__ = None
    try:
        yield
    finally:
        main.__spec__ = spec
        if file is not None:
            main.__file__ = file


def _explain(job: Job, error: Exception) -> ShippingError:
    for name in ("dataset", "collate_fn", "worker_init_fn", "registrations"):
        found = _culprit(getattr(job, name), name, _DEEPEST, set())
        if found is not None:
            path, value, why = found
            kind = f"{type(value).__module__}.{type(value).__qualname__}"
            return ShippingError(
                f"{path}: {kind} cannot be sent to a worker process ({why}). Create it inside the worker, on first "
                "use or in worker_init_fn, and leave it out in __getstate__; or use workers='thread', or "
                "multiprocessing_context='fork' if it may be shared."
            )
    return ShippingError(f"the dataset cannot be sent to a worker process: {error}")


def _culprit(value: Any, path: str, depth: int, seen: set[int]) -> tuple[str, Any, str] | None:
    """The innermost part of a value that cannot be pickled, with its path."""
    why = _refusal(value)
    if why is None or id(value) in seen:
        return None
    seen.add(id(value))
    if depth and type(value) not in kinds():
        for step, part in _parts(value):
            found = _culprit(part, path + step, depth - 1, seen)
            if found is not None:
                return found
    return path, value, why


def _refusal(value: Any) -> str | None:
    import cloudpickle

    class Nowhere(io.RawIOBase):
        def write(self, data: Any) -> int:
            return len(data)

    inherited = Inherited()
    pickler = _pickler(cloudpickle.Pickler, inherited.reducers())
    try:
        pickler(Nowhere(), protocol=5, buffer_callback=lambda buffer: None).dump(value)
        inherited.check_pickling()
    except Exception as error:
        return str(error)
    return None


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple, set)):
        yield from ((f"[{i}]", part) for i, part in enumerate(value))
    elif isinstance(value, types.MethodType):
        yield ".__self__", value.__self__
    elif isinstance(value, partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
    elif isinstance(value, types.FunctionType):
        names = value.__code__.co_freevars
        for name, cell in zip(names, value.__closure__ or (), strict=True):
            yield f"'s variable {name}", cell.cell_contents
        for name in value.__code__.co_names:
            if name in value.__globals__:
                yield f"'s global {name}", value.__globals__[name]
    else:
        for name, part in getattr(value, "__dict__", {}).items():
            yield f".{name}", part
        for kind in type(value).__mro__:
            for name in getattr(kind, "__slots__", ()):
                if hasattr(value, name):
                    yield f".{name}", getattr(value, name)
