"""Training on windows of recordings: which of three sounds is it? One recording is damaged.

    python examples/sound.py

Shows that windows are drawn alike by any number of workers, that the damaged recording is left out and named, and that
the network learns.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
import torch
from torch import nn

from feedline.sources import SoundDataset
from feedline.torch import DataLoader

KINDS, EACH, RATE, EPOCHS = ("hum", "chirp", "noise"), 24, 8000, 4


def record(kind: str, random: np.random.Generator) -> np.ndarray:
    """Two seconds of it."""
    time = np.arange(2 * RATE) / RATE
    pitch = random.uniform(200, 400)
    wave = {
        "hum": np.sin(2 * np.pi * pitch * time),
        "chirp": np.sin(2 * np.pi * pitch * (1 + 3 * (4 * time % 1)) * time),
        "noise": random.normal(0, 0.7, time.shape),
    }[kind]
    return (0.5 * wave + random.normal(0, 0.02, time.shape)).clip(-1, 1)


def write(root: Path) -> tuple[list[Path], list[int]]:
    random = np.random.default_rng(0)
    paths = [root / f"{kind}-{number:02}.flac" for kind in KINDS for number in range(EACH)]
    for path in paths:
        soundfile.write(path, record(path.stem.split("-")[0], random), RATE)
    paths[5].write_bytes(paths[5].read_bytes()[:500])
    return paths, [KINDS.index(path.stem.split("-")[0]) for path in paths]


def loader_of(paths: list[Path], labels: list[int], num_workers: int) -> DataLoader:
    data = SoundDataset(paths, labels, seconds=0.5, mono=True, channels_first=True)
    order = torch.Generator().manual_seed(1)
    return DataLoader(data, 12, shuffle=True, generator=order, num_workers=num_workers, on_error="skip")


def spectrum(samples: torch.Tensor) -> torch.Tensor:
    """How loud each pitch is, and how much that changes."""
    loud = torch.fft.rfft(samples.squeeze(1).unfold(1, 256, 128)).abs().log1p()
    return torch.cat([loud.mean(1), loud.std(1)], 1)


def main() -> int:
    logging.getLogger("feedline").setLevel(logging.ERROR)  # its line about the damaged recording: errors() has it, too
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        paths, labels = write(Path(folder))
        with loader_of(paths, labels, 2) as loader, loader_of(paths, labels, 0) as alone:
            same = all(torch.equal(one[0][0], two[0][0]) for one, two in zip(loader, alone, strict=True))
            network = nn.Sequential(nn.Linear(2 * 129, 32), nn.ReLU(), nn.Linear(32, len(KINDS)))
            optimizer = torch.optim.Adam(network.parameters(), 1e-2)
            for epoch in range(EPOCHS):
                right = seen = 0
                for (samples, _), wanted in loader:
                    answers = network(spectrum(samples))
                    optimizer.zero_grad()
                    nn.functional.cross_entropy(answers, wanted).backward()
                    optimizer.step()
                    right += int((answers.argmax(1) == wanted).sum())
                    seen += len(wanted)
                print(f"epoch {epoch}: {right / seen:.0%} of {seen} windows")
            left_out = {Path(bad.what).name for bad in loader.errors()}
    print(f"left out: {', '.join(left_out)}")
    print(f"the same windows with 0 and 2 workers: {'yes' if same else 'no'}")
    print(f"learned: {'yes' if right / seen > 0.8 else 'no'}")
    return not (same and right / seen > 0.8 and left_out == {paths[5].name})


if __name__ == "__main__":
    sys.exit(main())
