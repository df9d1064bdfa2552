"""The grid and the unequal samples: turns within a budget, and from what was measured to pages and picture."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from figures import texts
from kinds import thorough

from feedline.diagnose.plotting import encoded, looks

ROOT = Path(__file__).parents[2]
FOLDERS = [str(ROOT / "docs"), str(ROOT / "benchmarks")]


@pytest.fixture(scope="module")
def of() -> Iterator[SimpleNamespace]:
    """None of these imports torch."""
    sys.path[:0] = FOLDERS
    names = ("grid_turns", "measured_grid", "measured_skewed", "skewed", "stragglers_limit")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    for folder in FOLDERS:
        sys.path.remove(folder)


# --- turns ---


class Side:
    """An epoch takes a fixed time; all sides write down whose turn it was."""

    def __init__(self, name: str, seconds: float, turns: list[str]) -> None:
        self.name, self.seconds, self.turns = name, seconds, turns

    def __call__(self) -> float:
        self.turns.append(self.name)
        return self.seconds


@pytest.mark.parametrize(
    ("seconds", "pairs", "in_a_turn"),
    [(10.0, 3, 1), (0.25, 4, 1), (0.1, 10, 1), (0.04, 15, 1), (0.004, 15, 8)],
    ids=["over the budget", "a few", "more", "at most so many", "short epochs are run several times"],
)
def test_quick_cells_have_many_pairs_and_slow_ones_a_few(of, seconds, pairs, in_a_turn):
    turns: list[str] = []
    sides = {name: Side(name, seconds, turns) for name in ("torch", "feedline")}
    found = of.grid_turns.take_turns(sides, budget=2.001)
    assert {side: len(values) for side, values in found.items()} == {"torch": pairs, "feedline": pairs}
    assert found["torch"] == pytest.approx([seconds] * pairs)
    assert len(turns) == 2 + 2 * pairs * in_a_turn


def test_nobody_is_always_first(of):
    turns: list[str] = []
    of.grid_turns.take_turns({name: Side(name, 1.0, turns) for name in "ab"}, budget=4)
    assert "".join(turns) == "ab" + "ab" + "ba" + "ab"


# --- the grid's page ---


def cell(ratio: float, **changed: Any) -> dict[str, Any]:
    """Three pairs around that ratio."""
    seconds = {"torch": [ratio, 0.9 * ratio, 1.2 * ratio], "feedline": [1.0, 1.0, 1.0]}
    way = {"kind": "text", "batch_size": 1, "batches": 25, "workers": 0, "start": "fork", "persistent": False}
    return {**way, "front": "feedline.torch", "seconds": seconds, "noise": 0.0, "ratio": ratio, **changed}


def grid(*cells: dict[str, Any], quick: bool = False) -> dict[str, Any]:
    facts = {"date": "2026-11-18", "seconds": 9, "quick": quick, "python": "3.11", "numpy": "2", "torch": "2.13"}
    kinds = {"numbers": "5 numbers", "text": "texts"}
    return {**facts, "machine": {"cpu": "a cpu", "cores": 2}, "kinds": kinds, "cells": list(cells)}


def test_the_means_are_geometric_and_by_workers(of):
    facts = grid(cell(0.5), cell(8.0, batches=250), cell(0.96, workers=2), cell(0.96, workers=2, persistent=True))
    page = of.measured_grid.grid_summary(facts)
    assert "| 0 | 2 | 2.00 | 0.50 | 8.00 | 1 | 1 |" in page
    assert "| 2 | 2 | 0.96 | 0.96 | 0.96 | 2 | 0 |" in page
    assert "| **all** | 4 |" in page
    assert "quick" not in page
    assert "?" not in page
    assert "a look, not a result" in of.measured_grid.grid_summary(grid(cell(1.0), quick=True))


def test_every_cell_in_which_torch_is_faster_is_told_with_the_reason(of, monkeypatch):
    monkeypatch.setattr(of.measured_grid, "WHY", ((lambda cell: cell["batches"] == 25, "an epoch starts slowly"),))
    slow = [cell(0.90 + 0.001 * place, batches=25 if place else 250) for place in range(12)]
    table = of.measured_grid.grid_worst(grid(cell(2.0), *slow))
    assert table.count("\n") == 1 + len(slow)
    assert table.count("an epoch starts slowly") == 11
    assert table.count("not known yet") == 1
    assert "| 0.90 | 0.85–0.99, 3 pairs | texts; batch 1, 250 batches, no workers, `feedline.torch` |" in table


def test_the_ten_worst_are_shown_even_if_all_are_faster(of):
    table = of.measured_grid.grid_worst(grid(*(cell(1.0 + place) for place in range(20))))
    assert table.count("\n") == 1 + 10
    assert "not known" not in table


def test_what_was_measured_beside_other_programs_is_marked(of):
    facts = grid(cell(0.5, noise=0.4), cell(0.6))
    assert "| 0.50? |" in of.measured_grid.grid_worst(facts)
    assert "| 0.60 |" in of.measured_grid.grid_worst(facts)
    assert "(1 cells); do not trust those" in of.measured_grid.grid_summary(facts)


CELLS = [
    cell(0.5),
    cell(3.0, batch_size=16, batches=250),
    cell(1.0, front="feedline"),
    cell(26.0, kind="numbers", workers=2, start="spawn"),
    cell(2.5, kind="numbers", workers=2, persistent=True),
    cell(4.5, workers=4),
]


def test_every_cell_is_at_its_place(of):
    columns, rows, ratios = of.measured_grid.placed(grid(*CELLS))
    assert rows == [("numbers", 1), ("text", 1), ("text", 16)]
    assert columns == [
        ("no workers", "feedline.torch", 25),
        ("no workers", "feedline.torch", 250),
        ("no workers", "feedline", 25),
        ("2 workers", "persistent", 25),
        ("2 workers", "spawn", 25),
        ("4 workers", "feedline.torch", 25),
    ]
    assert ratios == {(1, 0): 0.5, (2, 1): 3.0, (1, 2): 1.0, (0, 4): 26.0, (0, 3): 2.5, (1, 5): 4.5}


def test_the_heat_map_shows_every_ratio_and_its_middle_is_one(of):
    pytest.importorskip("matplotlib")
    with looks():
        drawing = of.measured_grid.grid_picture(grid(*CELLS))
        (mesh,) = drawing.axes[0].collections
        assert mesh.norm(0.0) == 0.5, "1.0 has the colour between both"
        assert mesh.get_array().count() == len(CELLS)
        written = encoded(drawing)
    assert {"0.50", "3.00", "1.00", "26", "2.50", "4.50", "spawn", "no workers", "batch 16"} <= set(texts(written))


@thorough
@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
def test_a_run_of_the_grid_gives_a_page(of, tmp_path):
    out = tmp_path / "grid.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "grid.py"), "--only", "text", "--quick", "--out", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=True)
    assert "geometric mean" in answer.stdout
    facts = json.loads(out.read_text())
    assert {found["workers"] for found in facts["cells"]} == {0, 2, 4}
    assert {found["front"] for found in facts["cells"]} == {"feedline", "feedline.torch"}
    assert all(found["seconds"]["torch"] and found["ratio"] > 0 for found in facts["cells"])
    *_, ratios = of.measured_grid.placed(facts)
    assert len(ratios) == len(facts["cells"])
    assert of.measured_grid.grid_worst(facts).count("\n") >= 11


# --- samples of unequal cost ---


@pytest.mark.parametrize("times", [2, 10, 100])
def test_the_same_share_is_slow_in_bursts_and_at_random(of, times):
    random, bursts = (of.skewed.costs(times, placing) for placing in ("random", "bursts"))
    slow = round(of.skewed.SHARES[times] * of.skewed.SAMPLES)
    assert [int((found == times).sum()) for found in (random, bursts)] == [slow, slow]

    def changes(found: Any) -> int:
        return int((found[1:] != found[:-1]).sum())

    assert changes(bursts) <= 2 * (1 + slow // of.skewed.BURST) < changes(random)


def test_the_limits_are_computed(of):
    limit = next(of.skewed.limits("waits", 10, "bursts"))
    mean = 0.9 * of.skewed.BASE + 0.1 * 10 * of.skewed.BASE
    assert limit["samples/s"] == pytest.approx(of.skewed.WORKERS["waits"] / mean)
    assert 0.5 * limit["samples/s"] < limit["in order"] <= limit["samples/s"] * 1.000001


def test_the_shares_of_the_limit(of):
    case = {
        "title": "1% take 100×",
        "workers": 4,
        "values": {
            "limit": [1000.0],
            "torch": [400.0, 500.0, 900.0],
            "feedline": [900.0],
            "threads": [],
            "other": [1.0],
        },
        "in order": [950.0],
        "noise": {"limit": [0.0], "torch": [0.5], "feedline": [0.0]},
        "skips": {"threads": "why not"},
        "failures": {"other": "a bug"},
    }
    machine = {"cpu": "a cpu", "cores": 2}
    facts = {"date": "2026-11-18", "seconds": 9, "repeats": 3, "quick": False, "python": "3.11", "torch": "2.13"}
    table = of.measured_skewed.skewed_table({**facts, "machine": machine, "cases": [case]})
    assert "| samples | limit, samples/s | limit in order | torch | feedline | threads | other |" in table
    assert "| 1% take 100×, 4 workers | 1,000 | 95% | 50%? | 90% | — | failed |" in table


def test_both_pages_are_linked() -> None:
    for page, other in (("grid.md", "docs/peers.md"), ("skewed.md", "docs/split-batches.md")):
        assert f"({page})" in (ROOT / other).read_text(encoding="utf-8")
