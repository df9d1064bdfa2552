"""The page of the docs about the explorer, and what its benchmark has measured."""

from __future__ import annotations

import importlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from kinds import thorough

from feedline.diagnose.explorer.bundle import page_with

DOCS = Path(__file__).parents[2] / "docs"


def test_the_simulation_is_within_a_tenth_of_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    from measured_simulation import apart

    found = apart(json.loads((DOCS / "measured" / "simulation.json").read_text(encoding="utf-8")))
    assert len(found) >= 12
    assert {name: off for name, off in found.items() if abs(off) > 0.1} == {}
    sys.modules.pop("measured_simulation")


@pytest.fixture
def make_explorer(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(DOCS)
    yield importlib.import_module("make_explorer")
    sys.modules.pop("make_explorer")


def test_the_page_is_small() -> None:
    assert len(page_with().encode()) <= 300_000


def masked(lines: list[str]) -> set[str]:
    """The lines without numbers, and without those of which there may be more or fewer. A busy machine may be too slow
    to say a stuck worker's stack before the worker is ended: then there is no colon. Python 3.12 and later warn of
    threads at a fork; the script has all warnings shown."""
    left_out = r"batch |  |DeprecationWarning: This process \(pid=\d+\) is multi-threaded"
    own = [re.sub(r"; when last measured.*", "", line) for line in lines if not re.match(left_out, line)]
    return {re.sub(r"\d+", "0", line).rstrip(":") for line in own}


RUNS = [
    pytest.param(side, fault, number, marks=thorough if side == "torch" or (fault == "hang" and not number) else ())
    for fault, sides in json.loads((DOCS.parent / "src/feedline/diagnose/explorer/page/words.json").read_text()).items()
    for side, runs in sides.items()
    for number in range(len(runs))
]


@pytest.mark.parametrize(("side", "fault", "number"), RUNS)
def test_the_words_are_still_those_that_are_printed(
    make_explorer: ModuleType, side: str, fault: str, number: int
) -> None:
    if fault == "corrupt" and sys.version_info < (3, 11):
        pytest.skip("Python 3.10 prints no notes")
    kept = json.loads(make_explorer.WORDS.read_text(encoding="utf-8"))[fault][side][number]
    patience = 600 if kept["ended"] else 120  # what hangs must have come as far as that
    now = make_explorer.recorded(side, fault, kept["options"], patience)
    assert now["ended"] == kept["ended"]
    if (side, fault) == ("torch", "kill"):  # how far it comes, and which sentence it says, is timing
        assert now["batches"] < 8
        assert re.match(r"RuntimeError: DataLoader worker \(pid", now["lines"][-1])
        return
    assert now["batches"] == kept["batches"]
    assert masked(now["lines"]) == masked(kept["lines"])
