"""`feedline draw`: its arguments, and the answer.

Takes: a parser, then the parsed arguments. Gives: an `Answer`, and the picture's file.
Promises: a picture that cannot be drawn or written is reported before the script runs. Not its job: the picture (draw).
"""

from __future__ import annotations

import argparse

from feedline.diagnose.deadline import patience
from feedline.diagnose.drawing.draw import KINDS, draw
from feedline.diagnose.plotting import check_plot
from feedline.diagnose.quiet import aside
from feedline.diagnose.rendering import Answer, PageLine
from feedline.diagnose.target import TARGET, as_if_run, constructed, is_loader, loaded_within
from feedline.errors import OptionError

SECONDS = 10.0


def options(parser: argparse.ArgumentParser) -> None:
    """The options of the command line."""
    parser.add_argument("target", help=TARGET)
    parser.add_argument("--kind", choices=KINDS, help="what to draw (default: what the data suggests)")
    parser.add_argument("--out", metavar="FILE", default="loader.svg", help="SVG or PNG (default: loader.svg)")
    parser.add_argument("--epoch", type=int, metavar="E", help="which epoch (default: the next)")
    parser.add_argument("--labels", metavar="TARGET", help="the labels of all samples, such as train.py:labels")
    parser.add_argument("--lengths", metavar="TARGET", help="the lengths of all samples, such as train.py:lengths")


def run(given: argparse.Namespace) -> Answer:
    """Load, draw, answer."""
    if not given.out.lower().endswith((".png", ".svg")):
        raise OptionError(f"--out: {given.out} must end in .png or .svg")
    check_plot(given.out)
    with aside(), as_if_run(given.target, given.arguments):
        longest = patience(SECONDS, times=1)
        loader, _ = constructed(loaded_within(given.target, longest))
        if not is_loader(loader):
            raise OptionError(
                f"{given.target} is a {type(loader).__name__}, but its batches are to be drawn: name a loader"
            )
        columns = {
            name: loaded_within(target, longest)
            for name, target in (("labels", given.labels), ("lengths", given.lengths))
            if target is not None
        }
        kind = draw(loader, given.out, given.kind, epoch=given.epoch, **columns)
    data = {"command": "draw", "picture": given.out, "kind": kind}
    return Answer(data, lambda width: [PageLine(f"wrote {given.out} ({kind})")])
