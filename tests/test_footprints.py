"""What reading leaves behind, and who draws past the modules' functions: seen where a dataset has it."""

from __future__ import annotations

import array
import ctypes
import io
import random
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import drawing_elsewhere
import numpy as np
import pytest

from feedline import DataLoader, Dataset
from feedline.loader import _job
from feedline.workers.carried import not_shared
from feedline.workers.draws import MOST, Draws
from feedline.workers.footprints import MANY, changed, footprint
from feedline.workers.job import Job

_registry: dict[str, Any] = {}


class Slotted:
    __slots__ = ("latest", "never")

    def __init__(self) -> None:
        self.latest: Any = None


class Holding(Dataset[Any]):
    """With whatever it is given."""

    shared: Any = None

    def __init__(self, given: Any = None) -> None:
        self.given = given

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        return index


def job_of(dataset: Any) -> Job:
    return _job(DataLoader(dataset).options)


def found(dataset: Any, act: Callable[[], object]) -> str:
    job = job_of(dataset)
    before = footprint(job)
    assert changed(before, footprint(job)) == "", "looking changes nothing"
    act()
    return changed(before, footprint(job))


class Tuned(dict[str, Any]):
    """A container of the user's, with attributes."""


def _counter() -> Callable[[], int]:
    count = 0

    def up() -> int:
        nonlocal count
        count += 1
        return count

    return up


def _set(value: Any) -> None:
    value.latest = 1


def _first(value: Any, part: Any) -> None:
    value[0] = part


@pytest.mark.parametrize(
    ("given", "act", "path"),
    [
        ({}, lambda given: given.update(a=1), "dataset.given"),
        ({"a": 0}, lambda given: given.update(a=1), "dataset.given['a']"),
        ({"a": 0}, lambda given: given.update({"a": 0}), ""),
        ({(1, 2): None}, lambda given: given.update({(1, 2): 1}), "dataset.given[…0]"),
        ({1, 2}, lambda given: given.add(3), "dataset.given"),
        ([1], lambda given: given.append(2), "dataset.given"),
        ([1], lambda given: _first(given, 2), "dataset.given[0]"),
        ([0] * (MANY + 1), lambda given: given.append(2), "dataset.given"),
        (deque([1]), lambda given: given.append(2), "dataset.given"),
        (
            [{"a": (Slotted(),)}],
            lambda given: setattr(given[0]["a"][0], "latest", 1),
            "dataset.given[0]['a'][0].latest",
        ),
        (Slotted(), lambda given: setattr(given, "never", 1), "dataset.given.never"),
        (Tuned(a=0), lambda given: setattr(given, "latest", 1), "dataset.given.latest"),
        ([Slotted() for _ in range(300)], lambda given: _set(given[299]), "dataset.given[299].latest"),
        (bytearray(2), lambda given: _first(given, 1), "dataset.given"),
        (array.array("i", [0]), lambda given: _first(given, 1), "dataset.given"),
        (ctypes.c_int(0), lambda given: setattr(given, "value", 1), "dataset.given"),
        (np.zeros(3), lambda given: _first(given, 1), "dataset.given"),
        (np.zeros((300, 500)), lambda given: given.fill(1), "dataset.given"),
        (np.zeros((30, 50)).T, lambda given: given.fill(1), "dataset.given"),
        (_counter(), lambda given: given(), "dataset.given's variable count"),
        (_counter(), lambda given: setattr(given, "latest", 1), "dataset.given.latest"),
        (threading.local(), lambda given: setattr(given, "latest", 1), ""),
    ],
)
def test_what_is_changed_in_place_is_seen(given: Any, act: Callable[[Any], object], path: str) -> None:
    assert found(Holding(given), lambda: act(given)) == path


def test_what_is_taken_away_is_seen() -> None:
    dataset = Holding()
    assert found(dataset, lambda: delattr(dataset, "given")) == "dataset.given"


