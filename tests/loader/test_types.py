"""What an editor, or mypy, knows of a loader's batches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

KEPT = Path(__file__).parents[2] / "build" / "mypy-of-types"
SOURCE = """
from typing import NamedTuple
import numpy as np
from feedline import DataLoader, Dataset

class Pair(NamedTuple):
    images: np.ndarray
    labels: list[int]

def pairs(samples: list[tuple[np.ndarray, int]]) -> Pair:
    return Pair(np.stack([image for image, _ in samples]), [label for _, label in samples])

class Images(Dataset[tuple[np.ndarray, int]]):
    def __len__(self) -> int: return 4
    def __getitem__(self, i: int) -> tuple[np.ndarray, int]: return np.zeros(2), i

loader = DataLoader(Images(), batch_size=2, collate_fn=pairs)
for batch in loader:
    reveal_type(batch)
for anything in DataLoader(Images(), batch_size=2):
    reveal_type(anything)
reveal_type(loader.batch_size)
loader.state_dict().no_such_thing
DataLoader(Images(), 2, False, None, None, 0, pairs, True)
"""


def test_a_batch_is_what_collate_fn_returns(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "uses.py").write_text(SOURCE)
    # In a process of its own: it takes 190 MB and does not give them back, and every later fork would copy them.
    # What it finds out about NumPy and feedline is kept for the next run: that takes it eight seconds.
    command = [sys.executable, "-m", "mypy", "uses.py", "--cache-dir", str(KEPT), "--no-error-summary"]
    text = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True).stdout
    said = [line.split(": ", 2)[2] for line in text.splitlines() if "uses.py" in line]
    assert 'Revealed type is "uses.Pair"' in said[0] or "tuple[" in said[0]
    assert 'Revealed type is "Any"' in said[1]
    assert "int | None" in said[2]
    assert "no_such_thing" in said[3]
    assert "Too many positional arguments" in said[4]
