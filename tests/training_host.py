"""The one host for scripts that train: it has imported all that they import, and what torch's optimizers do (_dynamo).

Its scripts have one thread for torch, because a process that forks must (see `warm_host`).
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from warm_host import Host, host

STRICT = ["-W", "error", "-W", "ignore:This DataLoader will create 2 worker processes"]
"""Every warning is an error, but for torch's about a second worker on a machine with one CPU."""


def training_host() -> Host:
    return host("lightning", "accelerate", "torch._dynamo", "feedline.torch")


def run_ranks(
    running: Host, commands: Sequence[Sequence[str]], environments: Sequence[dict[str, str]]
) -> list[subprocess.CompletedProcess[str]]:
    """Runs the ranks of one job side by side, because each waits for the others. One that fails says why."""

    def run(arguments: Sequence[str], environment: dict[str, str]) -> Any:
        return running.run(arguments, timeout=400, env=environment)

    with ThreadPoolExecutor(len(commands)) as threads:
        ranks = list(threads.map(run, commands, environments))
    for rank, done in enumerate(ranks):
        assert done.returncode == 0, f"rank {rank}:\n{done.stdout}{done.stderr}"
    return ranks
