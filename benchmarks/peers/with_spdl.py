"""SPDL: pipelines of functions in threads. https://facebookresearch.github.io/spdl/latest/getting_started/pytorch.html

Batches of indices (or paths) come from the source, and one stage turns each into a batch, in as many threads as there
are cores; where samples wait, that stage takes single samples, as its guide to splitting reading from computing says.
What is ready first comes first: that is its default, and the quicker way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import spdl.io
from spdl.pipeline import PipelineBuilder

from peers.measure import Batches
from peers.workloads import CORES, SIDE, Large, Pictures, Texts, Waiting, columns, folder_of_pictures, padded


def _indices(length: int, batch: int) -> Iterator[np.ndarray]:
    """Shuffled, epoch after epoch."""
    random = np.random.default_rng(0)
    while True:
        order = random.permutation(length)
        for start in range(0, length - batch + 1, batch):
            yield order[start : start + batch]


def _stacked(samples: list[Any]) -> Any:
    if isinstance(samples[0], tuple):
        return tuple(np.stack(column) for column in zip(*samples, strict=True))
    return np.stack(samples)


def _endless(builder: PipelineBuilder[Any, Any], threads: int) -> Batches:
    pipeline = builder.add_sink(3).build(num_threads=threads)
    with pipeline.auto_stop():
        yield from pipeline.get_iterator(timeout=60)


def _by_batch(make: Any, length: int, batch: int, threads: int) -> Batches:
    builder = PipelineBuilder().add_source(_indices(length, batch))
    return _endless(builder.pipe(make, concurrency=threads), threads)


def _waiting(threads: int) -> Batches:
    data = Waiting()
    singly = (index for batch in _indices(len(data), 32) for index in batch)
    builder = PipelineBuilder().add_source(singly).pipe(data.__getitem__, concurrency=threads)
    return _endless(builder.aggregate(32).pipe(_stacked), threads + 1)


def batches(workload: str) -> Batches:
    if workload == "memory":
        features, labels = columns()
        return _by_batch(lambda rows: (features[rows], labels[rows]), len(labels), 256, 1)
    if workload.startswith("text"):
        texts = Texts()
        threads = CORES if workload == "text-2" else 1
        return _by_batch(lambda rows: padded([texts[row] for row in rows]), len(texts), 64, threads)
    if workload.startswith("wait"):
        return _waiting(int(workload[5:]))
    if workload == "decoder":
        paths = 2 * sorted(map(str, folder_of_pictures().glob("*.jpg")))
        return _by_batch(lambda rows: _decoded([paths[row] for row in rows]), len(paths), 32, CORES)
    data: Any = Large() if workload == "large" else Pictures(folder_of_pictures())
    batch = 64 if workload == "large" else 32
    return _by_batch(lambda rows: _stacked([data[row] for row in rows]), len(data), batch, CORES)


def _decoded(paths: list[str]) -> np.ndarray:
    return spdl.io.to_numpy(spdl.io.load_image_batch(paths, width=SIDE, height=SIDE, pix_fmt="rgb24"))


def resume() -> Iterator[float]:
    raise NotImplementedError("SPDL's pipelines have no state")
