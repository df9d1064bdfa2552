"""What somebody who has just installed feedline does first; `make release-check` runs it where nothing else is.

Takes: nothing. Gives: a line, or an error. Needs only what `pip install feedline` installs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import feedline
from feedline import ArrayDataset, DataLoader

KINDS: list[dict[str, object]] = [
    {},
    {"num_workers": 2, "workers": "thread"},
    {"num_workers": 2, "multiprocessing_context": "fork"},
    {"num_workers": 2, "multiprocessing_context": "spawn"},
]


def main() -> None:
    package = Path(feedline.__file__).parent
    assert "site-packages" in package.parts, f"this is the checkout, not what was installed: {package}"
    assert (package / "py.typed").exists()
    assert not {"torch", "jax", "rich", "tqdm"} & sys.modules.keys()
    data = ArrayDataset(x=np.arange(20.0), y=np.arange(20))
    epochs = []
    for kind in KINDS:
        with DataLoader(data, batch_size=6, shuffle=True, seed=1, **kind) as loader:
            epochs.append([batch["y"].tolist() for batch in loader.progress(str(kind or "no workers"))])
            assert loader.stats().epoch.samples == 20
    assert all(epoch == epochs[0] for epoch in epochs)
    assert sorted(index for batch in epochs[0] for index in batch) == list(range(20))
    first = DataLoader(data, batch_size=6, shuffle=True, seed=1)
    next(iter(first))
    again = DataLoader(data, batch_size=6, shuffle=True, num_workers=1)
    again.load_state_dict(first.state_dict())
    assert [batch["y"].tolist() for batch in again] == epochs[0][1:]
    report = Path("run.html")
    with first.report(report):
        list(first)
    assert "<svg" in report.read_text(encoding="utf-8")
    print(f"feedline {feedline.__version__} on Python {sys.version.split()[0]} works")


if __name__ == "__main__":  # spawned workers import it again
    main()
