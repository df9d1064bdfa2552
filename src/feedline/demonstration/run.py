"""The demo from beginning to end, and what it prints.

Takes: a folder, the numbers of images, epochs and workers, a screen. Gives: what --json writes, as a dict.
Promises: what it shows is checked: it continued exactly after the stop, and only the damaged files that were read were
left out. Nothing is written outside the folder.
Not its job: drawing (images), training (training).
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from feedline import RandomSampler
from feedline.demonstration import images
from feedline.demonstration.images import CLASSES, RARE
from feedline.demonstration.screen import Screen
from feedline.demonstration.training import BATCH, SEED, Labels, Training, balanced
from feedline.errors.counting import counted
from feedline.workers.one_thread import use_one_thread


def run(folder: Path, count: int, epochs: int, workers: int, screen: Screen) -> dict[str, Any]:
    """Run the whole demo."""
    started = time.perf_counter()
    images.claim(folder)
    use_one_thread()  # the workers use all cores: NumPy's own threads would compete with them
    screen.heading("feedline demo: image files, their labels in SQLite, a small classifier in NumPy")
    screen.heading("\n1  Images, some classes rare")
    screen.say(f"Drawing {count:,} images in {folder}.")
    for ready in images.draw_images(folder, count):
        screen.now(f"{ready:,} of {count:,}")
    training = Training(folder, screen)
    labels, damaged = training.images.labels, images.damaged_indices(len(training.images))
    describe(labels, count - len(labels), screen)
    screen.heading("\n2  Damaged files")
    screen.say(f"{len(damaged)} training files are cut short. They will be left out.", 'DataLoader(…, on_error="skip")')
    screen.heading("\n3  Training, with a stop in the middle")
    screen.say("waited: the share of its time that training waited for images.")
    stop = training.run(epochs, workers)
    outcome = ending(training, screen)
    report, seconds = str((folder / "report.html").resolve()), time.perf_counter() - started
    screen.heading("\n5  Where the time went: open this in a browser")
    screen.say(report, "loader.report(path)")
    screen.say(f"{seconds:.0f} s in all.")
    order = balanced(labels)
    drawn = {index for _ in range(epochs) for index in order}  # each iteration by hand is the next epoch
    if wrong := sorted(set(outcome["unreadable"]) ^ (drawn & set(damaged))):
        training.problems.append(f"loader.errors() should have just the damaged files; missing or too many: {wrong}")
    for problem in training.problems:
        screen.heading(f"problem  {problem}", "bold red")
    about = {"folder": str(folder), "report": report, "seconds": seconds, "problems": training.problems}
    return {**about, "epochs": training.epochs, "resumption": stop, **outcome}


def describe(labels: Labels, validation: int, screen: Screen) -> None:
    """Print what the data is, and how often a rare class comes."""
    screen.say(f"{len(labels):,} to train on, {validation:,} to validate, {len(CLASSES)} classes;")
    screen.say(f"{' and '.join(RARE)} are {images.TIMES_RARER} times rarer than the others in training.")
    screen.say(f"Of {BATCH} images in a batch, this many are {RARE[0]}, on average:")
    screen.say(rarity(labels, RandomSampler(labels, seed=SEED), "shuffled"), "shuffle=True")
    screen.say(rarity(labels, balanced(labels), "drawn by weight"), "sampler=WeightedRandomSampler(…)")
    screen.say("The weight is one over the class's size.", "weights_from_labels(labels)")


def rarity(labels: Labels, order: Iterable[int], how: str) -> str:
    """How many samples of a batch are of the first rare class, in the order that the loader uses."""
    drawn = labels[list(order)] == CLASSES.index(RARE[0])
    counts = drawn[: len(drawn) // BATCH * BATCH].reshape(-1, BATCH).sum(axis=1)
    none = float((counts == 0).mean())
    return f"  {counts.mean():4.1f} {how}" + (f" ({none:.0%} of batches: none)" if none else "")


def ending(training: Training, screen: Screen) -> dict[str, Any]:
    """The results, in words and as data."""
    flow, times = training.flow, Counter(int(bad.index) for bad in training.errors)
    rare = np.isin(training.validation.labels, [CLASSES.index(name) for name in RARE])
    accuracy, of_rare = float(training.right.mean()), float(training.right[rare].mean())
    reasons = {int(bad.index): f"{Path(bad.what).name}  {bad.error.rpartition(': ')[2]}" for bad in training.errors}
    screen.heading("\n4  How it went")
    screen.say(f"{flow.samples:,} images in {flow.seconds:.1f} s: {flow.samples_per_second:,.0f} images/s.")
    screen.say(f"Training waited {flow.waiting_share:.0%} of its time for them.", "loader.stats()")
    came_up = counted(sum(times.values()), "time")
    screen.say(f"{counted(len(times), 'damaged file')} came up {came_up}:", "loader.errors()")
    for index in sorted(times):
        screen.say(f"  index {index:5}  images/{reasons[index]}")
    screen.say(f"{accuracy:.1%} of the validation images are classified correctly; of the rare classes {of_rare:.1%}.")
    return {"images": flow.samples, "accuracy": accuracy, "rare_accuracy": of_rare, "unreadable": dict(times)}
