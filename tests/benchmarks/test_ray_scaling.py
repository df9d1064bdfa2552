"""The simulation of many CPUs on a Ray cluster: within the limits on paper, and near them."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def scaling() -> Iterator[ModuleType]:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    yield importlib.import_module("ray_scaling")
    sys.path.remove(str(ROOT / "benchmarks"))


def test_it_is_as_fast_as_its_slowest_part(scaling):
    for setting in scaling.SETTINGS:
        shared = min(rate for name, rate in setting.limits.items() if name != "a worker")
        for cpus in (1, 16, 256):
            most = min(cpus * setting.limits["a worker"], shared)
            assert 0.9 * most <= scaling.batches_per_second(setting, cpus) <= 1.03 * most  # times are drawn


def test_the_kept_numbers_are_what_it_gives_now(scaling):
    kept = json.loads((ROOT / "docs/measured/ray_scaling.json").read_text())
    for one, setting in zip(kept, scaling.SETTINGS, strict=True):
        assert one["limits"] == setting.limits
        found = setting.batch_size * scaling.batches_per_second(setting, 8, 2160)
        assert one["samples_per_second"][3] == pytest.approx(found, rel=1e-3)
