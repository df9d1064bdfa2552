"""The example runs, and the page names what is there."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from pages import check_links, text_of

ROOT = Path(__file__).parents[2]


def test_the_example_shows_what_it_says(cluster: Any) -> None:
    command = [sys.executable, "-W", "error::UserWarning:feedline", str(ROOT / "examples" / "ray_workers.py")]
    environment = {**os.environ, "RAY_ADDRESS": cluster.address}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    shows = r"the same batches here and on the cluster: yes\nthe second epoch, begun there and ended here: the same"
    assert re.search(shows, done.stdout), done.stdout


def test_the_page_is_linked_and_names_its_tests() -> None:
    check_links("ray.md", ("README.md", "docs/workers.md", "docs/design.md"))
    for name in re.findall(r"`(tests/ray/[a-z_]+\.py)`", text_of("ray.md")):
        assert (ROOT / name).exists(), name
