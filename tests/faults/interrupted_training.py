"""A training run that writes down what it trains on, saves its state after each step, and dies when it is told to.

python interrupted_training.py FOLDER WORKERS DIE_AFTER      # DIE_AFTER steps, by SIGKILL; 0 runs to the end
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

import feedline

EPOCHS, SIZE, BATCH = 3, 101, 8


class Noisy(feedline.Dataset[Any]):
    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> Any:
        return index, feedline.rng().random()


def main(folder: Path, workers: int, die_after: int) -> None:
    loader = feedline.DataLoader(
        Noisy(), BATCH, shuffle=True, seed=5, num_workers=workers, persistent_workers=workers > 0
    )
    checkpoint, log = folder / "checkpoint.json", folder / "log.txt"
    done: list[str] = []
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        done = saved["done"]
        loader.load_state_dict(saved["loader"])
    steps = 0
    while loader.epoch < EPOCHS:
        for indices, draws in loader:
            # The model: what it has been trained on, in order.
            done.append(f"{indices.tolist()} {np.round(draws, 6).tolist()}")
            new = folder / "checkpoint.new"
            new.write_text(json.dumps({"done": done, "loader": loader.state_dict()}))
            os.replace(new, checkpoint)  # there is always a whole one
            steps += 1
            if steps == die_after:
                os.kill(os.getpid(), signal.SIGKILL)
    log.write_text("\n".join(done))
    loader.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
