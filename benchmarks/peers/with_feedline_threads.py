"""feedline with threads for workers, where it has them beside processes: `workers="thread"`."""

from __future__ import annotations

from collections.abc import Iterator

from peers import with_feedline
from peers.measure import Batches


def batches(workload: str) -> Batches:
    return with_feedline.batches(workload, workers="thread")


def resume() -> Iterator[float]:
    raise NotImplementedError("the same as with processes")
