"""Runs a training script as torchrun does, several lives long; in some a rank kills itself: for test_elastic.

    elastic_lives.py train.py 4:0:2:11 3:0:0:5 4:0

A life is ranks:restarts[:rank:step]. torchrun's own agent runs it, but forks the ranks from this process instead of
starting interpreters. With a script and `rank:step` alone, it is one rank under a real torchrun.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch
from torch.optim.optimizer import register_optimizer_step_pre_hook


def run(script: str, dying: list[int]) -> None:
    """The script as one rank, which may kill itself before a step of its first life."""
    steps = 0

    def die(*_: object) -> None:
        nonlocal steps
        steps += 1
        if [int(os.environ["RANK"]), steps] == dying and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)

    register_optimizer_step_pre_hook(die)
    runpy.run_path(script, run_name="__main__")


def live(script: str, ranks: int, restarts: int, *dying: int) -> None:
    """A whole job; that one of its ranks dies is intended."""
    told = {"rdzv_backend": "c10d", "rdzv_endpoint": "localhost:0", "monitor_interval": 0.05}
    config = LaunchConfig(1, 1, ranks, run_id="tests", max_restarts=restarts, start_method="fork", **told)
    try:
        elastic_launch(config, run)(script, [*dying])
    except ChildFailedError:
        assert dying
        assert not restarts


if __name__ == "__main__":
    script, *lives = sys.argv[1:]
    if "RANK" in os.environ:
        run(script, [int(number) for life in lives for number in life.split(":")])
    else:
        for life in lives:
            live(script, *map(int, life.split(":")))
