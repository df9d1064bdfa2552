"""What the demo prints while it runs.

Takes: lines that stay, each with the call that does what it says, and the current status. Gives: lines on standard
output; on a terminal also a last line that is rewritten. Promises: silent without a stream (--json); never wider than
the terminal; a reader that goes away changes nothing; Ctrl-C leaves the cursor on a line of its own.
Not its job: what is said (run, training).
"""

from __future__ import annotations

import logging
import shutil
from typing import TextIO

from feedline.diagnose.rendering import PageLine, painted, write
from feedline.observe.terminal import takes_escapes

_AGAIN = "\r\x1b[K"  # go to the beginning of the line, and clear it
_CALLS = 46  # the column where calls begin


class Screen:
    """Standard output, or nothing."""

    def __init__(self, stream: TextIO | None) -> None:
        self.live = takes_escapes(stream)  # is the status line shown?
        self._stream, self._unfinished = stream, False
        self._no_log = logging.NullHandler()

    def say(self, text: str, call: str = "") -> None:
        """Print a line, and the feedline call that does it."""
        self._write(PageLine(call, "cyan", f"  {text}".ljust(_CALLS) + "  " if call else f"  {text}"))

    def heading(self, text: str, style: str = "bold") -> None:
        """Print a line that stands out."""
        self._write(PageLine(text, style))

    def now(self, text: str) -> None:
        """Show the current status, until the next output."""
        if self._stream is not None and self.live:
            self._unfinished = True  # set first: Ctrl-C may come as soon as the line is shown
            write(_AGAIN + f"  {text}"[: shutil.get_terminal_size().columns - 1], self._stream)

    def _write(self, line: PageLine) -> None:
        if self._stream is not None:
            write((_AGAIN if self._unfinished else "") + painted([line], self._stream), self._stream)
            self._unfinished = False

    def __enter__(self) -> Screen:
        # Each bad sample is logged when it is found, which nobody could read between live lines; the end lists them.
        logging.getLogger("feedline").addHandler(self._no_log)
        return self

    def __exit__(self, *raised: object) -> None:
        logging.getLogger("feedline").removeHandler(self._no_log)
        if self._unfinished and self._stream is not None:
            write("\n", self._stream)
