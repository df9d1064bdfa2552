"""What a stream can show besides plain text: colours, bold, a line that replaces itself.

Takes: a stream. Gives: whether it accepts escape codes; and `show_line`, which shows progress on stderr.
Promises: no escape codes are sent if the stream is no terminal, if the terminal is dumb, or if the user has set
NO_COLOR (https://no-color.org). Not its job: the text.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO


def takes_escapes(stream: TextIO | None) -> bool:
    """Is it a terminal that understands escape codes, and does the user want them?

    >>> import io
    >>> takes_escapes(io.StringIO()), takes_escapes(None)
    (False, False)
    """
    return stream is not None and stream.isatty() and not refused()


def refused() -> bool:
    """Has the user, or the terminal, said that escape codes are not wanted anywhere?"""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def show_line(text: str) -> None:
    """Show progress: a line that replaces the previous one ("" at the end), on a terminal only."""
    if takes_escapes(sys.stderr):
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
