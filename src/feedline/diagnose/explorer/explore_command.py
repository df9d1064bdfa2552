"""`feedline explore`: its arguments, the page, and the answer.

Takes: a parser, then the parsed arguments. Gives: an `Answer`; the page as a file, and in the user's browser.
Promises: a target is measured as `tune` measures: the user's loader is not iterated, and its generator not drawn from.
Not its job: what is on the page (bundle, page/), what measuring gives (measured_loader).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import webbrowser
from pathlib import Path
from typing import Any

from feedline.diagnose.deadline import patience
from feedline.diagnose.explorer.bundle import page_with
from feedline.diagnose.explorer.measured_loader import measured
from feedline.diagnose.quiet import aside
from feedline.diagnose.rendering import Answer, PageLine, write_file, write_or_say
from feedline.diagnose.target import TARGET, as_if_run, loaded_within
from feedline.errors.checks import check_file

SECONDS = 10.0


def options(parser: argparse.ArgumentParser) -> None:
    """The options of the command line."""
    parser.add_argument("target", nargs="?", help=f"{TARGET}; it is measured, and the page opens with its numbers")
    parser.add_argument("--out", metavar="FILE", help="write the page there, and open no browser")
    parser.add_argument("--step-ms", type=float, metavar="MS", default=0.0, help="a training step without loading")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, metavar="S", help=f"how long to measure (default: {SECONDS:g})"
    )
    parser.add_argument("--batch-size", type=int, metavar="B", help="for a dataset (default: 32); a loader has its own")


def run(given: argparse.Namespace) -> Answer:
    """Measure if there is a target; write the page, open it."""
    out = check_file("--out", given.out)
    found: dict[str, Any] | None = None
    if given.target is not None:
        with aside(), as_if_run(given.target, given.arguments):
            what = loaded_within(given.target, patience(given.seconds, times=1))
            found = measured(what, given.step_ms, given.seconds, given.batch_size)
    path = out or os.path.join(tempfile.mkdtemp(prefix="feedline-"), "explore.html")
    write_or_say(lambda where: write_file(where, page_with(found).encode("utf-8")), path)
    opened = out is None and webbrowser.open(Path(path).resolve().as_uri())
    words = f"wrote {path}" + ("" if out or opened else "; no browser could be opened: open that file in one")
    numbers = {} if found is None else {"measured": found["measured"]}
    return Answer({"command": "explore", "page": path, **numbers}, lambda width: [PageLine(words)])
