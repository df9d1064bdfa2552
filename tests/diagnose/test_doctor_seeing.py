"""How the doctor sees: samples taken apart, lines met, columns of labels, indices spread."""

from __future__ import annotations

import sys
import threading
from collections import namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from warm_host import host

from feedline.diagnose.doctor.fields import digest, leaves, look_at
from feedline.diagnose.doctor.lines import users_line
from feedline.diagnose.doctor.patient import column_of, spread

Pair = namedtuple("Pair", "image label")


@dataclass
class Boxed:
    boxes: Any
    name: str


@given(st.integers(1, 5000), st.integers(1, 300))
def test_indices_are_spread_over_all(length: int, most: int) -> None:
    chosen = spread(length, most)
    assert len(set(chosen)) == len(chosen) == min(length, most)
    assert length - 1 in chosen
    ascending = [0, *sorted(chosen), length - 1]
    assert max(np.diff(ascending)) <= 2 * -(-length // len(chosen))
    assert spread(length, most) == chosen


def test_samples_of_any_kind_are_taken_apart() -> None:
    sample = {"pair": Pair(np.zeros(3), 7), "boxed": Boxed([[1, 2], [3]], "a"), "tokens": [1] * 99, "none": None}
    assert [(path, look_at(path, value)[1:4]) for path, value in leaves(sample)] == [
        ("['pair'].image", ("array", "float64", (3,))),
        ("['pair'].label", ("number", "int", ())),
        ("['boxed'].boxes", ("list", "list", (2,))),
        ("['boxed'].name", ("text", "str", ())),
        ("['tokens']", ("list", "list", (99,))),
        ("['none']", ("nothing", "None", ())),
    ]
    assert look_at("", object()).kind == "other"
    assert look_at("", np.float32("nan")).nans == 1
    assert look_at("", np.array([1.0, np.inf, -np.inf])).infs == 2


def image(values: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(0).integers(0, values, (3, 40, 40)).astype(dtype)


@pytest.mark.parametrize(
    ("array", "was"),
    [
        (image(256), True),
        ((image(256) / 255 - 0.4) / 0.2, True),
        (image(256).transpose(1, 2, 0), True),
        (image(256)[0], True),
        (image(256, np.uint8), False),
        (image(2), False),  # a mask
        (image(1000), False),
        (image(256)[:, :8, :8], False),
        (image(256).reshape(-1), False),
    ],
)
def test_images_that_were_bytes(array: Any, was: bool) -> None:
    assert look_at("", array).eight_bit is was


def test_digests() -> None:
    sample = {"x": np.arange(6).reshape(2, 3), "y": 1, "z": "a"}
    assert digest(sample) == digest({"x": np.arange(6).reshape(2, 3), "y": 1, "z": "a"})
    others = [{**sample, "x": np.arange(6).reshape(3, 2)}, {**sample, "y": 2}, {**sample, "z": "b"}]
    assert len({digest(each) for each in [sample, *others]}) == 4
    assert digest({"boxes": [np.zeros(4)]}) == digest({"boxes": [np.zeros(4)]}) != digest({"boxes": [np.ones(4)]})
    assert [path for path, _ in leaves([np.zeros(3), 1])] == ["[0]", "[1]"]
    assert digest(object()) == digest(object())


def test_the_innermost_line_that_is_the_users() -> None:
    there, done = threading.Event(), threading.Event()

    def wait() -> None:
        there.set()
        done.wait()

    thread = threading.Thread(target=wait)
    thread.start()
    there.wait()
    try:
        frame = sys._current_frames()[thread.ident]  # type: ignore[index]
        while not (line := users_line(frame)) or line.function != "wait":  # it may not be there yet
            frame = sys._current_frames()[thread.ident]  # type: ignore[index]
    finally:
        done.set()
        thread.join()
    assert line.file == __file__


class Data:
    def __init__(self, **columns: Any) -> None:
        vars(self).update(columns)


@pytest.mark.parametrize(
    ("columns", "found"),
    [
        ({"labels": [0, 1, 1, 0]}, ({0: 2, 1: 2}, 2)),
        ({"targets": np.array(["a", "a", "b", "b"])}, ({"a": 2, "b": 2}, 1)),
        ({"labels": [0, 1, 1]}, None),  # of another length
        ({"labels": [0, 1, 2, 3]}, None),  # all different
        ({"labels": [0.5, 1.5, 0.5, 1.5]}, None),
        ({"labels": np.zeros((4, 2), int)}, None),
        ({"y": None, "other": [0, 1, 1, 0]}, None),
    ],
)
def test_columns_of_labels(columns: dict[str, Any], found: Any) -> None:
    column = column_of(Data(**columns), 4)
    assert (column and (column.counts, column.changes)) == found


def test_a_class_that_is_stood_in_for_is_still_that_class() -> None:
    code = """
import copy, pickle, random
import numpy as np
from feedline.diagnose.doctor.seeding import Seeding
before, plain = np.random.RandomState, random.Random
seeding = Seeding()
seeding.begin("elsewhere")
state = np.random.RandomState(3)
assert seeding.take() == (("numpy.random.RandomState", "3"),)
assert type(state) is before and isinstance(state, np.random.RandomState)
assert issubclass(before, np.random.RandomState)
assert np.random.RandomState.__name__ == "RandomState"
class Mine(random.Random): pass
assert Mine.__mro__[1] is plain and isinstance(Mine(1), random.Random)
assert state.rand() == pickle.loads(pickle.dumps(before(3))).rand()
assert copy.deepcopy(random.Random(5)).random() == plain(5).random()
seeding.begin("elsewhere")
random.Random(), np.random.RandomState(), np.random.RandomState(seed=4)
assert seeding.take() == (("numpy.random.RandomState", "4"),)
"""
    done = host("feedline.cli").run(["-c", code])
    assert (done.returncode, done.stderr) == (0, "")
