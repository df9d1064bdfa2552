"""The training: some epochs, stopped in the middle of one and gone on with by another loader.

Takes: the demo's folder with its images, the number of epochs and workers. Gives: `Trained`.
Promises: the stop is a real one: of the first loader nothing is left but a file. Whether it went on exactly is found
out by comparing all batches of that epoch with those of a loader that was never stopped.
Not its job: the images, the model, the loaders, the words.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, zip_longest
from typing import NamedTuple

import numpy as np

from feedline import DataLoader, Flow
from feedline.demonstration import wording
from feedline.demonstration.classifier import Classifier
from feedline.demonstration.facts import Epoch, Resumption, Trained, Unreadable
from feedline.demonstration.folder import Folder
from feedline.demonstration.images import VIEW, Shapes
from feedline.demonstration.loaders import fingerprint, training_loader, uninterrupted, validation_loader
from feedline.demonstration.screen import Screen
from feedline.demonstration.shapes import CLASSES, RARE
from feedline.messages import BadSample
from feedline.recorder import Recorder

RATE = 0.01
REFRESH = 4
"""Batches between two looks at loader.stats(), which takes some milliseconds (docs/seeing.md)."""


@dataclass
class Learned:
    """How the classifier does in an epoch, and the batches it has had."""

    seen: int = 0
    right: int = 0
    loss: float = 0.0
    """Added up over all images."""
    batches: list[str] = field(default_factory=list)
    """Their fingerprints."""

    def so_far(self, flow: Flow, validation: float = 0.0) -> Epoch:
        """The same as plain facts."""
        seen = max(1, self.seen)
        return Epoch(
            number=flow.epoch + 1,
            num_workers=flow.num_workers,
            images_per_second=flow.samples_per_second,
            waited=flow.waiting_share,
            loss=self.loss / seen,
            accuracy=self.right / seen,
            validation=validation,
        )


class Validated(NamedTuple):
    """The share of the validation images that are told right, of all of them and of the rare classes."""

    every: float
    rare: float


class Training:
    """One run of it."""

    def __init__(self, folder: Folder, epochs: int, workers: int, screen: Screen) -> None:
        self.images = Shapes(folder, "train", augment=True)
        self.validation = Shapes(folder, "validation")
        self._folder, self._epochs, self._workers, self._screen = folder, epochs, workers, screen
        self._workers_before = 2 if workers == 1 else 1  # another number than after the stop
        self._model = Classifier(VIEW * VIEW, 256, len(CLASSES))
        self._told: list[Epoch] = []

    def run(self) -> Trained:
        """All epochs. The stop is in the second one, if there is one."""
        stop_in = min(1, self._epochs - 1)
        with validation_loader(self.validation, self._workers) as validating:
            with training_loader(self.images, self._workers_before) as loader:
                for _ in range(stop_in):
                    self._epoch(loader, validating, Learned())
                learned = self._until_the_stop(loader)
                flow, errors = loader.stats().total, loader.errors
            # Closed: of that loader and its workers nothing is left but a file.
            with training_loader(self.images, self._workers) as loader, self._report(loader):
                loader.load_state_dict(json.loads(self._folder.state.read_text()))
                before = len(learned.batches)
                validated = self._epoch(loader, validating, learned)
                resumption = self._compared(learned, before, stop_in)
                for _ in range(stop_in + 1, self._epochs):
                    validated = self._epoch(loader, validating, Learned())
                flow, errors = flow.plus(loader.stats().total), errors + loader.errors
        return Trained(
            epochs=self._told,
            resumption=resumption,
            unreadable=_unreadable(errors),
            images=flow.samples,
            steps=flow.batches,
            seconds=flow.seconds,
            images_per_second=flow.samples_per_second,
            waited=flow.waiting_share,
            accuracy=validated.every,
            rare_accuracy=validated.rare,
        )

    def _report(self, loader: DataLoader) -> Recorder:
        with self._folder.writing():
            return loader.report(self._folder.report)

    def _epoch(self, loader: DataLoader, validating: DataLoader, learned: Learned) -> Validated:
        """An epoch, or what is left of it, and what is to be said of it."""
        self._teach(loader, learned)
        validated = _validated(self._model, validating)
        self._told.append(learned.so_far(loader.stats().epoch, validated.every))
        self._screen.say(wording.epoch_ended(self._told[-1]))
        return validated

    def _teach(self, loader: DataLoader, learned: Learned, until: int | None = None) -> None:
        for number, (images, labels) in enumerate(islice(loader, until)):
            loss, right = self._model.step(images, labels, RATE)
            learned.loss += loss * len(labels)
            learned.seen += len(labels)
            learned.right += right
            learned.batches.append(fingerprint(images, labels))
            if self._screen.live and number % REFRESH == 0:
                self._screen.now(wording.epoch_so_far(learned.so_far(loader.stats().epoch)))

    def _until_the_stop(self, loader: DataLoader) -> Learned:
        """Half an epoch, and the loader's state in a file."""
        learned = Learned()
        self._teach(loader, learned, until=len(loader) // 2)
        with self._folder.writing():
            self._folder.state.write_text(json.dumps(loader.state_dict()))
        self._screen.say(
            wording.stopped(len(learned.batches), len(loader), loader.stats().epoch.epoch + 1, self._folder.state)
        )
        self._screen.say(wording.going_on(self._workers_before, self._workers))
        return learned

    def _compared(self, learned: Learned, before: int, epoch: int) -> Resumption:
        self._screen.now(wording.comparing())
        expected = uninterrupted(self.images, self._workers, epoch)
        pairs = enumerate(zip_longest(learned.batches, expected), start=1)
        different = [number for number, (had, right) in pairs if had != right]
        resumption = Resumption(
            epoch=epoch + 1,
            batches=len(expected),
            before=before,
            workers_before=self._workers_before,
            workers_after=self._workers,
            state=str(self._folder.state),
            exact=not different,
            different=different,
        )
        self._screen.say(wording.compared(resumption))
        return resumption


def _validated(model: Classifier, loader: DataLoader) -> Validated:
    found = [(model.guesses(images) == labels, labels) for images, labels in loader]
    right, labels = (np.concatenate(column) for column in zip(*found, strict=True))
    rare = np.isin(labels, [CLASSES.index(name) for name in RARE])
    return Validated(float(right.mean()), float(right[rare].mean()))


def _unreadable(errors: Iterable[BadSample]) -> list[Unreadable]:
    """Each file once, however often it was tried."""
    errors = list(errors)
    times = Counter(bad.index for bad in errors)
    latest = {bad.index: bad for bad in errors}
    return [
        Unreadable(int(index), bad.what, bad.error, times[index])
        for index, bad in sorted(latest.items(), key=lambda item: int(item[0]))
    ]
