"""What a stream may be sent beside plain text: colours, bold, a line that replaces itself.

Takes: a stream. Gives: whether it takes escape codes; and `show_line`, which says on stderr how far something is.
Promises: none are sent where nobody watches, where the terminal says it is dumb, and where the user has set NO_COLOR
(https://no-color.org). Not its job: the words.
"""

from __future__ import annotations

import os
import sys
from typing import TextIO


def takes_escapes(stream: TextIO | None) -> bool:
    """Is it a terminal that does what escape codes say, and does the user want that?

    >>> import io
    >>> takes_escapes(io.StringIO()), takes_escapes(None)
    (False, False)
    """
    return stream is not None and stream.isatty() and not refused()


def refused() -> bool:
    """Has the user, or the terminal, said that escape codes are not wanted anywhere?"""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def show_line(text: str) -> None:
    """Say how far something is: a line that replaces the last one ("" in the end), on a terminal only."""
    if takes_escapes(sys.stderr):
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
