"""What an editor, or mypy, knows of a loader's batches. Nobody runs this file: mypy reads it in `make lint`.

An `ignore` that is not needed is an error there, too: so the last two lines are known to be wrong.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from typing_extensions import assert_type

from feedline import DataLoader, Dataset


class Pair(NamedTuple):
    images: np.ndarray
    labels: list[int]


def pairs(samples: list[tuple[np.ndarray, int]]) -> Pair:
    return Pair(np.stack([image for image, _ in samples]), [label for _, label in samples])


class Images(Dataset[tuple[np.ndarray, int]]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
        return np.zeros(2), i


loader = DataLoader(Images(), batch_size=2, collate_fn=pairs)
for batch in loader:
    assert_type(batch, Pair)
for anything in DataLoader(Images(), batch_size=2):
    assert_type(anything, Any)
assert_type(loader.batch_size, "int | None")
loader.state_dict().no_such_thing  # type: ignore[attr-defined]
DataLoader(Images(), 2, False, None, None, 0, pairs, True)  # type: ignore[call-arg]
