"""One Ray for all tests of this folder: it takes ten seconds to start."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from leaving import leftovers
from running_actors import actors

LONG = 300


def pytest_configure(config: pytest.Config) -> None:
    """On a busy machine actors have taken more than half a minute to start, and then the loop says so."""
    config.addinivalue_line("filterwarnings", "ignore:the loop has been waiting for a batch:UserWarning")
    # On a machine with one CPU torch warns of a second worker. Tests compare with two local ones all the same.
    config.addinivalue_line("filterwarnings", "ignore:This DataLoader will create 2 worker processes:UserWarning")


@pytest.fixture(scope="session", autouse=True)
def cluster() -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    # Ray gives way to everything else (15), which beside other tests makes each start of an actor take seconds.
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False, "include_log_monitor": False}
    )
    ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
    yield cluster
    ray.shutdown()
    cluster.shutdown()


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """As everywhere, but for Ray's own connections, threads and processes; and no actor may be left."""
    before = leftovers()
    yield
    gc.collect()
    threads = [thread for thread in threading.enumerate() if thread.name.startswith("feedline")]
    for thread in threads:
        thread.join(LONG)
    left = leftovers()
    for kind in ("segments", "watched", "replaced functions"):
        assert not left[kind] - before[kind]
    waited = threading.Event()
    for _ in range(LONG * 20):
        if not actors():
            return
        waited.wait(0.05)
    pytest.fail(f"the test left actors behind: {actors()}")
