"""A Hugging Face dataset of numbers: by columns with `from_hf`, and by torch's loader with set_format, as people do it.

40,000 rows of 64 floats and a label, in an Arrow file in chunks of 1,000 rows, shuffled by the loader.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from harness import Case, Samples, Workload, epochs, serve

ROWS, WIDTH, BATCH = 40_000, 64, 128


def data() -> Any:
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    import datasets

    datasets.disable_progress_bars()
    folder = Path(tempfile.gettempdir()) / "feedline-bench-hf"
    if not folder.exists():
        random = np.random.default_rng(0)
        values = datasets.Features(
            {"x": datasets.List(datasets.Value("float32"), length=WIDTH), "y": datasets.Value("int64")}
        )
        made = datasets.Dataset.from_dict({"x": random.random((ROWS, WIDTH)), "y": random.integers(0, 9, ROWS)}, values)
        unfinished = tempfile.mkdtemp()
        made.save_to_disk(unfinished)
        os.rename(unfinished, folder)
    return datasets.load_from_disk(folder)


class Xs:
    def __init__(self, loader: Any) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        return (batch["x"] for batch in self.loader)


def with_feedline(workers: int) -> Samples:
    from feedline import DataLoader
    from feedline.sources import from_hf

    options: dict[str, Any] = {"shuffle": True, "num_workers": workers, "persistent_workers": workers > 0}
    with DataLoader(from_hf(data()), BATCH, **options) as loader:
        yield from epochs(Xs(loader), ROWS)


def with_torch(workers: int) -> Samples:
    from torch.utils.data import DataLoader

    formatted = data().with_format("torch")
    loader = DataLoader(formatted, BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)
    yield from epochs(Xs(loader), ROWS)


WORKLOAD = Workload(
    name="hugging_face",
    metrics={"samples/s": "more"},
    cases=[
        Case("no workers", {"workers": 0}, targets={"torch": 2}),
        Case("2 workers", {"workers": 2}, targets={"torch": 2}),
    ],
    sides={"feedline": with_feedline, "torch": with_torch},
    torch_in_all=True,  # `datasets` imports it
    repeats=3,
)

if __name__ == "__main__":
    serve(WORKLOAD)
