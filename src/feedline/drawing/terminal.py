"""May a stream be sent escape codes: colours, bold, a line that replaces itself?

Takes: a stream. Gives: yes or no. Promises: no where nobody watches, where the terminal says it is dumb, and where the
user has set NO_COLOR (https://no-color.org). Not its job: what is written.
"""

from __future__ import annotations

import os
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
