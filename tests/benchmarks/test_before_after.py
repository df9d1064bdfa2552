"""benchmarks/before_after.py: its verdict on made numbers, and two real checkouts, equal and not."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kinds import thorough

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"
SLOWER = """
import time as _time
_iter = DataLoader.__iter__
def _slow(self):
    _time.sleep(0.1)
    return _iter(self)
DataLoader.__iter__ = _slow
"""


@pytest.fixture(scope="module")
def of() -> Iterator[SimpleNamespace]:
    sys.path.insert(0, str(BENCHMARKS))
    names = ("before_after", "before_after_verdict", "before_after_workloads")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    sys.path.remove(str(BENCHMARKS))


# --- the verdict ---

STEADY = [1.00, 1.01, 0.99, 1.00, 1.01, 0.99]
TREMBLING = [1.0, 1.3, 0.8, 1.2, 0.9, 1.1]


def judged(of, before, after, again):
    return of.before_after_verdict.judge(before, after, again)


def times(factor, values):
    return [factor * value for value in values]


def test_equal_checkouts_are_neither_slower_nor_faster(of):
    verdict = judged(of, STEADY, STEADY, STEADY)
    assert (verdict.word, verdict.ratio) == ("", 1)


@pytest.mark.parametrize(("factor", "word"), [(1.1, "slower"), (0.9, "faster")])
def test_a_difference_beyond_the_noise_is_told(of, factor, word):
    verdict = judged(of, STEADY, times(factor, STEADY), STEADY[::-1])
    assert verdict.word == word
    assert verdict.ratio == pytest.approx(1 / factor, rel=0.02)
    assert verdict.low <= verdict.ratio <= verdict.high


@pytest.mark.parametrize("factor", [1.1, 0.9])
def test_the_same_difference_within_the_noise_is_not(of, factor):
    assert judged(of, STEADY, times(factor, STEADY), TREMBLING).word == ""


@pytest.mark.parametrize("factor", [1.1, 0.9])
def test_ratios_that_scatter_around_one_are_no_difference_even_if_the_noise_is_small(of, factor):
    assert judged(of, STEADY, times(factor, TREMBLING), STEADY).word == ""


@pytest.mark.parametrize("factor", [1.005, 0.995])
def test_less_than_the_floor_is_no_difference(of, factor):
    assert judged(of, [1.0] * 6, [factor] * 6, [1.0] * 6).word == ""


def test_a_machine_that_slows_down_from_round_to_round_is_no_noise(of):
    drifting = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    verdict = judged(of, drifting, times(1.1, drifting), drifting)
    assert (verdict.word, verdict.noise) == ("slower", of.before_after_verdict.FLOOR)


def test_every_side_is_equally_often_first_in_the_middle_and_last(of):
    orders = [tuple(of.before_after.order(turn)) for turn in range(6)]
    assert len(set(orders)) == 6
    for few in (orders, orders[:3]):
        for place in zip(*few, strict=True):
            assert set(Counter(place).values()) == {len(few) / 3}


# --- measuring, with made processes ---


@pytest.fixture
def made(of, monkeypatch) -> Any:
    """Runs `measure` with sides that answer as told: seconds, or a failure."""

    def run(rounds: range, answers: dict[str, float | str], found: list[Any] | None = None) -> list[Any]:
        class Made(of.before_after.Processes):
            def measure(self, workload, side):
                answer = answers[side]
                if isinstance(answer, str):
                    raise of.before_after.SideFailed(answer)
                return {"seconds": answer, "noise": 0.0}

        monkeypatch.setattr(of.before_after, "Processes", Made)
        found = found or [of.before_after.Measured(of.before_after_workloads.WORKLOADS["text"])]
        of.before_after.measure(found, rounds, Path("unused"))
        return found

    return run


@pytest.mark.parametrize(("after", "code"), [(1.0, 0), (0.5, 0), (2.0, 1), ("it crashed", 2)])
def test_exit_code(of, made, after, code):
    found = made(range(3), {"before": 1.0, "again": 1.0, "after": after})
    assert of.before_after.exit_code(found) == code


def test_what_a_side_could_not_run_is_in_the_table_with_the_reason(of, made):
    found = made(range(3), {"before": 1.0, "again": 1.0, "after": "it crashed"})
    page = of.before_after.page(found, {}, 3, 1.0)
    assert "**not measured**" in page
    assert "after: it crashed" in page


@pytest.mark.parametrize(("again", "blind"), [(1.05, False), (1.5, True)])
def test_noise_that_would_hide_a_slowdown_is_told(of, made, again, blind):
    found = made(range(3), {"before": 1.0, "again": again, "after": 1.0})
    assert ("would not have been seen in: texts" in of.before_after.page(found, {}, 3, 1.0)) == blind


def test_more_rounds_are_added_to_those_that_were(of, made):
    found = made(range(3), {"before": 1.0, "again": 1.0, "after": 2.0})
    made(range(3, 6), {"before": 1.0, "again": 1.0, "after": 1.0}, found)
    assert found[0].seconds["after"] == [2.0] * 3 + [1.0] * 3
    assert of.before_after.exit_code(found) == 0


# --- checkouts ---


def compared(before: Path, after: Path, out: Path) -> tuple[int, str, dict[str, Any]]:
    script = [sys.executable, str(BENCHMARKS / "before_after.py"), str(before), str(after)]
    options = ["--only", "prefetch_next_epoch", "--repeats", "3", "--json", str(out)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run([*script, *options], capture_output=True, text=True, env=environment, timeout=600)
    assert not answer.stderr
    (workload,) = json.loads(out.read_text())["workloads"]
    return answer.returncode, answer.stdout, workload


def slowed(folder: Path) -> Path:
    """A checkout whose loader waits for a tenth of a second at the start of an epoch that takes milliseconds."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    with (folder / "src" / "feedline" / "__init__.py").open("a") as file:
        file.write(SLOWER)
    return folder


@thorough
def test_a_slowed_checkout_is_told(tmp_path):
    code, page, workload = compared(ROOT, slowed(tmp_path / "slowed"), tmp_path / "slow.json")
    assert code == 1
    assert "epochs of 10 batches, 2 persistent workers" in page
    assert "**slower**" in page
    assert workload["verdict"]["ratio"] < 1 / 4
    assert {len(values) for values in workload["seconds"].values()} == {6}, "what looks slower is measured again"


@thorough
def test_equal_checkouts_are_near_each_other(tmp_path):
    """Chance may call one slower after three rounds, and then the exit code must say so."""
    code, page, workload = compared(ROOT, ROOT, tmp_path / "equal.json")
    assert code == ("**slower**" in page)
    assert 1 / 4 < workload["verdict"]["ratio"] < 4


def test_another_feedline_than_the_checkouts_is_refused(tmp_path):
    script = [sys.executable, str(BENCHMARKS / "before_after_workloads.py"), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run(script, input="prefetch_next_epoch\n", capture_output=True, text=True, env=environment)
    assert answer.returncode == 1
    assert not answer.stdout
    assert "not from" in answer.stderr


def test_a_folder_that_is_no_checkout_is_refused(tmp_path):
    script = [sys.executable, str(BENCHMARKS / "before_after.py"), str(tmp_path), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run(script, capture_output=True, text=True, env=environment)
    assert answer.returncode == 2
    assert "no checkout of feedline" in answer.stderr
