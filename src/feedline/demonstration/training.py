"""The training: epochs of a small network in NumPy; one is stopped in the middle and continued by a new loader.

Takes: the demo's folder with its images, a number of epochs and workers. Gives: `Training`, which has the results.
Promises: the loader is one that a user would write. The stop is real: nothing is left of the first loader except a
file. To check that training continued exactly, each batch is compared with that of a loader that was never stopped.
Not its job: the images; what is printed before and after (run).
"""

from __future__ import annotations

import hashlib
import json
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline import DataLoader, EpochStats, WeightedRandomSampler, weights_from_labels
from feedline.demonstration.images import CLASSES, VIEW, shapes, writing
from feedline.demonstration.screen import Screen
from feedline.errors.counting import counted
from feedline.messages.outcome import BadSample
from feedline.observe.recorder import Recorder
from feedline.sources import FilesDataset

BATCH, SEED, RATE = 64, 7, 0.01
FEWEST_BATCHES = 4  # with fewer there would be too little before and after the stop
REFRESH = 4  # batches between two calls of loader.stats(), which takes some milliseconds (docs/seeing.md)
EPOCH = "epoch {number:2}  {images_per_second:6,.0f} images/s  waited {waited:4.0%}  loss {loss:.3f}"

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]
Learned = list[tuple[float, str]]  # an epoch so far: the loss of each batch, and the batch's fingerprint


