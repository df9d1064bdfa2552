"""Datasets whose loading is observed, and what is in the file that a trace has written."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np


class Numbers:
    def __init__(self, length: int = 40) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return int(np.sin(np.arange(2000)).sum() * 0) + index


class Killing(Numbers):
    """One worker kills itself at sample 21, once."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def __getitem__(self, index: int) -> int:
        if index == 21 and not self.file.exists():
            self.file.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def events_in(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["traceEvents"]


def spans_in(path: Path, *names: str) -> list[dict[str, Any]]:
    return [event for event in events_in(path) if event["ph"] == "X" and event["name"] in names]


class Failing(Numbers):
    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise ValueError("damaged")
        return index
