"""docs/resuming.md: its example, killed again and again, trains as if it had not been."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

from training_host import STRICT, training_host

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "resuming.md").read_text()


def run(script: Path, folder: Path, lines: int | None) -> list[str]:
    """What it prints; killed after so many lines, or a few more."""
    folder.mkdir(exist_ok=True)
    reading, writing = os.pipe()
    with (
        open(reading) as output,
        training_host().start([*STRICT, str(script)], writing, 2, folder) as process,
    ):
        os.close(writing)
        printed = []
        for line in output:
            printed.append(line.strip())
            if len(printed) == lines:  # it may have got further, and saved that, before the signal comes
                process.send_signal(signal.SIGKILL)
        assert process.wait() == (0 if lines is None else -signal.SIGKILL)
    return printed


def test_the_example_killed_and_run_again_has_the_losses_of_one_run(tmp_path):
    (text,) = re.findall(r"```python\n(# train\.py.*?)```", PAGE, re.S)
    script = tmp_path / "train.py"
    script.write_text(text)
    whole = run(script, tmp_path / "whole", None)
    assert len(whole) == 3 * 13
    seen: dict[str, str] = {}
    for lines in (9, 16, None):  # saved every 5 steps, so steps after that are taken again
        for line in run(script, tmp_path / "parts", lines):
            step, loss = line.split()
            assert seen.setdefault(step, loss) == loss
    assert [f"{step} {loss}" for step, loss in seen.items()] == whole


def test_every_test_file_that_the_page_names_exists():
    for name in re.findall(r"tests/[\w/]+\.py", PAGE):
        assert (ROOT / name).exists()
