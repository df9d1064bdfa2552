"""Turns recording on and off, and writes its file.

Takes: a loader's recording, its stats and the file's format. Gives: `Recorder`, which `loader.trace` and
`loader.report` return.
Promises: after each epoch and after `stop` the file exists and is complete; a file that cannot be written is a warning
during training and an error when the user stops.
Not its job: what is recorded (observe.recording), the file's format (observe.trace, observe.report).
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from feedline.messages.outcome import BadSample
from feedline.observe.recording import Recording
from feedline.observe.stats import Stats


class Known(NamedTuple):
    """What a loader knows besides the recording."""

    stats: Stats = Stats()
    errors: Sequence[BadSample] = ()


Render = Callable[[Recording, Known], str]


class Recorder:
    """Records all following epochs, until `stop` or the end of a `with` block.

    >>> import json, tempfile
    >>> from feedline import DataLoader
    >>> path = os.path.join(tempfile.mkdtemp(), "run.json")
    >>> loader = DataLoader(range(10), batch_size=4)
    >>> with loader.trace(path):
    ...     for batch in loader:
    ...         pass
    >>> names = {event["name"] for event in json.loads(Path(path).read_text())["traceEvents"]}
    >>> {"fetch", "collate", "wait", "compute"} <= names
    True
    """

    def __init__(
        self, path: str | os.PathLike[str], recording: Recording, render: Render, ask: Callable[[], Known]
    ) -> None:
        """`ask` is a method of the loader's session, held weakly: a recorder keeps no workers alive."""
        self.path = Path(path)
        self.recording = recording
        self.on = True
        self._render = render
        self._ask = weakref.WeakMethod(ask)
        self._known = Known()
        self._owner = os.getpid()
        self.write()  # a path that cannot be written is noticed now, and not after an epoch

    def write(self) -> None:
        """Write what there is so far; a reader never sees an incomplete file."""
        if self._owner != os.getpid():  # a forked child that ends: the file belongs to its parent
            return
        ask = self._ask()
        if ask is not None:
            self._known = ask()
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}.part")
        try:
            beside.write_text(self._render(self.recording, self._known), encoding="utf-8")
            beside.replace(self.path)
        except BaseException as error:
            with contextlib.suppress(OSError):
                beside.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno is not None:  # the user knows only this one file
                raise type(error)(error.errno, error.strerror, str(self.path)) from error
            raise

    def stop(self) -> None:
        """Stop recording, and write the file."""
        if self.on:
            self.on = False
            self.write()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
