"""Facts about the machine that are needed to compare with its numbers.

Takes: nothing. Gives: a dict of plain facts. Not its job: whether the machine is suitable for loading (preflight).
"""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from feedline.machine import cpus


def machine() -> dict[str, Any]:
    """Processor, cores, memory, system, and how busy it was before.

    >>> machine()["cores"] >= 1
    True
    """
    return {
        "cpu": _first_line("/proc/cpuinfo", "model name") or platform.processor(),
        "cores": cpus.look().allowed,
        "memory": _first_line("/proc/meminfo", "MemTotal"),
        "kernel": platform.platform(),
        "load before": os.getloadavg()[0],
    }


def _first_line(path: str, field: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(field)), None)
