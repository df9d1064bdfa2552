"""Asks a dataset what it says of a sample, and does not wait for an answer that does not come.

Takes: a way to ask and an index, in the main process while it reports a stall or a death. Gives: words, or none.
Promises: back within a moment, whatever the dataset does (the disk that holds up a worker may well hold up `describe`
too). A thread that has answered is gone; one that is stuck is left behind, and until it is back nobody asks again.
Not its job: the notes on exceptions, where the worker that has just read the sample asks plainly (datasets.described).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

MOMENT = 0.5
"""Seconds."""

_stuck: tuple[tuple[Callable[[Any], str], threading.Thread], ...] = ()
"""Replaced whole. Of two loops that do so at once one may win: then a dataset that is stuck is asked once more."""


def asked(describe: Callable[[Any], str], index: Any) -> str:
    """What it says, if it says so within a moment.

    >>> asked(lambda index: f"photos/{index}.jpg", 17)
    'photos/17.jpg'
    """
    global _stuck
    stuck = _stuck = tuple((each, thread) for each, thread in _stuck if thread.is_alive())
    if any(each is describe for each, _ in stuck):  # or a report on many workers would take a moment for each
        return ""
    said: list[str] = []

    def ask() -> None:
        with contextlib.suppress(BaseException):  # a thread's last words would be printed, and are of no use
            said.append(describe(index))

    thread = threading.Thread(target=ask, name="feedline-describe", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads to be had
        return ""
    thread.join(MOMENT)
    if thread.is_alive():
        _stuck = (*_stuck, (describe, thread))
    return said[0] if said else ""
