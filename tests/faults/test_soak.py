"""A few seconds of `make soak`: workers killed, stopped and stalled at random, every batch once and right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("kind", ["fork", "spawn", "forkserver", "threads"])
def test_every_batch_arrives_once_and_right_under_fire(kind: str) -> None:
    script = Path(__file__).parent / "soak.py"
    command = [sys.executable, str(script), "--minutes", "0.08", "--seed", "11", "--kinds", kind]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every batch once and right" in done.stdout
