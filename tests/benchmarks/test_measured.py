"""From what benchmarks measured to the pages: ratios, exponents, tables and pictures, on made results."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from figures import texts
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few

from feedline.diagnose.plotting import COLOURS, encoded, looks

ROOT = Path(__file__).parents[2]
FOLDERS = [str(ROOT / "docs"), str(ROOT / "benchmarks")]


@pytest.fixture(scope="module")
def of() -> Iterator[SimpleNamespace]:
    """The modules of docs/ and benchmarks/ that are tried here; none of them needs another library."""
    sys.path[:0] = FOLDERS
    names = ("make_pages", "measured_growth", "measured_peers", "growth")
    found = {name: importlib.import_module(name) for name in names}
    for name in ("sides", "workloads", "measure"):
        found[name] = importlib.import_module(f"peers.{name}")
    yield SimpleNamespace(**found)
    for folder in FOLDERS:
        sys.path.remove(folder)


def workload(resumes: bool = False, **values: list[float]) -> dict[str, Any]:
    named = {name.replace("_", ", "): found for name, found in values.items()}
    noise = {name: [0.0] * len(found) for name, found in named.items()}
    title = "going on" if resumes else "texts"
    return {"title": title, "resumes": resumes, "values": named, "noise": noise, "absent": {}, "failures": {}}


def peers(*workloads: dict[str, Any]) -> dict[str, Any]:
    machine = {"cpu": "a cpu", "cores": 2, "memory": "8 kB", "kernel": "Linux"}
    sides = [{"name": "Grain", "version": "0.2", "page": "https://grain", "how": "threads"}]
    facts = {"date": "2026-11-16", "seconds": 9, "quick": False, "repeats": 3, "python": "3.11", "numpy": "2"}
    return {**facts, "machine": machine, "sides": sides, "workloads": list(workloads)}


# --- peers ---


def test_all_are_compared_with_our_defaults(of):
    facts = peers(workload(feedline=[10, 10, 10], feedline_threads=[20, 20, 20], SPDL=[30, 50, 40], torch=[5, 5, 5]))
    found = {row.side: row for row in of.measured_peers.rows(facts)}
    assert list(found) == ["SPDL", "feedline, threads", "feedline", "torch"]
    spdl = found["SPDL"]
    assert (spdl.value, spdl.ratio, spdl.low, spdl.high) == (40, 4, 3, 5)
    assert (found["feedline, threads"].ratio, found["torch"].ratio) == (2, 0.5)
    assert found["feedline"].ratio is None


def test_where_seconds_are_measured_less_is_better(of):
    facts = peers(workload(resumes=True, feedline=[0.2], feedline_threads=[0.4], Grain=[0.1], torchdata=[0.8]))
    found = {row.side: row for row in of.measured_peers.rows(facts)}
    assert list(found) == ["Grain", "feedline", "feedline, threads", "torchdata"]
    assert (found["Grain"].ratio, found["torchdata"].ratio) == (2, 0.25)
    assert "| Grain | 100 ms | 2 |" in of.measured_peers.peers_table(facts)


def test_nobody_is_left_out_silently(of):
    facts = peers(workload(feedline=[10], torch=[5], Grain=[7, 8]))
    facts["workloads"][0]["failures"] = {"Grain": "no wheel | for this\nPython", "LitData": "x" * 500}
    facts["workloads"][0]["absent"] = {"SPDL": "has no state", "WebDataset": "has no state", "Mosaic": "own files"}
    table = of.measured_peers.peers_table(facts)
    assert "| Grain | failed: no wheel / for this Python | | |" in table
    assert "| LitData | failed: …xxx" in table
    assert "Not asked: SPDL, WebDataset (has no state); Mosaic (own files)." in table
    sides = [row.side for row in of.measured_peers.rows(facts)]
    assert sides == ["feedline", "torch", "Grain", "LitData", "SPDL", "WebDataset", "Mosaic"]


def test_without_a_value_of_ours_there_is_no_ratio(of):
    facts = peers(workload(torch=[5], feedline_threads=[6]))
    facts["workloads"][0]["failures"] = {"feedline": "a bug"}
    table = of.measured_peers.peers_table(facts)
    assert "| torch | 5 | — | |" in table
    assert "| **feedline, threads** | 6 | — | |" in table


def test_what_was_measured_beside_other_programs_is_marked(of):
    facts = peers(workload(feedline=[10, 10, 10], torch=[5, 5, 5], Grain=[5, 5, 5]))
    facts["workloads"][0]["noise"]["torch"] = [0.5, 0.5, 0.0]
    table = of.measured_peers.peers_table(facts)
    assert "| torch | 5 | 0.5? | 0.5–0.5 |" in table
    assert "| Grain | 5 | 0.5 | 0.5–0.5 |" in table
    assert "do not trust that ratio" in table
    facts["workloads"][0]["noise"]["torch"] = [0.0]
    assert "?" not in of.measured_peers.peers_table(facts)


@pytest.mark.parametrize("resumes", [False, True])
def test_the_longest_bar_is_the_fastest(of, resumes):
    values = [0.1, 0.2, 0.4] if resumes else [4, 2, 1]
    facts = peers(
        workload(resumes, **dict(zip(("Grain", "feedline", "torch"), ([each] for each in values), strict=True)))
    )
    colors = pytest.importorskip("matplotlib.colors")
    with looks():
        picture = of.measured_peers.peers_picture(facts)
    bars = picture.axes[0].containers[0]
    assert [round(bars[0].get_width() / bar.get_width(), 3) for bar in bars] == [1, 2, 4]
    assert [colors.to_hex(bar.get_facecolor()) for bar in bars] == [COLOURS[1], COLOURS[0], COLOURS[1]]
    assert any(text.startswith("Grain") and "(2)" in text for text in texts(encoded(picture)))


def test_a_batch_of_another_shape_is_no_result(of):
    asked = of.workloads.WORKLOADS["large"]
    good, bad = np.zeros((64, 3, 224, 224), np.uint8), np.zeros((64, 224, 224, 3), np.uint8)
    assert next(of.measure.throughput(of.measure.endless([(good, 1)]), asked, 0.001)) > 0
    with pytest.raises(ValueError, match=r"\(64, 224, 224, 3\), but large asks for"):
        next(of.measure.throughput(of.measure.endless([bad]), asked, 0.001))
    texts = of.measure.endless([{"text": np.zeros((64, length))} for length in (20, 30)])
    assert next(of.measure.throughput(texts, of.workloads.WORKLOADS["text"], 0.001)) > 0


def test_sides_and_workloads_agree(of):
    for side in of.sides.SIDES:
        assert set(side.absent) <= set(of.workloads.WORKLOADS), side.name
        assert (ROOT / "benchmarks" / "peers" / f"{side.module}.py").exists()
    for name in of.workloads.WORKLOADS:
        assert name not in of.sides.SIDES[0].absent  # ours takes part in everything


# --- growth ---


@settings(max_examples=few(50))
@given(st.floats(-3, 3), st.floats(1e-6, 1e6), st.lists(st.integers(0, 30), min_size=2, max_size=8, unique=True))
def test_the_exponent_of_a_power_law_is_found(of, power, factor, values):
    found = of.measured_growth.exponent([(2.0**value, factor * 2.0 ** (value * power)) for value in values])
    assert math.isclose(found, power, abs_tol=1e-9)


def test_the_exponent_of_points_beside_the_line_is_the_nearest(of):
    points = [(1, 1), (10, 20), (100, 50), (1000, 1000)]
    logs = np.log(np.array(points))
    assert of.measured_growth.exponent(points) == pytest.approx(np.polyfit(logs[:, 0], logs[:, 1], 1)[0])


def growth() -> dict[str, Any]:
    def point(value: int) -> dict[str, float]:
        return {"first": 0.5, "batch": 0.001 * value, "peak": 2.0**20 * value, "together": 0.0}

    points = [[value, [point(value), point(value), point(99)]] for value in (1, 2, 4, 8)]
    axis = {"name": "bytes", "title": "bytes of a sample (batch 16)", "points": points}
    machine = {"cpu": "a cpu", "cores": 2}
    facts = {"date": "2026-11-16", "seconds": 9, "quick": True, "machine": machine, "python": "3.11", "numpy": "2"}
    return {**facts, "axes": [axis, axis, axis]}


def test_the_table_says_how_each_grows(of):
    table = of.measured_growth.growth_table(growth())
    line = (
        "| bytes of a sample (batch 16) | 1–8 | 500 ms–500 ms | 1 ms–8 ms | 1.00 (1.00) | ≤ 1 MB–8 MB | 1.00 (1.00) |"
    )
    assert table.count(line) == 3
    assert "A quick run" in table


def test_every_axis_has_its_chart(of):
    pytest.importorskip("matplotlib")
    with looks():
        written = texts(encoded(of.measured_growth.growth_picture(growth())))
    assert written.count("bytes of a sample") == written.count("batch 16") == 3


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="memory is measured on Linux only")
def test_a_point_is_measured(of):
    found = of.growth.point("length", 1000, 0.0)
    assert found["first"] > 0
    assert found["batch"] > 0
    assert 0 <= found["peak"] < 20 << 20  # what the loader took, not this process with all that it has imported
    assert set(found) == {"first", "batch", "peak", "together"}


# --- pages ---


@pytest.mark.parametrize("page", ["peers.md", "cost-growth.md", "grid.md", "skewed.md"])
def test_the_page_in_the_tree_says_what_was_measured(of, page):
    assert of.make_pages.made(page) == (ROOT / "docs" / page).read_text(encoding="utf-8"), "run docs/make_pages.py"


def test_only_what_stands_between_markers_is_changed(of):
    page = "a <!-- x --> 1 <!-- /x --> b <!-- y --> 2 <!-- /y --> c"
    once = of.make_pages.filled(page, {"y": "new <!-- no marker -->"})
    assert once == "a <!-- x --> 1 <!-- /x --> b <!-- y -->\nnew <!-- no marker -->\n<!-- /y --> c"
    assert of.make_pages.filled(once, {"y": "new <!-- no marker -->"}) == once
    for lacking in (page, "<!-- z -->", "<!-- /z -->", "<!-- z --> <!-- z --> <!-- /z -->"):
        with pytest.raises(ValueError, match="<!-- z -->"):
            of.make_pages.filled(lacking, {"z": ""})
