"""Under jax.distributed with two processes on CPU: they are ranks, to a stream and to DistributedSampler."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from feedline.machine.rank_questions import VARIABLES

SCRIPT = Path(__file__).parent / "jax_two_ranks.py"
LONG = 400

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="JAX is not installed: it could not be had for this Python"
)


def run(rank: int, port: int) -> Any:
    """In an interpreter of its own: JAX warns of every fork."""
    launchers = {name for pair in VARIABLES for name in pair}
    environment = {name: value for name, value in os.environ.items() if name not in launchers}
    command = [sys.executable, "-W", "error", str(SCRIPT), str(rank), str(port)]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LONG, env={**environment, "JAX_PLATFORMS": "cpu"}
    )
    assert done.returncode == 0, f"rank {rank}:\n{done.stdout}{done.stderr}"
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def reports() -> list[dict[str, Any]]:
    """What each of the two processes reports."""
    with socket.socket() as held:  # so that the port stays free for who may share it: gRPC, which asks for that
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", 0))
        with ThreadPoolExecutor(2) as threads:
            return list(threads.map(run, range(2), [held.getsockname()[1]] * 2))


@pytest.mark.parametrize("how", ["shared", "shared, with workers"])
def test_a_stream_is_shared_out_over_jaxs_processes(reports: list[dict[str, Any]], how: str) -> None:
    (one, said), (two, too) = (report[how] for report in reports)
    assert sorted(one + two) == list(range(21))
    assert one[:4] == [0, 1, 4, 5]
    assert said == too == []


def test_without_the_word_each_is_warned_that_it_reads_everything(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        got, (message,) = report["read by all"]
        assert got == list(range(21))
        assert message.startswith("there are 2 ranks, and each of them reads every element")
        assert report["meant"] == [list(range(21)), []]


def test_a_stream_that_asks_jax_shares_itself_out(reports: list[dict[str, Any]]) -> None:
    assert [report["strided"] for report in reports] == [[list(range(rank, 21, 2)), []] for rank in range(2)]
    for report in reports:
        (message,) = report["strided, shared"][1]
        assert "the dataset asks for its rank, too. If it picks its part by its rank, elements are lost" in message


def test_one_that_lets_jax_compute_does_not(reports: list[dict[str, Any]]) -> None:
    assert [len(report["computing"][1]) for report in reports] == [1, 1]
    (one, said), (two, too) = (report["computing, shared"] for report in reports)
    assert sorted(one + two) == list(range(20))
    assert said == too == []


def test_a_distributed_sampler_finds_them(reports: list[dict[str, Any]]) -> None:
    assert [report["sampler"] for report in reports] == [list(range(rank, 20, 2)) for rank in range(2)]


def test_before_and_after_there_is_one(reports: list[dict[str, Any]]) -> None:
    for report in reports:
        assert report["before"] == report["after"] == [1, 0]
