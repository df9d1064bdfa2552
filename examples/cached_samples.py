"""Slowly decoded samples, kept after the first epoch, augmented anew in each.

    python examples/cached_samples.py

The second epoch decodes nothing, in any worker; a run that is started again finds the samples of the first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from feedline import cached, materialize, rng
from feedline.torch import DataLoader

SAMPLES, CLASSES = 600, 3


class Decoded:
    """Stands for pictures: each is decoded, and the file says how often that was done in all processes."""

    def __init__(self, log: str) -> None:
        self.log = log

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        with open(self.log, "ab") as log:
            log.write(b".")
        noise = np.random.default_rng(index)
        label = index % CLASSES
        return {"x": noise.normal(label, 1, 64).astype(np.float32), "label": label}


def augment(sample: dict[str, Any]) -> dict[str, Any]:
    """Random, so it is outside of what is kept."""
    return {**sample, "x": sample["x"] + rng().normal(0, 0.1, 64).astype(np.float32)}


def main() -> int:
    with tempfile.TemporaryDirectory() as scratch:
        log = Path(scratch, "log")
        data = cached(Decoded(str(log)), f"{scratch}/cache", max_bytes=50_000_000)
        model = torch.nn.Linear(64, CLASSES)
        optimizer = torch.optim.Adam(model.parameters(), 0.02)
        with DataLoader(data.map(augment), batch_size=60, shuffle=True, num_workers=2) as loader:
            for _ in range(4):
                right = 0
                for batch in loader:
                    scores = model(batch["x"])
                    right += int((scores.argmax(1) == batch["label"]).sum())
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(scores, batch["label"]).backward()
                    optimizer.step()
        print(f"accuracy {right / SAMPLES:.2f}; decoded {log.stat().st_size} times in 4 epochs of {SAMPLES} samples")
        done = materialize(Decoded(str(log)), f"{scratch}/cache", progress=False)
        print(f"written ahead: {done.samples - done.found} samples, because {done.found} were there")
        once = log.stat().st_size == SAMPLES and done.found == SAMPLES
        print(f"each sample was decoded once: {'yes' if once else 'NO'}")
    return 0 if once else 1


if __name__ == "__main__":
    sys.exit(main())
