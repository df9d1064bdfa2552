"""docs/seeing.md: its examples run, and print what it says they print."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any


def test_the_page_about_it_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (Path(__file__).parents[2] / "docs" / "seeing.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 2
    names: dict[str, Any] = {}
    for block in blocks:
        exec(block.replace("time.sleep(0.010)", "pass").replace("1600", "160"), names)
    printed = capsys.readouterr().out
    said = re.search(r"```text\n(.*?)```", page, re.DOTALL)[1]
    digits = re.compile(r"[\d.,]+")
    assert [digits.sub("0", line)[:20] for line in said.splitlines()] == [
        digits.sub("0", line)[:20] for line in printed.splitlines()
    ]
    assert set(Path().iterdir()) == {Path("run.json"), Path("run.html")}
    assert "loader/waiting_share" in names["scalars"]
    assert 'feedline_batches_total{loader="train"} 0' in names["text"]
