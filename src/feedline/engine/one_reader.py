"""One thread at a time reads an iterator: a second thread gets an error, not a batch that belongs to the first.

Takes: the mark that a call of `next()` sets while it runs. Gives: an error that names the thread inside `next()`;
whether another thread is inside.
Promises: if Ctrl-C comes just as a call is about to return, later calls still work.
Not its job: what `next()` does (loop).
"""

from __future__ import annotations

import sys
import threading
from types import FrameType

Inside = dict[int, object]
"""Key 0 → the mark of the call that runs, if there is one. It is set and removed in single (atomic) steps."""


def enter(inside: Inside, mine: object, iterator: object) -> None:
    """Another call of `next()` has set its mark: raise an error, unless that call ended without removing it."""
    while (theirs := inside.setdefault(0, mine)) is not mine:
        if (ident := _who_is_inside(iterator, sys._getframe(1))) is not None:
            raise RuntimeError(_taken_by(ident))
        if inside.get(0) is theirs:  # the mark did not change while we looked, and no thread is inside
            inside.clear()


def is_used_elsewhere(iterator: object, module: str) -> bool:
    """Is another thread running a method of the iterator that is defined in that module?"""
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
        return "next() was called on this iterator by its own dataset, sampler or collate_fn, while making a batch"
    names = (thread.name for thread in threading.enumerate() if thread.ident == ident)
    return (
        f"this iterator is being read by another thread ({next(names, ident)}) at this moment. Let one thread take "
        "the batches and pass them on through a queue.Queue, or give each thread its own iterator with iter(loader)"
    )
