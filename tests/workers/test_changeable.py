"""What a dataset shares with the process that made it is found, wherever it lies; what it has for itself is not."""

from __future__ import annotations

import ctypes
import mmap
import multiprocessing
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.managers import ValueProxy
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import told_elsewhere as elsewhere

from feedline import ArrayDataset, DataLoader, SharedList, Subset
from feedline.loader import _job
from feedline.workers.changeable import changeable

EPOCH = multiprocessing.Value("i", 0)
PLAIN = np.arange(3)
SEVENTY_SEVEN = ctypes.c_int * 77


class Holds:
    def __init__(self, thing: Any) -> None:
        self.thing = thing

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return index


def found(dataset: Any, **others: Any) -> str | None:
    return changeable(replace(_job(DataLoader(np.arange(3)).options), dataset=dataset, **others))


def unwritable(array: Any) -> Any:
    array.flags.writeable = False
    return array


def defaulting(event: Any) -> Any:
    return lambda *, default=event: default.is_set()


THINGS: dict[str, Callable[[], Any]] = {
    "Value": lambda: multiprocessing.Value("d", 0.0),
    "RawValue": lambda: multiprocessing.RawValue("i", 0),
    "Array": lambda: multiprocessing.Array("i", 3),
    "Event": multiprocessing.Event,
    "Lock": multiprocessing.Lock,
    "Queue": multiprocessing.SimpleQueue,
    "proxy": lambda: ValueProxy.__new__(ValueProxy),
    "an array on a RawArray": lambda: np.frombuffer(multiprocessing.RawArray("i", 3), np.int32),
    "a view on one": lambda: np.frombuffer(multiprocessing.RawArray("i", 4), np.int32).reshape(2, 2)[1:],
    "ctypes": lambda: SEVENTY_SEVEN(),
    "an array on a class of ctypes that others know, too": lambda: np.frombuffer(
        multiprocessing.RawArray("i", 77), np.int32
    ),
    "an array that this process lets nobody write": lambda: unwritable(np.frombuffer(mmap.mmap(-1, 100), np.uint8)),
    "a mapping": lambda: mmap.mmap(-1, 100),
    "an array on one": lambda: np.frombuffer(mmap.mmap(-1, 100), np.uint8),
    "a memoryview": lambda: memoryview(mmap.mmap(-1, 100)),
    "in a list in a dict": lambda: {"settings": [1, {"epoch": multiprocessing.Value("i", 0)}]},
    "in a function": lambda: partial(print, multiprocessing.Event()),
    "a default of a function": lambda: defaulting(multiprocessing.Event()),
}


@pytest.mark.parametrize("name", THINGS)
def test_what_is_shared_is_found(name: str) -> None:
    thing = THINGS[name]()
    assert (found(Holds(thing)) or "").startswith(("dataset.thing", "a default of"))
    assert found(Subset(Holds(thing), [0])) is not None


def test_shared_memory_and_files_that_can_be_written(tmp_path: Path) -> None:
    shared = SharedMemory(create=True, size=64)
    array = np.ndarray((8,), np.int64, shared.buf)
    file = tmp_path / "numbers"
    np.arange(5).tofile(file)
    assert found(Holds(shared))
    assert found(Holds(array))
    assert found(Holds(np.memmap(file, np.int64, "r+")))
    assert found(Holds(np.memmap(file, np.int64, "r+")[2:]))
    assert found(Holds(np.memmap(file, np.int64, "r"))) is None
    assert found(Holds(np.memmap(file, np.int64, "c"))) is None
    assert found(Holds(np.asarray(np.memmap(file, np.int64, "c"))[1:])) is None
    del array
    shared.close()
    shared.unlink()


class Named(Holds):
    def __getitem__(self, index: int) -> int:
        return index + EPOCH.value


class NamedFarther(Holds):
    def __getitem__(self, index: int) -> int:
        return index + epoch_now()


class NamesPlain(Holds):
    def __getitem__(self, index: int) -> int:
        return index + int(PLAIN[0])


def epoch_now() -> int:
    return EPOCH.value


class AsProperty(Holds):
    @property
    def epoch(self) -> int:
        return (lambda: EPOCH.value)()


class OfClass(Holds):
    shared = multiprocessing.Value("i", 0)


@pytest.mark.parametrize("kind", [Named, NamedFarther, AsProperty, OfClass])
def test_what_its_methods_name_in_their_module_is_found(kind: type[Holds]) -> None:
    assert found(kind(None)) in ("EPOCH", "dataset.shared")


class FromElsewhere(Holds):
    def __getitem__(self, index: int) -> int:
        return elsewhere.TOLD_EPOCH.value


class ImportedWhenNeeded(Holds):
    def __getitem__(self, index: int) -> int:
        import told_elsewhere

        return told_elsewhere.TOLD_EPOCH.value


class ByItsFunction(Holds):
    def __getitem__(self, index: int) -> int:
        return elsewhere.told_epoch()


class ByAClass(Holds):
    def __getitem__(self, index: int) -> int:
        return elsewhere.MoreSettings.epoch.value


class ByAnObject(Holds):
    def __getitem__(self, index: int) -> int:
        return elsewhere.Reader().epoch()


class NotThat(Holds):
    def __getitem__(self, index: int) -> int:
        return elsewhere.plain(index) + elsewhere.NamesItself().number()


@pytest.mark.parametrize("kind", [FromElsewhere, ImportedWhenNeeded, ByItsFunction, ByAClass, ByAnObject])
def test_what_its_methods_name_in_another_module_is_found(kind: type[Holds]) -> None:
    assert (found(kind(None)) or "").lower().endswith("epoch")


def test_a_method_may_know_it_from_the_function_its_class_is_made_in() -> None:
    epoch = multiprocessing.Value("i", 0)

    class Local(Holds):
        def __getitem__(self, index: int) -> int:
            return epoch.value

    assert (found(Local(None)) or "").endswith("'s variable epoch")


def test_also_in_collate_fn_and_worker_init_fn() -> None:
    event = multiprocessing.Event()
    assert found(Holds(0), collate_fn=lambda batch: event.is_set()) == "collate_fn's variable event"
    assert found(Holds(0), worker_init_fn=lambda number: EPOCH.value) == "EPOCH"


def test_what_is_ones_own_is_none() -> None:
    plain: list[Any] = [
        ArrayDataset(np.arange(6), np.ones((6, 2))),
        Subset(ArrayDataset(np.arange(6)[::2]), [0, 1]),
        SharedList(["a", "b"]),
        Holds(np.frombuffer(bytearray(16), np.uint8)),
        Holds(np.frombuffer(b"sixteen bytes...", np.uint8)),
        Holds([memoryview(b"abc"), {"a": 1}, print, multiprocessing.get_context("fork")]),
        NamesPlain(lambda: PLAIN),
        NotThat(None),
    ]
    assert [found(dataset) for dataset in plain] == [None] * len(plain)
