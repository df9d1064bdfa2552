"""The demo from beginning to end.

Takes: a folder, how many images, epochs and workers, a screen. Gives: `Facts`, with whatever is not as it should be.
Promises: what it says of itself it has checked: that it went on exactly after the stop, that just the damaged files
that came up were left out, that something was learned. Nothing is written outside the folder.
Not its job: the steps (images, balance, training), the words (wording).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from pathlib import Path

from feedline.demonstration import wording
from feedline.demonstration.balance import drawn_in, rarity
from feedline.demonstration.facts import Facts, Images, Trained
from feedline.demonstration.folder import Folder
from feedline.demonstration.images import are_drawn, damaged_indices, draw_images
from feedline.demonstration.screen import Screen
from feedline.demonstration.shapes import CLASSES, RARE
from feedline.demonstration.training import Training
from feedline.workers.one_thread import use_one_thread

ENOUGH_STEPS = 20
"""From here on a model that guesses is a fault: measured with the fewest images, 50 % are right after 16 steps."""
CHANCE = 1 / len(CLASSES)


def run(path: Path, count: int, epochs: int, workers: int, screen: Screen) -> Facts:
    """Show it all."""
    started = time.perf_counter()
    use_one_thread()  # the workers fill the cores: NumPy's own threads would fight them for each small multiplication
    folder = Folder(path)
    folder.claim()
    drawn = are_drawn(folder, count)
    screen.say(wording.opening(path, count, drawn))
    if not drawn:
        draw_images(folder, count, lambda ready: screen.now(wording.drawing(ready, count)))
    training = Training(folder, epochs, workers, screen)
    images = Images(
        drawn_now=not drawn,
        training=len(training.images),
        validation=len(training.validation),
        classes=list(CLASSES),
        rare=list(RARE),
        damaged=damaged_indices(folder, training.images),
    )
    rare = rarity(training.images.labels)
    screen.say(wording.images(images, rare))
    with _errors_are_listed_later():
        trained = training.run()
    to_be_met = drawn_in(training.images.labels, epochs) & set(images.damaged)
    return Facts(
        folder=str(path),
        report=str(folder.report.resolve()),
        images=images,
        rarity=rare,
        trained=trained,
        problems=list(problems_of(trained, to_be_met)),
        seconds=time.perf_counter() - started,
    )


def problems_of(trained: Trained, to_be_met: set[int]) -> Iterator[str]:
    """Whatever is not as it should be."""
    if not trained.resumption.exact:
        yield wording.not_exact(trained.resumption)
    met = {file.index for file in trained.unreadable}
    if met != to_be_met:
        yield wording.not_just_the_damaged(met, to_be_met)
    if trained.steps >= ENOUGH_STEPS and trained.accuracy < 2 * CHANCE:
        yield wording.nothing_learned(trained.accuracy, CHANCE)


@contextlib.contextmanager
def _errors_are_listed_later() -> Iterator[None]:
    """Each bad sample is logged when it is met, which nobody could read between the live lines."""
    log, silent = logging.getLogger("feedline"), logging.NullHandler()
    log.addHandler(silent)
    try:
        yield
    finally:
        log.removeHandler(silent)
