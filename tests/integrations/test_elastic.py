"""docs/elastic.md: its script, whose ranks are killed, goes on with another number of them and takes the same steps."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from kinds import thorough
from pages import text_of
from training import HERE
from training_host import training_host

PAGE = text_of("elastic.md")
LIVES = str(HERE / "elastic_lives.py")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
STEPS = 24


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (text,) = re.findall(r"```python\n(# train\.py.*?)```", PAGE, re.S)
    script = tmp_path / "train.py"
    script.write_text(text)
    return script


def steps_of(output: str, lives: int) -> list[str]:
    """The steps that it printed: their losses and checksums. Those after the last checkpoint come again, alike."""
    lines = [line.split() for line in re.findall(r"^\d+ \d\.\d{4} \d+$", output, re.MULTILINE)]
    seen: dict[int, list[str]] = {}
    for number, *said in lines:
        assert seen.setdefault(int(number), said) == said
    assert [*seen] == [*range(1, STEPS + 1)], output
    assert len(lines) > STEPS or lives == 1
    return [" ".join(said) for said in seen.values()]


def lived(script: Path, folder: str, *lives: str) -> list[str]:
    """The steps of a job that torchrun's agent starts so many times; its ranks are forked from a process with torch."""
    script.with_name(folder).mkdir()
    done = training_host().run(
        ["-W", "ignore", LIVES, str(script), *lives], timeout=900, cwd=script.with_name(folder), env=ENVIRONMENT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return steps_of(done.stdout, len(lives))


def test_a_job_goes_on_with_three_ranks_and_then_four_as_if_nothing_had_happened(script: Path) -> None:
    whole = lived(script, "whole", "1:0")
    assert lived(script, "parts", "4:0:2:11", "3:0:0:6", "4:0") == whole


@thorough
def test_and_when_all_ranks_are_restarted(script: Path) -> None:
    whole = lived(script, "whole", "1:0")
    assert lived(script, "parts", "4:1:2:11") == whole


@thorough
def test_under_torchrun_itself(script: Path) -> None:
    whole = lived(script, "whole", "1:0")
    for name, lives in {"restarted": ["4:1:2:11"], "fewer": ["4:0:2:11", "3:0:0:6", "4:0"]}.items():
        script.with_name(name).mkdir()
        output = ""
        for life in lives:
            ranks, restarts, *dying = life.split(":")
            options = ["--standalone", f"--nproc-per-node={ranks}", f"--max-restarts={restarts}"]
            command = ["-m", "torch.distributed.run", *options, LIVES, str(script), *dying]
            done = training_host().run(command, timeout=400, cwd=script.with_name(name), env=ENVIRONMENT)
            assert bool(done.returncode) == (life != lives[-1]), done.stdout + done.stderr
            output += done.stdout
        assert steps_of(output, len(lives) + 1) == whole