def balanced(labels: Labels) -> WeightedRandomSampler:
    """A sampler that draws each class equally often; whole batches only."""
    batches = max(FEWEST_BATCHES, len(labels) // BATCH)
    return WeightedRandomSampler(weights_from_labels(labels), num_samples=batches * BATCH, seed=SEED)


def training_loader(images: FilesDataset, workers: int) -> DataLoader:
    """Rare classes come as often as the others; files that cannot be read are left out."""
    return DataLoader(
        images,
        batch_size=BATCH,
        sampler=balanced(images.labels),
        on_error="skip",
        num_workers=workers,
        persistent_workers=workers > 0,
        seed=SEED,
    )


class Classifier:
    """A network with one hidden layer.

    >>> model, images, labels = Classifier(4, 8, 2), np.eye(4, dtype=np.float32), np.array([0, 0, 1, 1])
    >>> losses = [model.step(images, labels, rate=0.1) for _ in range(50)]
    >>> losses[-1] < losses[0] / 2, model.forward(images)[1].argmax(axis=1).tolist()
    (True, [0, 0, 1, 1])
    """

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        random, sizes = np.random.default_rng(0), [(inputs, hidden), (hidden, outputs)]
        self.weights = [random.normal(0, np.sqrt(2 / size[0]), size).astype(np.float32) for size in sizes]
        self.velocity = [np.zeros_like(weight) for weight in self.weights]

    def forward(self, images: Floats) -> tuple[Floats, Floats]:
        """The hidden layer, and the probability of each class."""
        hidden = np.maximum(images @ self.weights[0], 0)
        scores = hidden @ self.weights[1]
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, raised / raised.sum(axis=1, keepdims=True)

    def step(self, images: Floats, labels: Labels, rate: float) -> float:
        """One step of gradient descent with momentum; returns the loss."""
        hidden, probabilities = self.forward(images)
        error = (probabilities - np.eye(probabilities.shape[1], dtype=np.float32)[labels]) / len(labels)
        back = (error @ self.weights[1].T) * (hidden > 0)
        for place, gradient in enumerate((images.T @ back, hidden.T @ error)):
            self.velocity[place] = 0.9 * self.velocity[place] - rate * gradient
            self.weights[place] += self.velocity[place]
        return float(-np.log(probabilities[np.arange(len(labels)), labels] + 1e-9).mean())


class Training:
    """One run of the training."""

    def __init__(self, folder: Path, screen: Screen) -> None:
        self.images, self.validation = shapes(folder, "train"), shapes(folder, "validation")
        self.epochs, self.errors, self.flow = list[dict[str, Any]](), list[BadSample](), EpochStats()
        self.problems: list[str] = []  # anything that is not as it should be
        self.right = np.zeros(len(self.validation), np.bool_)  # which validation images are classified correctly
        self._folder, self._screen, self._model = folder, screen, Classifier(VIEW * VIEW, 256, len(CLASSES))

    def run(self, epochs: int, workers: int) -> dict[str, Any]:
        """Run all epochs; returns how it continued after the stop, which is in the second epoch if there is one."""
        stop_in, state, say = min(1, epochs - 1), self._folder / "state.json", self._screen.say
        workers_before = 2 if workers == 1 else 1  # a different number than after the stop
        with training_loader(self.images, workers_before) as loader:
            for _ in range(stop_in):
                self._finish(loader, [])
            learned = self._teach(loader, [], until=len(loader) // 2)
            with writing(self._folder):
                state.write_text(json.dumps(loader.state_dict()))
            self.flow, self.errors = loader.stats().total, loader.errors()
        before = len(learned)
        say(f"Stopped after {before} of the {len(loader)} batches of epoch {stop_in + 1}.")
        say(f"Saved: {state}", "loader.state_dict()")
        say(f"The loader is deleted, with its {counted(workers_before, 'worker')}.", "loader.close()")
        with training_loader(self.images, workers) as loader, self._report(loader):
            loader.load_state_dict(json.loads(state.read_text()))
            say(f"A new loader with {counted(workers, 'worker')} continues.", "loader.load_state_dict(state)")
            self._finish(loader, learned)
            exact = self._compare(learned, before, stop_in, workers)
            for _ in range(stop_in + 1, epochs):
                self._finish(loader, [])
            self.flow, self.errors = self.flow.plus(loader.stats().total), self.errors + loader.errors()
        about = {"epoch": stop_in + 1, "before": before, "batches": len(learned), "exact": exact}
        return {**about, "workers_before": workers_before, "workers_after": workers}

    def _teach(self, loader: DataLoader, learned: Learned, until: int | None = None) -> Learned:
        for number, (images, labels) in enumerate(islice(loader, until)):
            learned.append((self._model.step(images, labels, RATE), fingerprint(images, labels)))
            if self._screen.live and number % REFRESH == 0:
                self._screen.now(EPOCH.format(**facts(loader, learned)))
        return learned

    def _finish(self, loader: DataLoader, learned: Learned) -> None:
        """Finish an epoch, or the rest of one; then validate."""
        found = facts(loader, self._teach(loader, learned))
        batches = DataLoader(self.validation, BATCH)
        self.right = np.concatenate([self._model.forward(x)[1].argmax(axis=1) == labels for x, labels in batches])
        self.epochs.append({**found, "validation": float(self.right.mean())})
        self._screen.say((EPOCH + "  validation {validation:4.0%}").format(**self.epochs[-1]))

    def _compare(self, learned: Learned, before: int, epoch: int, workers: int) -> bool:
        """Were all batches of that epoch the same as those of a loader that was never stopped?"""
        self._screen.now("comparing with a loader that is never stopped …")
        with training_loader(self.images, workers) as loader:
            loader.set_epoch(epoch)
            expected = [fingerprint(*batch) for batch in loader]
        pairs = enumerate(zip_longest([batch for _, batch in learned], expected), start=1)
        if different := [number for number, (had, right) in pairs if had != right]:
            differ = f"{len(different)} of {len(expected)} batches differ, from batch {different[0]} on"
            self.problems.append(
                f"Epoch {epoch + 1} did not continue after the stop as it would have without one: {differ}"
            )
            return False
        after = counted(len(expected) - before, "batch")
        self._screen.say(f"Checked: the {after} after the stop, and the {before} before it,")
        self._screen.say("are bit for bit those of a loader that was never stopped.")
        return True

    def _report(self, loader: DataLoader) -> Recorder:
        with writing(self._folder):
            return loader.report(self._folder / "report.html")


def facts(loader: DataLoader, learned: Learned) -> dict[str, Any]:
    """How an epoch is going, and how fast images come; epochs are counted from 1."""
    flow, loss = loader.stats().epoch, float(np.mean([loss for loss, _ in learned]))
    speed = {"images_per_second": flow.samples_per_second, "waited": flow.waiting_share}
    return {"number": flow.number + 1, "num_workers": flow.num_workers, **speed, "loss": loss}


def fingerprint(images: Floats, labels: Labels) -> str:
    """A text that is the same only for the same batch, bit for bit."""
    return hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()
