"""What a loader knows about itself, as plain values.

Takes: nothing. Gives: `Stats`, which `loader.stats()` returns. Promises: frozen; new fields come with defaults.
Not its job: measuring (supervise), counting (collated).
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
class CollateStats:
    """What collators have counted in the batches delivered so far, of all epochs.

    >>> CollateStats().padding is None
    True
    """

    padding: float | None = None
    """The share of padded arrays (`pad`, `detection`) that is padding; None if nothing has been padded."""
    padding_of_batches: tuple[float, ...] = ()
    """The same for each of the last 1,000 padded batches, the oldest first."""
    fill: float | None = None
    """The share of packed rows (`pack`) that is filled; None if nothing has been packed."""
    cut: int = 0
    """Samples that were cut short because that was asked for."""
    dropped: int = 0
    """Samples that `drop_invalid` has left out…"""
    emptied: int = 0
    """…and batches that were not delivered, because nothing was left of them."""


@dataclass(frozen=True)
class Stats:
    """What `loader.stats()` returns.

    >>> Stats().workers
    ()
    """

    workers: tuple[WorkerMemory, ...] = ()
    """One entry for each worker process, by number; empty without worker processes."""
    collate: CollateStats = CollateStats()
