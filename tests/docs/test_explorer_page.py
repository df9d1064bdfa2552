"""The page of the docs about the explorer, and what its benchmark has measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def test_the_simulation_is_within_a_tenth_of_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from measured_simulation import apart

    found = apart(json.loads((DOCS / "measured" / "simulation.json").read_text(encoding="utf-8")))
    assert len(found) >= 12
    assert {name: off for name, off in found.items() if abs(off) > 0.1} == {}
    sys.modules.pop("measured_simulation")
