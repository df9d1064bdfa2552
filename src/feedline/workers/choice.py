"""Threads or processes? Decided from facts alone.

Takes: `Facts`: what the dataset holds, what was seen while the first batches were made, the machine. Gives: `Choice`: a
kind of worker, and why.
Promises: a pure function. What threads must not share goes to processes, however fast threads would be; what cannot be
in processes goes to threads, however slow.
Not its job: finding the facts (carried, trial), acting on the choice (choosing).
"""

from __future__ import annotations

from typing import NamedTuple

from feedline.gil import Looks

LEAST_LOOKS = 8
"""On fewer nothing is built."""
MOST_WANTED = 0.5
"""Of the GIL's time, by all workers together: from there on they wait for one another, and the training loop for them
(benchmarks/kinds_of_workers.py)."""
QUICK = 0.0002
"""Seconds: handing a batch to another process and back takes as long (benchmarks/kinds_of_workers.py)."""
_RARELY = 0.01


class Facts(NamedTuple):
    """All that the choice follows from."""

    num_workers: int
    cpus: float = 1.0
    gil: bool = True
    """Does one thread at a time run Python?"""
    no_processes: str = ""
    """Why there can be no worker processes; empty if there can."""
    not_shared: str = ""
    """Why threads must not share the dataset; empty if nothing is known against it."""
    looks: Looks | None = None
    """At a worker that makes batches; None before."""
    batches: float = 1.0
    """So many were made meanwhile."""


class Choice(NamedTuple):
    """A kind of worker, and why it is that one; nothing is said of what was asked for by name."""

    kind: str
    why: str = ""


def decide(facts: Facts) -> Choice | None:
    """The kind; None if that has to be seen first.

    >>> print(*decide(Facts(4, cpus=4, looks=Looks(32, 0, seconds=1.0, computing=0.02))), sep=": ")
    thread: making batches holds the GIL for 0 % of its time and waits for 98 %, so 4 threads do not hinder one another
    >>> decide(Facts(4, cpus=4, looks=Looks(32, 31, seconds=1.0, computing=1.0))).kind
    'process'
    """
    if facts.no_processes:
        return Choice("thread", facts.no_processes)
    if facts.not_shared:
        return Choice("process", facts.not_shared)
    if facts.looks is None:
        return None
    if not facts.gil:
        return Choice("thread", "this Python has no GIL: threads run at once")
    each = facts.looks.seconds / facts.batches if facts.batches else 0.0
    if 0 < each < QUICK:
        return Choice("thread", f"a batch is made in {each * 1e6:.0f} µs, less than it takes to have it made elsewhere")
    if facts.looks.looked < LEAST_LOOKS:
        return Choice("process", "too few batches were made to see whether that holds the GIL")
    return _by_looks(facts, facts.looks)


def _by_looks(facts: Facts, looks: Looks) -> Choice:
    seen = (
        f"making batches holds the GIL for {looks.held_share:.0%} of its time and waits for {1 - looks.on_cpu:.0%}"
    ).replace("%", " %")
    workers = f"{facts.num_workers} {'thread' if facts.num_workers == 1 else 'threads'}"
    if wanted(facts, looks) <= MOST_WANTED:
        return Choice("thread", f"{seen}, so {workers} do not hinder one another")
    return Choice("process", f"{seen}, so {workers} would wait for one another, or the training loop for them")


def wanted(facts: Facts, looks: Looks) -> float:
    """The share of the GIL's time that all workers together want, were they threads: of those that compute at once.

    >>> wanted(Facts(8, cpus=2), Looks(20, 5, seconds=1.0, computing=1.0))
    0.5
    """
    at_once = min(facts.num_workers, facts.cpus / max(looks.on_cpu, _RARELY))
    return looks.held_share * at_once
