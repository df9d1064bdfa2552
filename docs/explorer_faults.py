"""A user's script with a fault in it, under torch's loader or feedline's; what is printed is on the explorer's page.

    python docs/explorer_faults.py feedline kill '{}'

Takes: a side, a fault, the loader's options. Gives: lines as a user sees them, "batch N" for each batch among them.
Promises: the same dataset and loop for both sides. Not its job: time limits, and keeping the words (make_explorer).
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import signal
import sys
import threading
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

SIZE, BATCH, WORKERS = 64, 8, 3
KILLED, HANGS, CORRUPT = 21, 17, 40


class Photos:
    """64 samples; one of them kills its worker once, never comes, or cannot be read."""

    def __init__(self, fault: str, once: Path) -> None:
        self.fault, self.once = fault, once

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        if self.fault == "kill" and index == KILLED and not self.once.exists():
            self.once.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == "hang" and index == HANGS:
            self.download(index)
        if self.fault == "corrupt" and index == CORRUPT:
            raise ValueError("broken JPEG data")
        return np.full(4, index, np.float32)

    def download(self, index: int) -> None:
        threading.Event().wait()


def main(side: str, fault: str, options: dict[str, Any], once: Path) -> None:
    warnings.simplefilter("always")
    warnings.filterwarnings("ignore", "This DataLoader will create")  # torch's, about this machine's two cores
    warnings.showwarning = shown
    logging.basicConfig(format="%(levelname)s:%(name)s:%(message)s", stream=sys.stdout)
    loader_class = importlib.import_module("torch.utils.data" if side == "torch" else "feedline").DataLoader
    given = {"num_workers": WORKERS, **({} if side == "torch" else {"seed": 0})}
    loader = loader_class(Photos(fault, once), batch_size=BATCH, **given, **options)
    try:
        for number, batch in enumerate(loader):
            say(f"batch {number}: {len(batch)} samples")
    except Exception as error:
        say("".join(traceback.format_exception_only(error)).strip())
    else:
        say("the epoch is over")


def shown(message: Warning | str, category: type[Warning], *rest: object) -> None:
    say(f"{category.__name__}: {message}")


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]), Path(sys.argv[4]))
