"""torchdata's StatefulDataLoader: torch's options, and a state.

https://docs.pytorch.org/data/0.11/torchdata.stateful_dataloader.html
"""

from __future__ import annotations

from collections.abc import Iterator

from torchdata.stateful_dataloader import StatefulDataLoader

from peers.measure import Batches, endless, seconds_to_go_on
from peers.with_torch import DATASETS, options
from peers.workloads import RESUME_BATCH, Numbers


def batches(workload: str) -> Batches:
    return endless(StatefulDataLoader(DATASETS[workload](), **options(workload)))


def resume() -> Iterator[float]:
    return seconds_to_go_on(lambda: StatefulDataLoader(Numbers(), RESUME_BATCH, shuffle=True))
