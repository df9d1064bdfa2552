"""A loader in one line, for printing it.

Takes: a loader of either front. Gives: its dataset, batches and workers, in words.
Promises: there is always a line, whatever the user's dataset or sampler does when it is asked for its length.
Not its job: how the loader is doing (observe.stats).
"""

from __future__ import annotations

from typing import Any

from feedline.errors.counting import counted
from feedline.errors.foreign import ask
from feedline.options.worker_count import AutoCount


def loader_in_words(loader: Any, kind: str) -> str:
    """The line; `kind` is the kind of workers.

    >>> from feedline import DataLoader
    >>> DataLoader(range(100), batch_size=8, num_workers=2, workers="thread")
    <feedline.DataLoader: range of 100 samples, 13 batches of 8, 2 worker threads>
    """
    dataset = ask(loader, "dataset")
    samples, batches, size = _length(dataset), _length(loader), ask(loader, "batch_size")
    what = type(dataset).__name__ + ("" if samples is None else f" of {counted(samples, 'sample')}")
    many = "batches" if batches is None else counted(batches, "batch")
    of = f" of {size}" if isinstance(size, int) else ""
    name = f"{type(loader).__module__.removesuffix('.loader')}.{type(loader).__qualname__}"  # as users import it
    return f"<{name}: {what}, {many}{of}, {_workers(loader, kind)}>"


def _workers(loader: Any, kind: str) -> str:
    count = ask(loader, "num_workers", 0)
    if isinstance(count, AutoCount):
        return f"worker {'threads' if kind == 'thread' else 'processes'}, as many as are needed"
    return counted(count, f"worker {kind}") if count else "no workers"


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except Exception:  # it has no length, or fails to give it
        return None
