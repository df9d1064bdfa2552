"""Our workloads, by name: what people want to know when they compare loaders.

Takes: a name, or the words for a user's dataset. Gives: `Workload`: what each side should measure.
Promises: the list can be read without torch. Not its job: the datasets themselves (workload_data).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from feedline.diagnose.bench import workload_data
from feedline.diagnose.bench.bench_subject import WantedLoader
from feedline.errors import OptionError

_DATA = workload_data.__name__


@dataclass(frozen=True)
class Workload:
    """Something to measure, ours or the user's."""

    name: str
    summary: str
    wanted: WantedLoader
    package: str = ""
    """The package that it needs besides torch."""


def _ours(name: str, summary: str, batch_size: int, num_workers: int, **more: str | bool) -> Workload:
    """A workload whose dataset has the same name in workload_data."""
    collate = f"{_DATA}:{more['collate']}" if "collate" in more else None
    target = f"{_DATA}:{name.replace('-', '_')}"
    wanted = WantedLoader(target, batch_size, bool(more.get("shuffle")), collate, num_workers)
    return Workload(name, summary, wanted, str(more.get("package", "")))


WORKLOADS = (
    _ours("in-memory", "500,000 rows of 32 floats, shuffled, batches of 256", 256, 0, shuffle=True),
    _ours("large-samples", "3×224×224 tensors that cost nothing to read, batches of 64", 64, 2),
    _ours("tiny-batches", "8 numbers a batch: the cost of one round trip", 8, 2),
    _ours("augment", "crop, flip and normalise 224×224 pictures with NumPy, batches of 32", 32, 2, shuffle=True),
    _ours("jpeg", "decode and resize 500×375 JPEGs with Pillow, batches of 32", 32, 2, shuffle=True, package="PIL"),
    _ours("text", "sequences of 1 to 512 words, padded by a collate_fn, batches of 64", 64, 2, collate="padded"),
    _ours("latency", "5 ms of waiting for each sample, as from a network, batches of 32", 32, 2),
)
SHORT = ("in-memory", "large-samples", "tiny-batches", "latency")
"""What is run by default: the loader's own cost three times, and a case in which no loader can do better."""


def workload(word: str) -> Workload:
    """One of ours, or the user's own.

    >>> workload("in-memory").wanted.batch_size
    256
    >>> workload("train.py:dataset").wanted.target
    'train.py:dataset'
    >>> workload("in-menory")
    Traceback (most recent call last):
    feedline.errors.OptionError: there is no workload 'in-menory'; there are in-memory, large-samples, tiny-batches, \
augment, jpeg, text and latency; a dataset of yours is named as pkg.module:name or path/to/script.py:name
    """
    for each in WORKLOADS:
        if each.name == word:
            return each
    if not any(sign in word for sign in (":", ".", os.sep)):
        names = [each.name for each in WORKLOADS]
        raise OptionError(
            f"there is no workload {word!r}; there are {', '.join(names[:-1])} and {names[-1]}; a dataset of yours is "
            "named as pkg.module:name or path/to/script.py:name"
        )
    return Workload(word, "", WantedLoader(word))
