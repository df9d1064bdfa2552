"""Hugging Face's `datasets`, imported without torch and without progress bars.

With torch it would be slow to fork, and each of its streams would keep a segment of torch's shared memory open.
"""

from __future__ import annotations

import os

os.environ.setdefault("USE_TORCH", "0")

import datasets
import tqdm

datasets.disable_progress_bars()
tqdm.tqdm.monitor_interval = 0  # no thread that looks after progress bars

__all__ = ["datasets"]
