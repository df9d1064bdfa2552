"""A few seconds of `make soak`: workers killed, stopped and stalled at random, every batch once and right."""

from __future__ import annotations

from pathlib import Path

import pytest
from kinds import ALL_TESTS, thorough
from warm_host import host

SECONDS = 5.0 if ALL_TESTS else 0.5
"""There is always one whole epoch, in which some samples hang."""


@pytest.mark.parametrize("kind", ["fork", "spawn", pytest.param("forkserver", marks=thorough), "threads"])
def test_every_batch_arrives_once_and_right_under_fire(kind: str) -> None:
    script = Path(__file__).parent / "soak.py"
    command = [str(script), "--minutes", str(SECONDS / 60), "--seed", "11", "--kinds", kind]
    done = host("feedline").run(command, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every batch once and right" in done.stdout
