"""A training run killed -9 twenty times, each time resumed from its last state, trains on what it would have anyway."""

from __future__ import annotations

import random
from pathlib import Path

from warm_host import host

SCRIPT = Path(__file__).parent / "interrupted_training.py"


def run(folder: Path, workers: int, die_after: int) -> int:
    return host("feedline").run([str(SCRIPT), str(folder), str(workers), str(die_after)], timeout=300).returncode


def test_killed_twenty_times_it_is_the_same_run(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    assert run(whole, 0, 0) == 0
    draw = random.Random(7)
    for _ in range(20):  # 39 steps in all; some end an epoch
        assert run(broken, draw.choice([0, 0, 0, 1, 3]), draw.choice([1, 1, 2, 3])) in (-9, 0)
    assert run(broken, 2, 0) == 0
    assert (broken / "log.txt").read_text() == (whole / "log.txt").read_text()
    assert len((whole / "log.txt").read_text().splitlines()) == 39
