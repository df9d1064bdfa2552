"""A bar that shows how far tuning is, where somebody watches.

Takes: moments. Gives: one line on a terminal that replaces itself. Promises: nothing is written anywhere else, and the
line is gone afterwards. Not its job: what is done meanwhile (tuner).
"""

from __future__ import annotations

from types import TracebackType
from typing import TextIO

from feedline.drawing.terminal import takes_escapes

WIDE = 24


class Bar:
    """A line on a terminal, from 0 to `seconds`."""

    def __init__(self, seconds: float, stream: TextIO) -> None:
        self._seconds = seconds
        self._stream = stream
        self._shown = takes_escapes(stream)

    def show(self, passed: float, words: str) -> None:
        """So many seconds have passed, and this is done now."""
        if self._shown:
            self._write(bar(passed / self._seconds, f"{passed:.0f} of {self._seconds:.0f} s  {words}"))

    def __enter__(self) -> Bar:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._shown:
            self._write("")

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[K{text}")
        self._stream.flush()


def bar(share: float, words: str) -> str:
    """As text.

    >>> bar(0.25, "a quarter")
    '[######..................] a quarter'
    """
    done = round(WIDE * min(1.0, max(0.0, share)))
    return f"[{'#' * done}{'.' * (WIDE - done)}] {words}"
