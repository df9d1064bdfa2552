"""A loader in one line, for printing it, or as a table in a notebook.

Takes: a loader of either front. Gives: its dataset, batches and workers, in words.
Promises: there is always a line, whatever the user's dataset or sampler does when it is asked for its length.
Not its job: how the loader is doing (observe.stats).
"""

from __future__ import annotations

from typing import Any

from feedline.errors.counting import counted
from feedline.errors.foreign import ask
from feedline.observe.html_table import two_columns
from feedline.options.worker_count import AutoCount


def loader_in_html(loader: Any, kind: str) -> str:
    """The same as a table, for notebooks."""
    name, what, batches, workers = _parts(loader, kind)
    return two_columns(name, {"dataset": what, "batches": batches, "workers": workers})


def loader_in_words(loader: Any, kind: str) -> str:
    """The line; `kind` is the kind of workers.

    >>> from feedline import DataLoader
    >>> DataLoader(range(100), batch_size=8, num_workers=2, workers="thread")
    <feedline.DataLoader: range of 100 samples, 13 batches of 8, 2 worker threads>
    """
    name, *rest = _parts(loader, kind)
    return f"<{name}: {', '.join(rest)}>"


def _parts(loader: Any, kind: str) -> tuple[str, str, str, str]:
    dataset = ask(loader, "dataset")
    samples, batches, size = _length(dataset), _length(loader), ask(loader, "batch_size")
    what = type(dataset).__name__ + ("" if samples is None else f" of {counted(samples, 'sample')}")
    many = "batches" if batches is None else counted(batches, "batch")
    of = f" of {size}" if isinstance(size, int) else ""
    name = f"{type(loader).__module__.removesuffix('.loader')}.{type(loader).__qualname__}"  # as users import it
    return name, what, f"{many}{of}", _workers(loader, kind)


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
