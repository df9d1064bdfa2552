"""Any generator as a stream that neither runs ahead without bound nor hangs for ever.

Takes: a function that makes an iterable. Gives: `GeneratorStream`.
Promises: the iterable runs in a thread of its own, `buffer` elements ahead at most; nothing for `idle` seconds ends the
stream; an error it raises comes where its element would have.
Not its job: sharing it out: without a `shard` of its own each worker reads all of it and keeps its part (line/stream).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from feedline.checks import check_function, check_whole
from feedline.datasets import IterableDataset
from feedline.errors import OptionTypeError
from feedline.sources.live import Live, check_idle


class GeneratorStream(IterableDataset[Any]):
    """The elements of what `make()` gives, read in a thread, `buffer` ahead at most.

    For generators that wait for something: a sensor, a queue, a subprocess. When nothing has come for `idle` seconds,
    the epoch ends. `decode` is called for each element; one that fails is named by its number and left to `on_error`.

    >>> from feedline import DataLoader
    >>> stream = GeneratorStream(lambda: iter(range(5)), idle=60)
    >>> [batch.tolist() for batch in DataLoader(stream, batch_size=2)]
    [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        make: Callable[[], Iterable[Any]],
        *,
        decode: Callable[[Any], Any] | None = None,
        idle: float | None = None,
        buffer: int = 64,
    ) -> None:
        if not callable(make):
            raise OptionTypeError(
                f"make must be a function that gives something to iterate over, anew for each epoch; got {make!r}"
            )
        self.make = make
        self.decode = check_function("decode", decode)
        self.idle = check_idle(idle)
        self.buffer = check_whole("buffer", buffer, least=1)

    def __iter__(self) -> Live:
        return Live(_Ahead(self.make, self.buffer), self.decode, self.idle)


class _Got(NamedTuple):
    element: Any = None
    error: BaseException | None = None
    over: bool = False


class _Ahead:
    """The thread and its queue."""

    def __init__(self, make: Callable[[], Iterable[Any]], buffer: int) -> None:
        self._queue: queue.Queue[_Got] = queue.Queue(buffer)
        self._stopped = threading.Event()
        self._name = getattr(make, "__qualname__", type(make).__name__)
        self._number = -1
        # It must not keep the feed alive, whose end is what stops it.
        arguments = (make, self._queue, self._stopped)
        self._thread = threading.Thread(target=_run, args=arguments, name="feedline-generator", daemon=True)
        self._thread.start()

    def next(self, wait: float | None) -> tuple[Any, str] | None:
        """The next element."""
        try:
            got = self._queue.get(timeout=wait)
        except queue.Empty:
            return None
        if got.over:
            raise StopIteration
        self._number += 1
        if got.error is not None:
            raise got.error
        return got.element, f"element {self._number} of {self._name}"

    def close(self) -> None:
        """Tell the thread; it ends with the element it is at."""
        self._stopped.set()
        while True:  # make room, in case it waits for some
            try:
                self._queue.get_nowait()
            except queue.Empty:
                return

    def __str__(self) -> str:
        return self._name


def _run(make: Callable[[], Iterable[Any]], filled: queue.Queue[_Got], stopped: threading.Event) -> None:
    try:
        for element in make():
            filled.put(_Got(element))
            if stopped.is_set():
                return
    except BaseException as error:  # told where its element is waited for
        filled.put(_Got(error=error))
    finally:
        if not stopped.is_set():
            filled.put(_Got(over=True))
