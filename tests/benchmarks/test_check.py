"""benchmarks/check.py: its verdict and its search on made numbers, and a made repository whose third commit is slow."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few, thorough

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def of() -> Iterator[SimpleNamespace]:
    sys.path.insert(0, str(BENCHMARKS))
    names = ("check", "check_cells", "check_meters", "check_verdict")
    yield SimpleNamespace(**{name: importlib.import_module(name) for name in names})
    sys.path.remove(str(BENCHMARKS))


# --- the verdict ---


@pytest.mark.parametrize(("now", "word"), [(100, ""), (101.9, ""), (102.1, "slower"), (98.1, ""), (97.9, "faster")])
def test_a_cell_is_slower_beyond_what_is_allowed(of, now, word):
    assert of.check_verdict.Verdict("texts", 100, now, 0.02).word == word


def test_with_workers_and_by_cpu_time_more_is_allowed(of):
    allowed = [of.check_verdict.tolerance(meter, workers) for meter in ("instructions", "cpu") for workers in (0, 2)]
    assert allowed == sorted(allowed)
    assert len(set(allowed)) == 4


def test_the_table_says_what_was_kept_what_is_now_and_what_follows(of):
    kinds = [("texts", 100.0, 150.0), ("epoch", 100.0, 100.5), ("new", None, 7.0)]
    lines = of.check_verdict.table([of.check_verdict.Verdict(*kind, 0.02) for kind in kinds], "kept").splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["texts", "100.000", "150.000", "+50.0%", "±2%", "slower"],
        ["epoch", "100.000", "100.500", "+0.5%", "±2%"],
        ["new", "—", "7.000", "±2%", "not", "kept", "yet"],
    ]


def test_torchs_own_loader_has_a_column_if_it_was_measured(of):
    verdicts = [of.check_verdict.Verdict("texts", 10.0, 10.0, 0.02, torch) for torch in (5.0, None)]
    head, theirs, without = (line.split() for line in of.check_verdict.table(verdicts, "kept").splitlines())
    assert "torch/ours" in head
    assert theirs == ["texts", "10.000", "10.000", "+0.0%", "0.50", "±2%"]
    assert without == ["texts", "10.000", "10.000", "+0.0%", "±2%"]


# --- the search ---


@settings(max_examples=few(100))
@given(st.integers(1, 200), st.data())
def test_the_one_commit_that_made_it_slower_is_found_in_few_steps(of, count, data):
    guilty = data.draw(st.integers(0, count - 1))
    noise = data.draw(st.lists(st.floats(0.995, 1.005), min_size=count, max_size=count))
    costs = [factor * (100 if place < guilty else 110) for place, factor in enumerate(noise)]
    asked = []

    def cost(place: int) -> float:
        asked.append(place)
        return costs[place]

    found = of.check_verdict.first_slower(count, 100.0, costs[-1], cost)
    assert found.place == guilty
    assert found.after == costs[guilty]
    assert found.before == (costs[guilty - 1] if guilty else 100.0)
    assert len(asked) <= count.bit_length()


def test_each_state_is_measured_once_for_all_cells(of):
    measured = []

    def measure(state: str, names: list[str]) -> dict[str, float]:
        measured.append((state, tuple(names)))
        return dict.fromkeys(names, 1.0)

    known = of.check_verdict.Remembered(measure, ["texts", "epoch"])
    assert [known.cost(name, state) for state in "ab" for name in ("texts", "epoch")] == [1.0] * 4
    assert measured == [("a", ("texts", "epoch")), ("b", ("texts", "epoch"))]


# --- the cells ---


def test_every_cell_has_a_name_of_its_own_and_both_fronts_have_the_same_kinds(of):
    cells = of.check_cells.CELLS
    core, front = ([cell for cell in cells.values() if cell.front == name] for name in ("feedline", "feedline.torch"))
    assert len(core) == len(front) == 7
    assert {cell.title for cell in core} - {"32 small arrays"} == {cell.title for cell in front} - {"32 tensors"}


def test_the_kept_numbers_are_those_of_the_cells(of):
    kept = json.loads((BENCHMARKS / "check.json").read_text())
    assert set(kept["instructions"]["costs"]) == set(of.check_cells.CELLS)


def test_cells_of_the_core_can_be_run(of):
    core = [name for name, cell in of.check_cells.CELLS.items() if cell.front == "feedline"]
    for name in core:
        run, close = of.check_cells.runner(of.check_cells.CELLS[name], "feedline")
        run()
        close()


def test_the_total_of_a_file_of_callgrind(of, tmp_path):
    (tmp_path / "1").write_text("desc: Trigger\nsummary: 12\n\nfn=(1)\n+3 5\ntotals: 34\n")
    (tmp_path / "2").write_text("summary: 12\n")
    assert of.check_meters.total(tmp_path / "1") == 34
    with pytest.raises(of.check_meters.Unmeasured, match="no total"):
        of.check_meters.total(tmp_path / "2")


# --- a repository ---

LOADER = """
class DataLoader:
    def __init__(self, dataset, batch_size, **options):
        self.batches = len(dataset) // batch_size

    def __iter__(self):
        for _ in range(self.batches):
            sum(range({work}))
            yield None

    def close(self):
        pass
