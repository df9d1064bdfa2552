"""Asks a dataset to describe a sample, and does not wait long for the answer.

Takes: a function to ask and an index, in the main process while it reports a stall or a death. Gives: words, or none.
Promises: it returns within a moment, whatever the dataset does (a disk that blocks a worker may block `describe` too).
A thread that has answered ends. A stuck thread is left behind, and until it returns the dataset is not asked again.
Not its job: notes on exceptions, for which the worker that read the sample asks directly (datasets.described).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import Any

MOMENT = 0.5
"""Seconds to wait for an answer."""

_stuck: tuple[tuple[Callable[[Any], str], threading.Thread], ...] = ()
"""Replaced as a whole. If two loops do so at once, one change may be lost: then a stuck dataset is asked once more."""


def asked(describe: Callable[[Any], str], index: Any) -> str:
    """The description, if it comes within a moment; else empty.

    >>> asked(lambda index: f"photos/{index}.jpg", 17)
    'photos/17.jpg'
    """
    global _stuck
    stuck = _stuck = tuple((each, thread) for each, thread in _stuck if thread.is_alive())
    if any(each is describe for each, _ in stuck):  # else a report about many workers would wait once per worker
        return ""
    said: list[str] = []

    def ask() -> None:
        with contextlib.suppress(BaseException):  # a thread's error would be printed, and is of no use
            said.append(describe(index))

    thread = threading.Thread(target=ask, name="feedline-describe", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # no more threads are possible
        return ""
    thread.join(MOMENT)
    if thread.is_alive():
        _stuck = (*_stuck, (describe, thread))
    return said[0] if said else ""
