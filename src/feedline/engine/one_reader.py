"""An iterator is read by one thread at a time: a second one gets an error instead of a batch of the first one's.

Takes: the mark that a call of `next()` leaves while it is inside. Gives: an error that names who is inside; to whoever
wants its workers, whether somebody is.
Promises: Ctrl-C in the moment in which a call was about to leave shuts nobody out.
Not its job: what is done inside (loop).
"""

from __future__ import annotations

import sys
import threading
from types import FrameType

Inside = dict[int, object]
"""The mark of the call that is under way, if one is, under 0; entered and left in single steps."""


def enter(inside: Inside, mine: object, iterator: object) -> None:
    """Another call of `next()` is under way: an error, unless it has left without saying so."""
    while (theirs := inside.setdefault(0, mine)) is not mine:
        if (ident := _who_is_inside(iterator, sys._getframe(1))) is not None:
            raise RuntimeError(_taken_by(ident))
        if inside.get(0) is theirs:  # it was so all the time that we looked, and nobody is there
            inside.clear()


def is_used_elsewhere(iterator: object, module: str) -> bool:
    """Is another thread in one of the methods that the iterator has from that module?"""
    for ident, frame in sys._current_frames().items():
        at: FrameType | None = None if ident == threading.get_ident() else frame
        while at is not None:
            if at.f_globals.get("__name__") == module and at.f_locals.get("self") is iterator:
                return True
            at = at.f_back
    return False


def _who_is_inside(iterator: object, own: FrameType) -> int | None:
    for ident, frame in sys._current_frames().items():
        at: FrameType | None = frame
        while at is not None:
            if at.f_code is own.f_code and at is not own and at.f_locals.get("self") is iterator:
                return ident
            at = at.f_back
    return None


def _taken_by(ident: int) -> str:
    if ident == threading.get_ident():
        return "next() was called on this iterator by its own dataset, sampler or collate_fn, while it makes a batch"
    names = (thread.name for thread in threading.enumerate() if thread.ident == ident)
    return (
        f"this iterator is being read by another thread ({next(names, ident)}) at this moment. Let one thread take the "
        "batches and hand them on through a queue.Queue, or give each thread its own with iter(loader)"
    )
