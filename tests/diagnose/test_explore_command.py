"""`feedline explore`: the page is written or opened, with a measured loader or without; errors are sentences."""

from __future__ import annotations

import json
import webbrowser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Page

from feedline import DataLoader
from feedline.cli import main
from feedline.diagnose.explorer.bundle import ordered, page_with, script
from feedline.diagnose.explorer.measured_loader import measured
from feedline.errors import FeedlineError, OptionError

SCRIPT = """
import random
import numpy as np
import feedline

class Data:
    reads = 0
    def __len__(self):
        return 40
    def __getitem__(self, index):
        Data.reads += 1
        random.random()
        return np.full(10, index)

loader = feedline.DataLoader(Data(), 8, shuffle=True, num_workers=3)
"""


def test_it_writes_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explore", "--out", str(tmp_path / "a.html")]) == 0
    assert (tmp_path / "a.html").read_text(encoding="utf-8") == page_with()
    assert capsys.readouterr().out.startswith("wrote ")


def test_it_opens_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", lambda address: opened.append(address) or len(opened) > 1)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main(["explore"]) == 0
    assert "no browser could be opened" in capsys.readouterr().out
    assert main(["explore"]) == 0
    assert "no browser" not in capsys.readouterr().out
    assert all(address.startswith(tmp_path.as_uri()) and address.endswith("explore.html") for address in opened)


def test_a_measured_loader_is_in_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], explorer: Page
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    assert main(["explore", "train.py:loader", "--out", "a.html", "--step-ms", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["measured"]["batches"] == 5
    explorer.open(tmp_path / "a.html")
    assert explorer.js("feedline.main.current.view.name") == "run"
    numbers = json.loads(explorer.js("JSON.stringify(feedline.main.current.result.numbers)"))
    assert numbers["batches"] == 5
    assert numbers["step"] >= 1000
    assert {one["index"] for one in numbers["slowest"]} <= set(map(str, range(40)))


def test_the_users_loader_is_not_used() -> None:
    data = np.arange(30)
    loader = DataLoader(data, 4, shuffle=True, seed=1)
    state = loader.state_dict()
    assert measured(loader)["measured"]["batches"] == 8
    assert loader.state_dict() == state


class Broken:
    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> Any:
        raise ValueError("no such file")


@pytest.mark.parametrize(
    ("what", "given", "words"),
    [
        (Broken(), {}, "reading failed: ValueError: no such file"),
        (DataLoader([], 2), {}, "it gave no batch"),
        ([1], {"step_ms": -1}, "step_ms"),
        ([1], {"seconds": 0}, "seconds"),
        (5, {}, "no|neither"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(what: Any, given: dict[str, Any], words: str) -> None:
    with pytest.raises((FeedlineError, OptionError, TypeError), match=words):
        measured(what, **given)


def test_modules_come_after_what_they_import(tmp_path: Path) -> None:
    order = ordered("main")
    assert order.index("words") < order.index("orders") < order.index("samplers") < order.index("main")
    assert "import {" not in script()
    page = {path.stem for path in Path(page_with.__code__.co_filename).with_name("page").glob("*.js")}
    assert set(order) == page, "every module is on the page"


def test_data_cannot_become_markup() -> None:
    evil = {"name": "</script><img src=x>", "trace": [], "measured": {}}
    assert "</script><img" not in page_with(evil)
