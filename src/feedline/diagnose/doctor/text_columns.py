"""The dataset's own column of labels, if one of its attributes looks like one.

Takes: a dataset and its length. Gives: a `Column`, or None.
Promises: runs no user code; looks only at attributes of the dataset itself, by their usual names.
Not its job: labels as `__getitem__` gives them (labels).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from feedline.datasets.labels import classes_of
from feedline.diagnose.doctor.evidence import Column
from feedline.supervise.walking import plain_attribute

NAMES = ("labels", "targets", "label", "target", "y", "ys", "classes_of_samples", "_labels", "_targets")
MOST_CLASSES = 10_000
LONGEST = 5_000_000
"""The most labels counted: a list of that many takes half a second."""


def column_of(dataset: Any, length: int | None) -> Column | None:
    """The column of labels.

    >>> class Data:
    ...     def __init__(self): self.labels = [0, 0, 1]
    >>> column_of(Data(), 3)
    Column(path='dataset.labels', counts={0: 2, 1: 1}, changes=1)
    """
    for name in NAMES:
        value = plain_attribute(dataset, name)
        if value is None or not _fits(value, length):
            continue
        classes = classes_of(value)
        if len(classes.names) > min(MOST_CLASSES, max(2, len(classes.codes) // 2)):
            continue
        counts = dict(zip(classes.names, classes.sizes.tolist(), strict=True))
        return Column(f"dataset.{name}", counts, int((np.diff(classes.codes) != 0).sum()))
    return None


def _fits(value: Any, length: int | None) -> bool:
    if type(value) in (list, tuple):
        plain = all(type(each) in (int, str, bool) for each in value[:64])
        return plain and 1 < len(value) == length and len(value) <= LONGEST
    shape, dtype = getattr(value, "shape", None), str(getattr(value, "dtype", ""))
    whole = any(word in dtype for word in ("int", "bool", "U", "S"))
    return shape is not None and len(shape) == 1 and 1 < shape[0] == length and shape[0] <= LONGEST and whole
