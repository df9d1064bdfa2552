"""feedline in one file: images on disk, their metadata in SQLite, a NumPy classifier, two worker processes.

    python examples/demo.py

The first run draws 2,000 small images into build/demo. Every run then trains on them for some seconds, says
how fast the images came and how long the training waited for them, and writes build/demo/report.html: where the
time went, for whoever wants to know whether the loader was the bottleneck (loader.report).
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

# The workers fill the cores; without this, NumPy's own threads would fight them for each small multiplication.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from PIL import Image

import feedline
from feedline import DataLoader, Dataset, Flow

FOLDER = Path(__file__).resolve().parent.parent / "build" / "demo"
CLASSES = ("disk", "ring", "square", "cross", "stripes", "checks")
IMAGES, SIZE, VERSION = 2000, 96, 1  # VERSION: a change in how images are drawn makes them anew
VIEW = 24  # the classifier looks at grey images of this size
EPOCHS, BATCH, WORKERS = 10, 64, 2


# ── The dataset: metadata by one query, images one by one ─────────────────────────────────────────────────


class Shapes(Dataset):
    """One split of the images: two compact columns and no connection, so it travels to workers cheaply."""

    def __init__(self, folder: Path, split: str, augment: bool = False) -> None:
        query = "SELECT path, label FROM images WHERE split = ? ORDER BY id"
        with closing(sqlite3.connect(folder / "metadata.sqlite")) as connection:
            rows = connection.execute(query, (split,)).fetchall()
        self.folder = folder
        self.paths = np.array([path for path, _ in rows])
        self.labels = np.array([label for _, label in rows], dtype=np.int64)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        with Image.open(self.folder / str(self.paths[index])) as image:
            pixels = np.asarray(image.convert("L").resize((VIEW, VIEW)), dtype=np.float32)
        if self.augment:
            pixels = vary(pixels, feedline.rng())
        return (pixels - pixels.mean()) / (pixels.std() + 1), self.labels[index]


def vary(pixels: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A mirror image or not, moved a little: anew in each epoch, whichever worker reads it (feedline.rng)."""
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return np.roll(pixels, random.integers(-2, 3, size=2), axis=(0, 1))


# ── The model: one hidden layer, plain NumPy ──────────────────────────────────────────────────────────────