"""
COMMITS = [("Begun", 100), ("No difference", 100), ("Slow on purpose", 4_000), ("Docs", 4_000), ("Later", 4_000)]


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(folder: Path, subject: str, work: int) -> None:
    (folder / "src" / "feedline" / "__init__.py").write_text(f"# {subject}\n" + LOADER.format(work=work))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", subject)


@pytest.fixture(scope="module")
def repository(tmp_path_factory) -> Path:
    """A package with our name, and a loader that does nothing but work."""
    folder = tmp_path_factory.mktemp("repository")
    (folder / "src" / "feedline").mkdir(parents=True)
    git(folder, "init", "--quiet")
    for subject, work in COMMITS:
        commit(folder, subject, work)
    return folder


def checked(repository: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, str(BENCHMARKS / "check.py"), "--checkout", str(repository), "--only", "texts", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=900)
    return answer.returncode, answer.stdout + answer.stderr


METERS = [
    pytest.param("cpu", marks=thorough),
    pytest.param(
        "instructions",
        marks=[thorough, pytest.mark.skipif(not shutil.which("valgrind"), reason="valgrind is not installed")],
    ),
]


@pytest.mark.parametrize("meter", METERS)
def test_the_commit_that_made_a_cell_slower_is_named(repository, meter):
    first = git(repository, "rev-list", "--max-parents=0", "HEAD")
    code, page = checked(repository, "--meter", meter, "--since", first)
    assert code == 1, page
    assert "texts): made slower by" in page
    assert f"{git(repository, 'rev-parse', '--short', 'HEAD~2')} Slow on purpose" in page


@thorough
def test_a_commit_that_came_by_a_merge_is_named_itself(repository, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(repository, copy)
    git(copy, "checkout", "--quiet", "-b", "side", "HEAD~3")
    for subject, work in (("Harmless", 100), ("Slow in a branch", 4_000), ("More of the branch", 4_000)):
        commit(copy, subject, work)
    git(copy, "checkout", "--quiet", "-b", "line", "HEAD~3")
    git(copy, "merge", "--quiet", "--no-ff", "-m", "Merge side", "side")
    commit(copy, "After it", 4_000)
    code, page = checked(copy, "--meter", "cpu", "--since", "HEAD~2")
    assert code == 1, page
    assert "Slow in a branch" in page
    assert "Merge side" not in page


def test_kept_numbers_are_compared_with(repository, tmp_path):
    kept = tmp_path / "kept.json"
    options = ("--meter", "cpu", "--kept", str(kept))
    code, page = checked(repository, *options, "--keep")
    assert code == 0, page
    assert "not kept yet" in page
    numbers: dict[str, Any] = json.loads(kept.read_text())
    assert numbers["cpu"]["commit"] == git(repository, "rev-parse", "--short", "HEAD")
    numbers["cpu"]["costs"]["texts"] /= 10
    numbers["cpu"]["numpy"] = "0.1"
    kept.write_text(json.dumps(numbers))
    code, page = checked(repository, *options)
    assert code == 1, page
    assert page.count("slower") == 1
    assert f"make bench-check SINCE={numbers['cpu']['commit']}" in page
    assert "Kept with numpy 0.1 (here" in page


@thorough
def test_what_is_not_committed_is_measured_too(repository, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(repository, copy)
    (copy / "src" / "feedline" / "__init__.py").write_text(LOADER.format(work=60_000))
    code, page = checked(copy, "--meter", "cpu", "--since", "HEAD")
    assert code == 1, page
    assert "made slower by the working tree" in page


def test_a_commit_that_is_not_there_cannot_be_measured(repository):
    code, page = checked(repository, "--meter", "cpu", "--since", "nonsense")
    assert code == 2
    assert "nonsense" in page


def test_a_checkout_that_fails_is_told(repository, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(repository, copy)
    (copy / "src" / "feedline" / "__init__.py").write_text("raise RuntimeError('it is broken')")
    code, page = checked(copy, "--meter", "cpu")
    assert code == 2
    assert "it is broken" in page
