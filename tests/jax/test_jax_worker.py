"""A worker of JAX's front keeps the memory that samples have freed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax_datasets import Faults
from jax_processes import in_jax
from test_jax_loader import jax_loader, values

from feedline.jax import worker


@in_jax()
def test_memory_that_a_sample_has_freed_is_not_cleared_by_the_system_again() -> None:
    with jax_loader(Faults(), 1, num_workers=1) as loader:
        faults = [batch[0] for batch in values(loader)]
    pages = Faults.BYTES // 4096
    assert faults[0] >= pages // 2, "this sample touches new memory, so the test can see it"
    assert max(faults[1:]) < pages // 2


def test_without_mallopt_nothing_is_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    info: Any = None
    monkeypatch.setattr(worker.ctypes, "CDLL", lambda name: np)  # a library without such a function
    worker.enter_worker(info)
