"""Functions of another module than the dataset's, which draw past what can be seen of the dataset."""

from __future__ import annotations

from random import random as fetched
from typing import Any

import numpy as np


def fetched_by_name(index: int) -> float:
    return fetched()


def hidden(index: int) -> float:
    return float(np.random.mtrand._rand.random_sample())


def by_the_modules_function(index: int) -> Any:
    return np.random.rand()


def failing(index: int, bad: int) -> Any:
    if index == bad:
        raise ValueError(index)
    return np.random.rand()
