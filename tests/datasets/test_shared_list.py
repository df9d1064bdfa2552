"""A SharedList is the list it was made of, in two arrays, and stays shared when a forked worker reads it."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import feedline.datasets.shared_list
from feedline.datasets import ConcatDataset, Subset, read_samples
from feedline.datasets.shared_list import SharedList

RECORDS = st.lists(
    st.none() | st.text() | st.binary() | st.tuples(st.integers(), st.floats(allow_nan=False)) | st.just({})
)


@given(RECORDS, st.data())
def test_it_is_the_list_it_was_made_of(records: list[Any], data: st.DataObject) -> None:
    packed = SharedList(iter(records))
    assert len(packed) == len(records)
    assert list(packed) == records
    assert list(reversed(packed)) == records[::-1]
    every = range(-len(records), len(records))
    assert [packed[i] for i in every] == [records[i] for i in every]
    piece = data.draw(st.slices(len(records)))
    assert packed[piece] == records[piece]
    asked = data.draw(st.lists(st.sampled_from(every), max_size=9)) if records else []
    assert packed.__getitems__(asked) == read_samples(packed, asked) == [records[i] for i in asked]
    assert list(pickle.loads(pickle.dumps(packed))) == records
    for bad in (len(records), -len(records) - 1):
        with pytest.raises(IndexError, match=f"index {bad} is outside this SharedList of length {len(records)}"):
            packed[bad]


def test_every_read_gives_a_copy() -> None:
    packed = SharedList([{"label": 1}])
    packed[0]["label"] = 2
    assert packed[0] == {"label": 1}


def test_it_takes_numpy_indices_and_works_in_other_datasets() -> None:
    packed = SharedList("abcd")
    assert packed[np.int64(-1)] == "d"
    assert list(ConcatDataset([Subset(packed, [3, 1]), packed])) == ["d", "b", *"abcd"]


def test_both_arrays_travel_out_of_band() -> None:
    packed = SharedList(f"images/{i}.jpg" for i in range(10_000))
    buffers: list[pickle.PickleBuffer] = []
    body = pickle.dumps(packed, protocol=5, buffer_callback=buffers.append)
    assert len(body) < 1_000
    assert sum(buffer.raw().nbytes for buffer in buffers) == packed.nbytes
    again = pickle.loads(body, buffers=[bytes(buffer) for buffer in buffers])
    assert (len(again), again[9_999]) == (10_000, "images/9999.jpg")
    assert repr(again) == f"SharedList(10000 records, {packed.nbytes} bytes)"


def test_a_record_that_cannot_be_pickled_is_named() -> None:
    with pytest.raises(TypeError, match=r"records\[2\] \(lock\) cannot be pickled.*dumps=cloudpickle.dumps"):
        SharedList([1, 2, threading.Lock()])

    class Odd:
        def __reduce__(self) -> Any:
            raise RuntimeError("odd")

    with pytest.raises(TypeError, match=r"records\[0\] \(Odd\) cannot be pickled: odd"):
        SharedList([Odd()])


def test_other_ways_to_turn_records_into_bytes() -> None:
    packed = SharedList([lambda: 1, lambda: 2], dumps=cloudpickle.dumps, loads=cloudpickle.loads)
    assert pickle.loads(pickle.dumps(packed))[1]() == 2
    assert SharedList([b"ab", b""], dumps=bytes, loads=bytes)[:] == [b"ab", b""]


def test_an_index_error_inside_loads_is_not_taken_for_a_bad_index() -> None:
    def loads(data: Any) -> Any:
        raise IndexError("from loads")

    with pytest.raises(IndexError, match="from loads"):
        SharedList([1], loads=loads)[0]


def test_building_needs_little_more_than_the_result() -> None:
    tracemalloc.start()
    packed = SharedList("x" * 1_000 for _ in range(20_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert packed.nbytes > 20_000_000
    assert peak < 1.3 * packed.nbytes


GROWTH = """
import gc, os, sys
from feedline.datasets.shared_list import SharedList

def private():
    with open("/proc/self/smaps_rollup") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith("Private_"))

def make():
    return ({"path": f"train/{i:07}.jpg", "label": i % 1000, "size": (i, i + 1)} for i in range(100_000))

def growth_of_a_child_reading(records):
    gc.collect()
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        before = private()
        for _ in range(2):
            for index in range(len(records)):
                record = records[index]
        os.write(write_end, str(private() - before).encode())
        os._exit(0)
    os.close(write_end)
    grown = int(os.read(read_end, 100))
    assert os.waitpid(child, 0)[1] == 0
    return grown

packed = growth_of_a_child_reading(SharedList(make()))
print(packed, growth_of_a_child_reading(list(make())))
"""


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="needs Linux's account of private memory")
def test_a_forked_reader_does_not_grow() -> None:
    source = str(Path(feedline.datasets.shared_list.__file__).parents[1])
    # A process of its own, with one thread: forking the test run itself would measure the test run.
    env = {**os.environ, "PYTHONPATH": source, "OPENBLAS_NUM_THREADS": "1"}
    out = subprocess.run(
        [sys.executable, "-c", GROWTH], env=env, capture_output=True, text=True, timeout=120, check=True
    )
    packed, plain = map(int, out.stdout.split())
    assert plain > 8 * max(packed, 1), f"private kB grown: SharedList {packed}, list {plain}"
