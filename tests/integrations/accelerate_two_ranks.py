"""Launched by test_accelerate as two processes: trains with torch's loader and ours, and tells losses and indices."""

from __future__ import annotations

import sys

from accelerate import PartialState
from test_accelerate import train
from training import feedlines, report, torchs, torchs_engine_forbidden

from feedline.torch import with_feedline


def main(folder: str) -> None:
    results = [train(torchs)]
    with torchs_engine_forbidden():
        results += [train(feedlines, with_feedline), train(feedlines, with_feedline, num_workers=2)]
    assert PartialState().backend == "gloo"
    report(folder, PartialState().process_index, results)


if __name__ == "__main__":
    main(sys.argv[1])
