"""A Hugging Face dataset, read by columns and as a stream.

    python examples/hugging_face.py

The dataset is made here; `load_dataset("…", split="train")` gives the same kind.
"""

from __future__ import annotations

import sys
import tempfile

import datasets
import numpy as np
import torch

from feedline.sources import from_hf
from feedline.torch import DataLoader

ROWS, CLASSES = 3_000, 3


def made() -> datasets.Dataset:
    random = np.random.default_rng(0)
    labels = random.integers(0, CLASSES, ROWS)
    features = datasets.Features(
        {
            "x": datasets.List(datasets.Value("float32"), length=16),
            "label": datasets.ClassLabel(names=["cat", "dog", "bird"]),
        }
    )
    x = random.normal(labels[:, None], 1, (ROWS, 16))
    return datasets.Dataset.from_dict({"x": x, "label": labels}, features=features)


def main() -> int:
    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        made().save_to_disk(folder)
        parts = datasets.load_from_disk(folder).train_test_split(0.2, seed=0)  # rows by indices: nothing is copied
        train, test = from_hf(parts["train"]), from_hf(parts["test"].to_iterable_dataset(num_shards=2))
        torch.manual_seed(0)
        model = torch.nn.Linear(16, CLASSES)
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        with DataLoader(train, batch_size=100, shuffle=True) as loader:
            for _ in range(3):
                for batch in loader:
                    optimizer.zero_grad()
                    torch.nn.functional.cross_entropy(model(batch["x"]), batch["label"]).backward()
                    optimizer.step()
        right = seen = 0
        with DataLoader(test, batch_size=100, num_workers=2, workers="thread") as loader:
            for batch in loader:
                x = torch.stack(batch["x"], 1) if isinstance(batch["x"], list) else batch["x"]
                right += int((model(x.float()).argmax(1) == batch["label"]).sum())
                seen += len(batch["label"])
        print(f"accuracy {right / seen:.2f} on {seen} others, streamed; each row is in one of the two: ", end="")
        whole = seen + len(train) == ROWS
        print("yes" if whole else "NO")
        del train, test, parts
    return 0 if whole and right / seen > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
