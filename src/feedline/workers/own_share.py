"""Has `worker_init_fn` given its worker's copy of a stream a share of its own? That is torch's documented way.

Takes: the dataset, while the function runs. Gives: whether it shared. The rule: it looked at the number of workers
(nobody can share without knowing it), or an attribute of the dataset that had a value has another one afterwards.
Looking at the worker's number or its dataset is no sharing, and neither is setting what was not there or None: that
is how things are opened.
Promises: nothing is done to the dataset.
Not its job: what follows from it (reading.stream_reader).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from feedline.errors.foreign import ask
from feedline.machine.worker_info import countings


class ShareWatch:
    """What was found out, once the watch is over."""

    found = False


@contextlib.contextmanager
def watch_for_sharing(dataset: Any) -> Iterator[ShareWatch]:
    """Watch while `worker_init_fn` runs."""
    sharing = ShareWatch()
    before, counted = _values(dataset), countings()
    yield sharing
    replaced = any(
        value is not None and before.get(name) is not None and before[name] is not value
        for name, value in _values(dataset).items()
    )
    sharing.found = replaced or countings() > counted


def _values(dataset: Any) -> dict[str, Any]:
    return dict(ask(dataset, "__dict__", {}))
