"""Any generator as a stream that neither reads ahead without limit nor hangs forever.

Takes: a function that makes an iterable. Gives: `GeneratorStream`.
Promises: the iterable runs in a thread of its own, at most `buffer` elements ahead; `idle` seconds without an element
end the stream; an error of the iterable is raised at the place of its element.
Not its job: sharing it out: without a `shard` method each worker reads the whole stream and keeps its part
(reading/stream_reader).
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from feedline.datasets import IterableDataset
from feedline.errors import OptionTypeError
from feedline.errors.checks import check_function, check_whole
from feedline.sources.live import Live, check_idle


class GeneratorStream(IterableDataset[Any]):
    """The elements of the iterable that `make()` returns, read in a thread, at most `buffer` ahead.

    For generators that wait for something: a sensor, a queue, a subprocess. If no element comes for `idle` seconds, the
    epoch ends. `decode` is called for each element; one that fails is named by its number and handled by `on_error`.

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
            raise OptionTypeError(f"make must be a function that returns a new iterable for each epoch; got {make!r}")
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
        # Not one queue.Queue with a limit: the garbage collector may close this object in a thread that holds the lock.
        self._filled: queue.SimpleQueue[_Got] = queue.SimpleQueue()
        self._room: queue.SimpleQueue[bool] = queue.SimpleQueue()
        for _ in range(buffer):
            self._room.put(True)
        self._name = getattr(make, "__qualname__", type(make).__name__)
        self._number = -1
        # The thread must not keep the feed alive: the feed's end is what stops the thread.
        arguments = (make, self._filled, self._room)
        self._thread = threading.Thread(target=_run, args=arguments, name="feedline-generator", daemon=True)
        self._thread.start()

    def next(self, wait: float | None) -> tuple[Any, str] | None:
        """The next element."""
        try:
            got = self._filled.get(timeout=wait)
        except queue.Empty:
            return None
        self._room.put(True)
        if got.over:
            raise StopIteration
        self._number += 1
        if got.error is not None:
            raise got.error
        return got.element, f"element {self._number} of {self._name}"

    def close(self) -> None:
        """Tell the thread to end; it ends after its current element."""
        _empty(self._room)
        self._room.put(False)
        _empty(self._filled)

    def __str__(self) -> str:
        return self._name


def _empty(waiting: queue.SimpleQueue[Any]) -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            waiting.get_nowait()


def _run(make: Callable[[], Iterable[Any]], filled: queue.SimpleQueue[_Got], room: queue.SimpleQueue[bool]) -> None:
    try:
        for element in make():
            if not room.get():  # the feed is closed
                return
            filled.put(_Got(element))
    except BaseException as error:  # raised where its element is waited for
        filled.put(_Got(error=error))
    filled.put(_Got(over=True))