class Classifier:
    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        random = np.random.default_rng(0)
        self.weights = [
            random.normal(0, np.sqrt(2 / inputs), (inputs, hidden)).astype(np.float32),
            random.normal(0, np.sqrt(2 / hidden), (hidden, outputs)).astype(np.float32),
        ]
        self.velocity = [np.zeros_like(weight) for weight in self.weights]

    def probabilities(self, images: np.ndarray) -> np.ndarray:
        return self._forward(images)[1]

    def step(self, images: np.ndarray, labels: np.ndarray, rate: float) -> tuple[float, int]:
        """One step of gradient descent with momentum. Gives the mean loss and how many were right."""
        hidden, probabilities = self._forward(images)
        rows = np.arange(len(labels))
        error = probabilities.copy()
        error[rows, labels] -= 1
        error /= len(labels)
        back = (error @ self.weights[1].T) * (hidden > 0)
        for place, gradient in enumerate((_flat(images).T @ back, hidden.T @ error)):
            self.velocity[place] = 0.9 * self.velocity[place] - rate * gradient
            self.weights[place] += self.velocity[place]
        loss = -np.log(probabilities[rows, labels] + 1e-9).mean()
        return float(loss), int((probabilities.argmax(axis=1) == labels).sum())

    def _forward(self, images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        hidden = np.maximum(_flat(images) @ self.weights[0], 0)
        scores = hidden @ self.weights[1]
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, raised / raised.sum(axis=1, keepdims=True)


def _flat(images: np.ndarray) -> np.ndarray:
    return images.reshape(len(images), -1)


# ── Training and what is measured meanwhile ───────────────────────────────────────────────────────────────


@dataclass
class Learned:
    """How the classifier does in an epoch."""

    seen: int = 0
    right: int = 0
    loss: float = 0.0
    """Added up over all images."""
    validation: float = 0.0

    def __str__(self) -> str:
        seen = max(1, self.seen)
        return f"loss {self.loss / seen:.3f}   accuracy {self.right / seen:6.1%}"


def train_epoch(model: Classifier, loader: DataLoader) -> Learned:
    learned = Learned()
    for number, (images, labels) in enumerate(loader):
        loss, right = model.step(images, labels, rate=0.01)
        learned.loss += loss * len(labels)
        learned.seen += len(labels)
        learned.right += right
        if number % 4 == 0 and sys.stdout.isatty():
            print(f"\r\x1b[K{line(loader, learned)}", end="", flush=True)
    return learned


def line(loader: DataLoader, learned: Learned) -> str:
    """How the epoch goes; on a terminal it is refreshed while it runs."""
    flow = loader.stats().epoch
    return (
        f"epoch {flow.epoch + 1:2}   {flow.samples_per_second:6,.0f} images/s   {learned}   "
        f"waited {flow.waiting_share:4.0%} of the time"
    )


def evaluate(model: Classifier, loader: DataLoader) -> np.ndarray:
    """The predicted class of every image, in the dataset's order."""
    return np.concatenate([model.probabilities(images).argmax(axis=1) for images, _ in loader])


def train(folder: Path, report: Path) -> tuple[Flow, float]:
    """How the batches flowed, and the share of validation images that are told right in the end."""
    training, validation = Shapes(folder, "train", augment=True), Shapes(folder, "validation")
    print(f"{len(training):,} images to train on, {len(validation):,} to validate, {len(CLASSES)} classes")
    model = Classifier(VIEW * VIEW, 256, len(CLASSES))
    options = {"batch_size": BATCH, "num_workers": WORKERS, "persistent_workers": True, "seed": 7}
    with (
        DataLoader(training, shuffle=True, **options) as training_batches,
        DataLoader(validation, **options) as validation_batches,
        training_batches.report(report),
    ):
        for _ in range(EPOCHS):
            learned = train_epoch(model, training_batches)
            learned.validation = float((evaluate(model, validation_batches) == validation.labels).mean())
            begin = "\r\x1b[K" if sys.stdout.isatty() else ""
            print(f"{begin}{line(training_batches, learned)}   validation {learned.validation:6.1%}", flush=True)
        return training_batches.stats().total, learned.validation


# ── The images: drawn once ────────────────────────────────────────────────────────────────────────────────


def prepare(folder: Path) -> None:
    """Draw the images and write their metadata, unless an earlier run has finished doing so."""
    database = folder / "metadata.sqlite"
    if database.exists():
        with closing(sqlite3.connect(database)) as connection:
            if connection.execute("PRAGMA user_version").fetchone() == (VERSION,):
                return
    print(f"drawing {IMAGES:,} images into {folder} …")
    (folder / "images").mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    rows = []
    for number in range(IMAGES):
        label = number % len(CLASSES)
        path = f"images/{number:05}.jpg"
        Image.fromarray(draw(CLASSES[label], random)).save(folder / path, quality=85)
        rows.append((number, path, label, "validation" if random.random() < 0.2 else "train"))
    unfinished = folder / "metadata.unfinished"
    unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(unfinished)) as connection, connection:
        connection.execute("CREATE TABLE images (id INTEGER PRIMARY KEY, path TEXT, label INT, split TEXT)")
        connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?)", rows)
        connection.execute(f"PRAGMA user_version = {VERSION}")
    os.replace(unfinished, database)  # last, so that an interrupted run is not taken for a finished one


def draw(name: str, random: np.random.Generator) -> np.ndarray:
    """A shape or texture in two random colours, somewhere near the middle, with noise on top."""
    down, across = np.mgrid[0:SIZE, 0:SIZE] - SIZE / 2
    y, x = np.abs(down - random.normal(0, 9)), np.abs(across - random.normal(0, 9))
    distance, radius = np.hypot(x, y), SIZE * random.uniform(0.2, 0.35)
    period = SIZE / random.uniform(3, 5)
    bands, columns = np.sin(2 * np.pi * down / period), np.sin(2 * np.pi * across / period)
    inside = {
        "disk": distance < radius,
        "ring": np.abs(distance - radius) < SIZE / 14,
        "square": np.maximum(x, y) < radius * 0.9,
        "cross": (np.minimum(x, y) < SIZE / 14) & (np.maximum(x, y) < radius * 1.3),
        "stripes": bands > 0,
        "checks": bands * columns > 0,
    }[name]
    back, front = random.uniform(20, 130, 3), random.uniform(120, 235, 3)
    pixels = np.where(inside[..., None], front, back) + random.normal(0, 35, (SIZE, SIZE, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8)


def main() -> int:
    started = time.perf_counter()
    prepare(FOLDER)
    report = FOLDER / "report.html"
    flow, accuracy = train(FOLDER, report)
    print(
        f"\n{flow.samples:,} images in {flow.seconds:.1f} s of training ({flow.samples_per_second:,.0f} images/s), "
        f"{flow.waiting_share:.0%} of it waiting for data; validation accuracy {accuracy:.1%}; "
        f"{time.perf_counter() - started:.0f} s in all\nreport: {report}"
    )
    if accuracy < 2 / len(CLASSES):
        print(f"worse than twice chance ({2 / len(CLASSES):.0%}): something is wrong", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":  # needed wherever worker processes may be spawned
    sys.exit(main())
