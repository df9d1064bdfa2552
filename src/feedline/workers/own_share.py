"""Has `worker_init_fn` given its worker's copy of a stream its own share? (torch documents this way to divide data.)

Takes: the dataset, while the function runs. Gives: whether it did. The rule: the function asked for the number of
workers (which is needed to divide anything), or replaced the value of a dataset attribute. Asking for the worker's
number or its dataset does not count. Setting an attribute that was missing or None does not count either: that is how
files are opened.
Promises: the dataset is not changed.
Not its job: what follows from it (reading.stream_reader).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from feedline.errors.foreign import ask
from feedline.machine.worker_info import count_reads


class ShareWatch:
    """The result, valid after the watch has ended."""

    found = False


@contextlib.contextmanager
def watch_for_sharing(dataset: Any) -> Iterator[ShareWatch]:
    """Watch while `worker_init_fn` runs."""
    sharing = ShareWatch()
    before, counted = _values(dataset), count_reads()
    yield sharing
    replaced = any(
        value is not None and before.get(name) is not None and before[name] is not value
        for name, value in _values(dataset).items()
    )
    sharing.found = replaced or count_reads() > counted


def _values(dataset: Any) -> dict[str, Any]:
    return dict(ask(dataset, "__dict__", {}))
