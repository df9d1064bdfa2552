"""Where the demo speaks while it runs.

Takes: lines, and what is true just now. Gives: lines on standard output; on a terminal also a last line that is
rewritten as things change. Promises: never wider than the terminal; silent if it shall be; a reader that goes away
changes nothing; the cursor is left on a line of its own, also by Ctrl-C.
Not its job: the words (wording), what the command answers in the end (cli).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from types import TracebackType
from typing import TextIO

from feedline.diagnose.rendering import Line, painted, write
from feedline.observe.terminal import takes_escapes

_AGAIN = "\r\x1b[K"  # to the line's beginning, and nothing on it


class Screen:
    """Standard output, or none."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self.live = takes_escapes(stream)
        """Whether anybody sees what is true just now."""
        self._unfinished = False

    def say(self, lines: Iterable[Line]) -> None:
        """Lines that stay."""
        if self._stream is not None:
            write((_AGAIN if self._unfinished else "") + painted(lines, self._stream), self._stream)
            self._unfinished = False

    def now(self, text: str) -> None:
        """What is true until the next word."""
        if self._stream is not None and self.live:
            width = shutil.get_terminal_size().columns - 1
            self._unfinished = True  # first: Ctrl-C may come as soon as it is seen
            write(_AGAIN + text[:width], self._stream)

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._unfinished and self._stream is not None:
            write("\n", self._stream)
