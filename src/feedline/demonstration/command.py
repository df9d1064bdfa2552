"""The command `feedline demo`: its options, and its answer.

Takes: a command line. Gives: an `Answer`; its exit code is 1 if anything is not as it should be.
Promises: Pillow and SQLite are not imported before the command is run, so that the other commands do without.
Not its job: what is shown (run), the words (wording).
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

from feedline.checks import check_whole
from feedline.demonstration import wording
from feedline.demonstration.screen import Screen
from feedline.diagnose.answer import BAD, FINE, Answer
from feedline.errors import OptionError
from feedline.extras import extra

FOLDER, IMAGES, EPOCHS, WORKERS = Path("build", "demo"), 2000, 6, 2
FEWEST_IMAGES = 100  # with fewer there would be hardly one of a rare class


def demo_options(parser: argparse.ArgumentParser) -> None:
    """What may be said on the command line."""
    parser.add_argument(
        "--folder",
        type=Path,
        default=FOLDER,
        metavar="DIR",
        help=f"images, state and report are written there, and nothing elsewhere (default: {FOLDER})",
    )
    parser.add_argument("--epochs", type=int, default=EPOCHS, metavar="N", help=f"to train (default: {EPOCHS})")
    parser.add_argument(
        "--images", type=int, default=IMAGES, metavar="N", help=f"to draw, {FEWEST_IMAGES} or more (default: {IMAGES})"
    )
    parser.add_argument(
        "--workers", type=int, default=WORKERS, metavar="N", help=f"processes that load images (default: {WORKERS})"
    )


def demo(given: argparse.Namespace) -> Answer:
    """Run it; says on standard output what it does, unless that is for a JSON document."""
    check_whole("epochs", given.epochs, least=1)
    check_whole("images", given.images, least=FEWEST_IMAGES)
    check_whole("workers", given.workers, least=0)
    try:
        extra("PIL", "images", "the demo's images")
        from feedline.demonstration.run import run
    except ImportError as missing:  # some Pythons are built without sqlite3
        raise OptionError(str(missing)) from missing
    with Screen(None if given.json else sys.stdout) as screen:
        facts = run(given.folder, given.images, given.epochs, given.workers, screen)
    data = {"command": "demo", **dataclasses.asdict(facts)}
    return Answer(data, lambda width: list(wording.ending(facts)), BAD if facts.problems else FINE)
