"""What the core asks torch for: in one place, and nothing where torch is not there or only half."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import feedline
from feedline.machine import loaded_torch

FRONTS = ("torch", "diagnose")
"""Which may know torch, or are about programs that use it."""


class HalfImported:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError("partially initialized module 'torch'")


class WithoutDevices:
    def is_initialized(self) -> bool:
        raise AssertionError("Torch not compiled with CUDA enabled")


def test_only_one_file_of_the_core_looks_for_torch() -> None:
    root = Path(feedline.__file__).parent
    core = [file for file in root.rglob("*.py") if file.relative_to(root).parts[0] not in FRONTS]
    looking = [file for file in core if re.search(r"""sys\.modules(\.get\(|\[)["']torch""", file.read_text())]
    assert [str(file.relative_to(root)) for file in looking] == ["machine/loaded_torch.py"]


@pytest.mark.parametrize("torch", [None, HalfImported(), SimpleNamespace(cuda=WithoutDevices())])
def test_where_it_is_not_there_or_only_half_nothing_is_said(torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    if torch is not None:
        monkeypatch.setitem(sys.modules, "torch", torch)
    assert loaded_torch.default_generator() is None
    assert loaded_torch.ranks() is None
    assert loaded_torch.has_begun_cuda() is False
    loaded_torch.set_num_threads(1)


def test_memory_of_devices_that_are_there_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def device(there: bool) -> Any:
        return SimpleNamespace(is_available=lambda: there, empty_cache=lambda: given.append(there))

    given: list[bool] = []
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=device(True), mps=device(False)))
    loaded_torch.give_back_memory()
    assert given == [True]
