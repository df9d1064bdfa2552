"""A loader's slots from one epoch to the next: memory that is used again need not be cleared by the system again.

Takes: the pool of an epoch that is over, when nobody writes to its slots any more. Gives: the same pool to the loader's
next epoch; a new one if there is none.
Promises: at most `MOST` bytes are kept for a loader. They go back to the system when the loader is closed or dropped,
when memory runs short in this process, and when another loader begins an epoch while this one has not for a while, or
while little memory is free: workers of the other loader cannot ask for it.
Not its job: persistent workers, which keep their pool themselves; which slot is free (slots).
"""

from __future__ import annotations

import threading
import time

from feedline.arena import segment
from feedline.arena.limits import room
from feedline.arena.slots import SlotPool

MOST = 1 << 29
"""Bytes that one loader keeps: 16 batches of 28 MB (benchmarks/large_samples.py: 40 such batches an epoch)."""
IDLE_SECONDS = 10.0
"""A loader that has not begun an epoch for so long gives its memory back when another one begins."""


class KeptPool:
    """The pool of one loader between its epochs."""

    def __init__(self, keeps: bool = True) -> None:
        self._pools: list[SlotPool] = []  # at most one
        self._since = 0.0
        self.size = 0
        """Bytes of the pool that rests."""
        self._closed = not keeps
        self._lock = threading.RLock()  # reentrant: the garbage collector may end an epoch in a thread that holds it

    def take(self) -> SlotPool:
        """The pool of the last epoch, or a new one. Until it is given back, the next caller gets a new one."""
        _release_others(self)
        with self._lock:
            pool = self._pools.pop() if self._pools else None
            _resting.discard(self)
        if pool is not None and pool.inherited:  # this is a forked child, and the memory is the parent's
            pool.close()
            pool = None
        return pool or SlotPool()

    def give(self, pool: SlotPool) -> None:
        """An epoch is over, and nobody writes to the pool's slots any more. A second call changes nothing."""
        with self._lock:
            if pool in self._pools:
                return
            if not self._closed and not self._pools and pool.is_untouched:
                self._pools.append(pool)  # nothing to give back, and nothing to look for
                return
            if not self._closed and not self._pools and pool.rest(MOST):
                self._since, self.size = time.monotonic(), pool.segment.used()
                self._pools.append(pool)
                _resting.add(self)
                return
        pool.close()

    def release(self) -> bool:
        """Give the memory back to the system. Was there any?"""
        with self._lock:
            released = bool(self._pools)
            for pool in self._pools:
                pool.close()
            self._pools.clear()  # afterwards: if Ctrl-C comes meanwhile, the loader's end tries again
            _resting.discard(self)
        return released

    def close(self) -> None:
        """The loader is gone: nothing is kept from now on."""
        self._closed = True
        self.release()

    def is_idle(self, now: float) -> bool:
        """Has it been given back long ago?"""
        return now - self._since > IDLE_SECONDS


_resting: set[KeptPool] = set()


def _release_others(but: KeptPool) -> None:
    """A loader begins an epoch: others give way if they are idle, or if its workers might miss their memory."""
    others = _resting - {but} if _resting else ()
    if others:
        now, left = time.monotonic(), room()
        is_tight = left is not None and left.free < 4 * sum(kept.size for kept in others)
        for kept in others:
            if is_tight or kept.is_idle(now):
                kept.release()


def _release_all() -> bool:
    """Memory runs short. Has any been given back?"""
    released = [kept.release() for kept in _resting.copy()]
    return any(released)


segment.givers.append(_release_all)
