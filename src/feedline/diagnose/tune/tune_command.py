"""`feedline tune`: its arguments, and the answer.

Takes: a parser, then the parsed arguments. Gives: an `Answer`, and the requested files.
Promises: a file that cannot be drawn or written is reported before anything is measured.
Not its job: measuring (tuner), words, pages and pictures (page).
"""

from __future__ import annotations

import argparse

from feedline.diagnose.deadline import patience
from feedline.diagnose.plotting import check_plot
from feedline.diagnose.quiet import aside
from feedline.diagnose.rendering import Answer, write_or_say
from feedline.diagnose.target import TARGET, as_if_run, loaded_within
from feedline.diagnose.tune.tuner import SECONDS, tune
from feedline.errors.checks import check_file


def options(parser: argparse.ArgumentParser) -> None:
    """The options of the command line."""
    parser.add_argument("target", help=TARGET)
    parser.add_argument(
        "--step-ms", type=float, metavar="MS", help="a training step without loading (default: as fast as possible)"
    )
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="how long (default: 60)")
    parser.add_argument("--batch-size", type=int, metavar="B", help="for a dataset (default: 32); a loader has its own")
    parser.add_argument("--no-shuffle", dest="shuffle", action="store_false", default=None, help="read in order")
    parser.add_argument("--max-workers", type=int, metavar="N", help="no more than these (default: what fits)")
    parser.add_argument("--kinds", default="process,thread", help="process, thread, or both (default: %(default)s)")
    parser.add_argument("--busy-step", action="store_true", help="the step computes on a CPU, and does not wait")
    parser.add_argument(
        "--plot", metavar="FILE", help="draw the curves as SVG (if the name ends so) or PNG; feedline[plot]"
    )
    parser.add_argument("--report", metavar="FILE", help="write an HTML page")


def run(given: argparse.Namespace) -> Answer:
    """Measure, write, answer."""
    plot, report = check_plot(given.plot), check_file("--report", given.report)
    with aside(), as_if_run(given.target, given.arguments):
        found = tune(
            loaded_within(given.target, patience(given.seconds, times=1)),
            step_ms=given.step_ms,
            seconds=given.seconds,
            batch_size=given.batch_size,
            shuffle=given.shuffle,
            max_workers=given.max_workers,
            kinds=given.kinds.split(","),
            busy_step=given.busy_step,
        )
    for path, save in ((plot, found.plot), (report, found.report)):
        if path is not None:
            write_or_say(save, path)
    return found.answer()
