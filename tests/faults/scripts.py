"""Runs the fault suite's script, or one of a test's own, in a process of its own, bounded in time; what it says."""

from __future__ import annotations

import json
import os
import subprocess
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

from injected import SIZE
from warm_host import host

DRIVER = Path(__file__).parent / "driver.py"
BATCHES = [list(range(first, first + 4)) for first in range(0, SIZE, 4)]
SHARED = [list(range(first + shard, first + 8, 2)) for first in range(0, SIZE, 8) for shard in (0, 1)]
"""The batches of the stream, shared by two workers."""
TEN = str([list(range(first, first + 4)) for first in range(0, 40, 4)])
"""What a script prints that has ten batches of four."""
FRONTS = ("feedline", "feedline.torch")
HEAD = f"""
    import os, sys, threading, warnings
    sys.path.append({str(Path(__file__).parent)!r})
    import numpy as np
    from feedline import DataLoader
    from feedline.supervise import policy
    import still
    warnings.showwarning = lambda message, *rest, **more: print("WARNING", message, flush=True)
    warnings.simplefilter("always")
"""
"""Of the scripts that tests write themselves."""


class Seen(NamedTuple):
    """What a script's loop saw."""

    batches: list[Any]
    errors: list[tuple[str, str]]
    warnings: list[str]
    after: list[float]
    bad: list[Any]
    left: dict[str, int]


def run(
    dataset: dict[str, Any],
    options: dict[str, Any],
    front: str = "feedline",
    warn: str = "note",
    epochs: int = 1,
    environment: dict[str, str] | None = None,
    leave: bool = False,
) -> Seen:
    """Iterate over the dataset to its end and catch every error; `leave`: leave the first epoch when it is stuck."""
    asked = json.dumps(
        {"front": front, "dataset": dataset, "options": options, "warn": warn, "epochs": epochs, "leave": leave}
    )
    done = host(front).run([str(DRIVER), asked], env=os.environ | (environment or {}), check=True, timeout=300)
    found = json.loads(done.stdout.splitlines()[-1])
    return Seen(**{**found, "errors": [tuple(error) for error in found["errors"]]})


def run_script(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    """A script of a test's own, which finds what scripts want in its head."""
    script = folder / "script.py"
    script.write_text(textwrap.dedent(HEAD) + textwrap.dedent(body))
    return host("feedline").run([str(script)], timeout=300)
