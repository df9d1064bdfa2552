"""The command `feedline demo`: its options, and its answer.

Takes: a command line. Gives: an `Answer`; its exit code is 1 if anything is not as it should be.
Promises: Pillow and SQLite are imported only when this command runs, so the other commands do not need them.
Not its job: what is shown (run).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from feedline.demonstration.screen import Screen
from feedline.diagnose.rendering import BAD, FINE, Answer
from feedline.errors import OptionError
from feedline.errors.checks import check_whole
from feedline.errors.missing_packages import extra

FOLDER = Path("build", "demo")
FEWEST_IMAGES = 100  # with fewer, a rare class would have almost no images
NUMBERS = {
    "epochs": (6, 1, "to train"),
    "images": (2000, FEWEST_IMAGES, f"to draw, {FEWEST_IMAGES} or more"),
    "workers": (2, 0, "processes that load images"),
}
"""Options that are integers: the default, the minimum, and the help text."""


def demo_options(parser: argparse.ArgumentParser) -> None:
    """The options of the command line."""
    words = f"images, state and report are written there, and nothing elsewhere (default: {FOLDER})"
    parser.add_argument("--folder", type=Path, default=FOLDER, metavar="DIR", help=words)
    for name, (default, _, words) in NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, default=default, metavar="N", help=f"{words} (default: {default})")


def demo(given: argparse.Namespace) -> Answer:
    """Run the demo; prints what it does, unless standard output is for a JSON document."""
    for name, (_, least, _) in NUMBERS.items():
        check_whole(name, getattr(given, name), least=least)
    try:
        extra("PIL", "images", "the demo's images")
        from feedline.demonstration.run import run
    except ImportError as missing:  # some Python builds have no sqlite3
        raise OptionError(str(missing)) from missing
    with Screen(None if given.json else sys.stdout) as screen:
        facts = run(given.folder, given.images, given.epochs, given.workers, screen)
    return Answer({"command": "demo", **facts}, lambda width: [], BAD if facts["problems"] else FINE)