def test_what_is_set_in_a_class_or_a_module_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found(Holding(), lambda: monkeypatch.setattr(Holding, "shared", 1)) == f"{__name__}.Holding.shared"
    assert found(Holding(), lambda: monkeypatch.setitem(_registry, "a", 1)) == f"{__name__}._registry"
    elsewhere = partial(monkeypatch.setitem, drawing_elsewhere.latest, "index", 1)
    assert found(Holding(), elsewhere) == "drawing_elsewhere.latest", "a module that this one calls"


@pytest.mark.parametrize("file", [io.BytesIO(b"abc"), io.StringIO("abc")])
def test_a_file_in_memory_has_a_place_that_threads_would_share(file: Any) -> None:
    assert not_shared(Holding([file])) == "dataset.given[0]"
    file.close()
    assert not_shared(Holding([file])) == ""


def test_one_of_hundreds_that_is_opened_is_seen() -> None:
    readers = [Slotted() for _ in range(300)]
    with open(__file__) as readers[299].latest:
        assert not_shared(Holding(readers)) == "dataset.given[299].latest"


def drawn(*draws: Callable[[], object]) -> str:
    looked = Draws()
    with looked.watched():
        for draw in draws:
            draw()
    return looked.past()


def test_who_draws_past_the_modules_functions_is_seen() -> None:
    by_name, hidden = random.random, np.random.mtrand._rand
    plain = (lambda: random.random(), lambda: np.random.rand(), lambda: np.random.seed(1), lambda: random.seed(1))
    assert drawn(*plain) == ""
    assert drawn(by_name) == drawn(by_name, *plain) == drawn(*plain, by_name) == "random"
    assert drawn(hidden.rand) == drawn(hidden.rand, *plain) == drawn(*plain, hidden.rand) == "numpy.random"
    assert drawn(*[plain[0]] * (MOST + 1)) == ""


def test_looking_on_changes_no_number() -> None:
    def draw() -> list[Any]:
        random.seed(3)
        np.random.seed(3)
        return [(random.random(), np.random.standard_normal(), random.gauss(0, 1)) for _ in range(MOST)]

    before, kept = draw(), []
    with Draws().watched():
        kept = draw()
    assert kept == before == draw()


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 1, "multiprocessing_context": "fork"}])
def test_samples_that_share_a_generator_while_several_are_read_are_warned_of(options: dict[str, Any]) -> None:
    for read, whose in ((drawing_elsewhere.fetched_by_name, "random's"), (drawing_elsewhere.hidden, "numpy.random's")):
        with pytest.warns(UserWarning, match=f"samples draw from {whose} generator past its functions") as told:
            list(DataLoader(Calling(read), batch_size=4, fetch_threads=2, **options))
        assert len(told) == 1
    list(DataLoader(Calling(drawing_elsewhere.by_the_modules_function), batch_size=4, fetch_threads=2, **options))
    list(DataLoader(Calling(drawing_elsewhere.hidden), batch_size=4, fetch_threads=1, **options))  # one after the other


class Calling(Dataset[Any]):
    def __init__(self, read: Any) -> None:
        self.read = read

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> Any:
        return float(self.read(index))


@pytest.mark.parametrize(
    ("read", "why"),
    [
        (drawing_elsewhere.fetched_by_name, "drawing_elsewhere.fetched draws from the global generator"),
        (drawing_elsewhere.hidden, "samples draw from numpy.random's hidden generator past its functions"),
        (drawing_elsewhere.remembering, "reading samples changes drawing_elsewhere.latest"),
        (drawing_elsewhere.by_the_modules_function, ""),
    ],
)
def test_what_threads_would_share_stays_with_processes(read: Any, why: str) -> None:
    options: dict[str, Any] = {"num_workers": 2, "workers": "auto", "multiprocessing_context": "fork"}
    with DataLoader(Calling(read), batch_size=2, seed=1, **options) as loader:
        assert [b.tolist() for b in loader] == [b.tolist() for b in DataLoader(Calling(read), batch_size=2, seed=1)]
        assert loader.stats().why_kind.startswith(why)
        assert not why or loader.stats().kind == "process"
