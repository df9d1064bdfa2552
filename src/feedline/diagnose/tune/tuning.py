"""The outcome of tuning and its forms: printed, drawn, written as a page.

Takes: an outcome. Gives: `TuneResult`, which `feedline.tune` returns.
Promises: a file appears complete, or not at all. Not its job: what is in it (outcome, picture, page).
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from feedline.diagnose.answer import Answer, write_whole
from feedline.diagnose.plotting import encoded
from feedline.diagnose.rendering import WIDEST, plain
from feedline.diagnose.tune.tune_outcome import TuneOutcome
from feedline.diagnose.tune.tune_page import html
from feedline.diagnose.tune.tune_picture import picture
from feedline.diagnose.tune.tune_screen import lines


@dataclass(frozen=True)
class TuneResult(TuneOutcome):
    """What `feedline.tune` found: `print` it, paste its `code`, or write it with `plot` and `report`."""

    def __str__(self) -> str:
        return plain(lines(self, WIDEST)).rstrip("\n")

    def plot(self, path: str | os.PathLike[str]) -> None:
        """Draw speed, waiting and memory by workers: SVG if the name ends in .svg, else PNG; needs feedline[plot]."""
        write_whole(path, encoded(picture(self), os.fspath(path)))

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write one HTML page that needs no network."""
        write_whole(path, html(self).encode())

    def answer(self) -> Answer:
        """The same for the command line."""
        return Answer({"command": "tune", **self.to_json()}, lambda width: lines(self, width))
