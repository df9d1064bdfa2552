"""The notebooks run from top to bottom, with all that they claim, in a kernel of their own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[2] / "docs" / "notebooks"
SHOWS = {
    "switching-in-ten-minutes.ipynb": ["epoch 0: 8 of 8 batches", "resumed: 8 of 8 batches", "512 samples", "(100, "],
    "why-is-it-slow.ipynb": ["no workers: 6 of 6 batches", "<meter", "times as fast"],
}

TORCHS_ADVICE = "UserWarning: This DataLoader will create 2 worker processes"
"""Where there is one CPU."""


def shown(cells: list[Any]) -> str:
    """All that readers see below the cells."""
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    told = "".join(output.text for output in outputs if output.get("name") == "stderr")
    assert "Warning" not in told.replace(TORCHS_ADVICE, ""), told
    return "\n".join(output.get("text", "") + "".join(map(str, output.get("data", {}).values())) for output in outputs)


@pytest.mark.filterwarnings("default")  # Jupyter's own
@pytest.mark.parametrize("name", SHOWS)
def test_notebook_runs_and_shows_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path))
    notebook = nbformat.read(NOTEBOOKS / name, as_version=4)
    for cell in notebook.cells:
        assert not cell.get("outputs"), f"{name} is kept without outputs: clear them before you commit"
    client = NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}})
    asyncio.run(client.async_execute())  # `execute` would keep its event loop
    said = shown(notebook.cells)
    for text in SHOWS[name]:
        assert text in said, said


def test_every_notebook_is_run():
    assert {path.name for path in NOTEBOOKS.iterdir()} == set(SHOWS)
