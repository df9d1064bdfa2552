"""What a loader knows about itself, as plain values.

Takes: nothing. Gives: `Stats`, which `loader.stats()` returns. Promises: frozen; new fields come with defaults.
Not its job: measuring (supervise).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WorkerMemory:
    """The memory of one worker process, in bytes, when it was last looked at.

    >>> WorkerMemory(worker=0, pid=4711, total=90 << 20, private=20 << 20, own=60 << 20).total
    94371840
    """

    worker: int
    pid: int
    total: int
    """All that is mapped and there (Rss), batches and libraries included."""
    private: int
    """What nobody else has: the worker's end would free it."""
    own: int
    """Python objects and the like (anonymous memory), also those a forked worker still shares with the main process."""


@dataclass(frozen=True)
class Stats:
    """What `loader.stats()` returns.

    >>> Stats().workers
    ()
    """

    workers: tuple[WorkerMemory, ...] = ()
    """One entry for each worker process, by number; empty without worker processes."""
