"""`feedline bench`: its arguments, and the answer.

Takes: a parser, then the parsed arguments. Gives: an `Answer`, and the picture's file if requested.
Promises: wrong arguments are reported before anything is measured.
Not its job: measuring (bench_run), words (page).
"""

from __future__ import annotations

import argparse
from typing import Any

from feedline.diagnose.bench.bench_page import listed, page, picture
from feedline.diagnose.bench.bench_run import REPEATS, SECONDS, TIMEOUT, Terms, bench
from feedline.diagnose.bench.bench_subject import BATCH_SIZE, NUM_WORKERS
from feedline.diagnose.bench.workloads import SHORT, WORKLOADS
from feedline.diagnose.plotting import check_plot, encoded
from feedline.diagnose.rendering import BAD, FINE, Answer, PageLine, write_file, write_or_say
from feedline.diagnose.target import TARGET
from feedline.errors import OptionError
from feedline.observe.terminal import show_line


def options(parser: argparse.ArgumentParser) -> None:
    """The options of the command line."""
    what = f"workloads of ours (--list; default: {' '.join(SHORT)}), or {TARGET}"
    workers = f"such as 0,2,4 (default: {NUM_WORKERS}, or own)"
    parser.add_argument("what", nargs="*", help=what)
    parser.add_argument("--num-workers", type=_numbers, default=(), metavar="N,…", help=workers)
    parser.add_argument("--batch-size", type=int, metavar="B", help=f"for a dataset of yours (default: {BATCH_SIZE})")
    parser.add_argument("--shuffle", action="store_true", help="for a dataset of yours")
    parser.add_argument("--collate", metavar="MODULE:FN", help="collate_fn for a dataset of yours")
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="S", help="of a measurement (default: 0.5)")
    parser.add_argument("--repeats", type=int, default=REPEATS, metavar="R", help="turns of each side (default: 5)")
    timeout = "seconds for an answer, then a side is given up (60)"
    parser.add_argument("--timeout", type=float, default=TIMEOUT, metavar="T", help=timeout)
    parser.add_argument("--plot", metavar="FILE", help="draw bars: a .png or an .svg; feedline[plot]")
    parser.add_argument("--list", action="store_true", help="only list our workloads")


def run(given: argparse.Namespace) -> Answer:
    """Measure, draw, answer."""
    workloads = [{"name": each.name, "summary": each.summary} for each in WORKLOADS]
    data: dict[str, Any] = {"command": "bench", "workloads": workloads}
    if given.list:
        return Answer(data, listed)
    if given.plot is not None and not given.plot.lower().endswith((".png", ".svg")):
        raise OptionError(f"--plot: {given.plot} must end in .png or .svg")
    plot = check_plot(given.plot)
    terms = Terms(given.seconds, given.repeats, given.timeout, show_line)
    own = {"batch_size": given.batch_size, "shuffle": given.shuffle, "collate": given.collate}
    own["arguments"] = tuple(given.arguments) or None
    try:
        found = bench(given.what or SHORT, given.num_workers, terms, **own)
    finally:
        show_line("")
    wrote = [] if plot is None else [PageLine(), PageLine(f"wrote {given.plot}")]
    if plot is not None:
        write_or_say(lambda path: write_file(path, encoded(picture(found), path)), plot)

    def lines(width: int) -> list[PageLine]:
        names = [] if given.what else [PageLine(), *listed(width)]
        return [*page(found, width), *names, *wrote]

    return Answer({**data, **found.to_json()}, lines, BAD if found.failed else FINE)


def _numbers(text: str) -> tuple[int, ...]:
    """Several numbers, separated by commas."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"not whole numbers with commas between: {text!r}") from None
