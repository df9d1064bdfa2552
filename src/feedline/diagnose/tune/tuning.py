"""The outcome of tuning with its looks: printed, drawn, written as a page.

Takes: an outcome. Gives: `Tuning`, which `feedline.tune` returns.
Promises: a file is there whole, or not at all. Not its job: what is in it (outcome, picture, page).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from feedline.diagnose.answer import Answer
from feedline.diagnose.rendering import WIDEST, plain
from feedline.diagnose.tune.outcome import Outcome
from feedline.diagnose.tune.page import html
from feedline.diagnose.tune.picture import picture
from feedline.diagnose.tune.screen import lines
from feedline.drawing.png import save


@dataclass(frozen=True)
class Tuning(Outcome):
    """What `feedline.tune` found: `print` it, paste its `code`, or write it with `plot` and `report`."""

    def __str__(self) -> str:
        return plain(lines(self, WIDEST)).rstrip("\n")

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw workers against batches a second, waiting and memory; as SVG if the name ends so, else as PNG."""
        save(picture(self), path)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML page that needs no network."""
        target = Path(path)
        beside = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            beside.write_text(html(self), encoding="utf-8")
            beside.replace(target)
        finally:
            beside.unlink(missing_ok=True)

    def answer(self) -> Answer:
        """The same for the command line."""
        return Answer({"command": "tune", **self.to_json()}, lambda width: lines(self, width))
