"""Grain, by its Dataset interface: https://google-grain.readthedocs.io/en/latest/tutorials/dataset_basic_tutorial.html

No reading threads for what is in memory (so says ReadOptions' own documentation), threads for what waits or copies
without Python's lock, processes (`mp_prefetch`) for what computes; shards as ArrayRecord files, as it recommends.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from peers.measure import Batches, seconds_to_go_on
from peers.workloads import (
    RESUME_BATCH,
    Large,
    Numbers,
    Pictures,
    Texts,
    Waiting,
    columns,
    converted,
    folder_of_pictures,
    padded,
    sharded,
)

SHARDS = 4


class Rows:
    """Rows of arrays: Grain asks a source for one index at a time."""

    def __init__(self) -> None:
        self.features, self.labels = columns()

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, Any]:
        return self.features[index], self.labels[index]


def _write_records(folder: str) -> None:
    Path(folder).mkdir()
    samples = list(sharded())
    for shard in range(SHARDS):
        # One record a group: as its documentation asks for where records are read at random.
        writer = ArrayRecordWriter(f"{folder}/part-{shard}.array_record", "group_size:1")
        for array, label in samples[shard * 1000 : (shard + 1) * 1000]:
            writer.write(bytes([label]) + array.tobytes())
        writer.close()


def _parsed(record: bytes) -> tuple[np.ndarray, int]:
    return np.frombuffer(record, np.uint8, offset=1).reshape(3, 90, 90), record[0]


def _arrays() -> grain.MapDataset[Any]:
    folder = converted("array-record", _write_records)
    source = grain.sources.ArrayRecordDataSource(sorted(map(str, Path(folder).glob("*"))))
    return grain.MapDataset.source(source).repeat().map(_parsed)


def _shuffled(source: Any) -> grain.MapDataset[Any]:
    return grain.MapDataset.source(source).shuffle(seed=0).repeat()


def batches(workload: str) -> Batches:
    in_memory = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
    if workload == "memory":
        return iter(_shuffled(Rows()).batch(256).to_iter_dataset(in_memory))
    if workload == "text":
        return iter(_shuffled(Texts()).batch(64, batch_fn=padded).to_iter_dataset(in_memory))
    if workload == "large":
        two = grain.ReadOptions(num_threads=2, prefetch_buffer_size=4)  # of batches
        return iter(_shuffled(Large()).batch(64).to_iter_dataset(two))
    if workload.startswith("wait"):
        threads = int(workload[5:])
        reading = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
        return iter(_shuffled(Waiting()).to_iter_dataset(reading).batch(32, drop_remainder=True))
    return iter(_in_processes(workload))


def _in_processes(workload: str) -> grain.IterDataset[Any]:
    data: grain.MapDataset[Any]
    if workload == "text-2":
        data = _shuffled(Texts()).batch(64, batch_fn=padded)
    elif workload == "shards":
        data = _arrays().batch(64)
    else:
        data = _shuffled(Pictures(folder_of_pictures())).batch(32)
    # Batches are what is read ahead here, and processes are what works: one thread in each of them.
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    return data.to_iter_dataset(reading).mp_prefetch(grain.MultiprocessingOptions(num_workers=2))


class Resumable:
    """An iterator and its state, by torch's names."""

    def __init__(self) -> None:
        in_memory = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
        self.iterator = iter(_shuffled(Numbers()).batch(RESUME_BATCH).to_iter_dataset(in_memory))
        self.state_dict, self.load_state_dict = self.iterator.get_state, self.iterator.set_state

    def __iter__(self) -> Iterator[Any]:
        return self.iterator


def resume() -> Iterator[float]:
    return seconds_to_go_on(Resumable)
