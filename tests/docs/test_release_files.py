"""What belongs to a release says the same everywhere: version, Pythons, licence, what CI runs."""

from __future__ import annotations

import re
from pathlib import Path

import feedline

ROOT = Path(__file__).parents[2]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere():
    assert re.search(r"^version: (.*)$", read("CITATION.cff"), re.M)[1] == feedline.__version__
    assert re.search(r"^## (\S+)", read("CHANGELOG.md"), re.M)[1] == feedline.__version__


def test_the_project_names_every_python_and_where_it_lives():
    project = read("pyproject.toml")
    assert re.findall(r'Python :: (3\.\d+)"', project) == ["3.10", "3.11", "3.12", "3.13"]
    assert 'requires-python = ">=3.10"' in project
    assert set(re.findall(r'^(\w+) = "https://', project, re.M)) == {"Homepage", "Documentation", "Changelog", "Issues"}
    assert re.search(r"^license: (.*)$", read("CITATION.cff"), re.M)[1] in project


def test_the_workflow_runs_what_is_run_here():
    workflow = read(".github/workflows/test.yml")
    assert "run: .ci/run\n" in workflow
    assert "run: make release-check\n" in workflow
    assert (ROOT / "src" / "feedline" / "py.typed").exists()
