"""The images: JPEG files, some of them damaged, and their labels in SQLite; the dataset that reads them.

Takes: a folder and the number of images. Gives: the files, and a dataset of them.
Promises: a folder that holds anything but a demo is refused and not changed; one that cannot be written to is an
OptionError. The same number gives the same images.
Not its job: the order in which images are read (training).
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import numpy as np
import numpy.typing as npt
from PIL import Image

import feedline
from feedline.errors import OptionError
from feedline.sources import FilesDataset

CLASSES = ("disk", "ring", "square", "cross", "stripes", "checks")
RARE = ("ring", "cross")
TIMES_RARER, DAMAGED = 8, 5
SIZE, VIEW = 96, 24  # files have 96 x 96 pixels in colour, the classifier sees 24 x 24 in grey
MARK = "Everything in this folder was made by `feedline demo`, which may delete it or write it anew. So may you.\n"


def shapes(folder: Path, split: str) -> FilesDataset:
    """One split of the images: the database names files and labels, the workers read the files."""
    query = "SELECT path, label FROM images WHERE split = ? ORDER BY id"
    with contextlib.closing(sqlite3.connect(folder / "metadata.sqlite")) as connection:
        paths, labels = zip(*connection.execute(query, (split,)), strict=True)
    view = augmented if split == "train" else normalised
    return FilesDataset(paths, labels, size=(VIEW, VIEW), mode="L", root=folder, transform=view)


def augmented(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """The image, perhaps mirrored, and moved a little: different in each epoch, and the same in any worker."""
    random = feedline.rng()
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return normalised(np.roll(pixels, random.integers(-2, 3, size=2), axis=(0, 1)))


def normalised(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """What the classifier gets: one row of numbers around 0."""
    row = pixels.ravel().astype(np.float32)
    row -= row.mean()
    row /= row.std() + 1
    return row


@contextlib.contextmanager
def writing(folder: Path) -> Iterator[None]:
    """An OSError in this block is about the folder, and becomes an OptionError."""
    try:
        yield
    except OSError as error:
        raise OptionError(f"folder must be one that can be written to, but {folder} is not: {error}") from error


def claim(folder: Path) -> None:
    """Make the folder, or check that it is a demo's; OptionError if it cannot be used."""
    mark = folder / "README.txt"
    with writing(folder):
        ours = mark.is_file() and mark.read_text(errors="replace") == MARK
        if folder.exists() and any(folder.iterdir()) and not ours:
            raise OptionError(
                f"folder must be new, empty or left by an earlier demo, but {folder} holds other things: "
                "name another one with --folder"
            )
        folder.mkdir(parents=True, exist_ok=True)
        mark.write_text(MARK)


def draw_images(folder: Path, count: int) -> Iterator[int]:
    """Draw the images: a fifth to validate, each class equally often; the others to train. Yields the number so far."""
    rare = [CLASSES.index(name) for name in RARE]
    common = [label for label in range(len(CLASSES)) if label not in rare]
    labels = {"validation": cycle(range(len(CLASSES))), "train": cycle(common * TIMES_RARER + rare)}
    validating, random, rows = count // 5, np.random.default_rng(0), []
    with writing(folder):
        shutil.rmtree(folder / "images", ignore_errors=True)  # those of an earlier demo
        (folder / "images").mkdir()
        for number in range(count):
            yield number
            split = "validation" if number < validating else "train"
            path, label = f"images/{number:05}.jpg", next(labels[split])
            Image.fromarray(draw(CLASSES[label], random)).save(folder / path, quality=85)
            rows.append((number, path, label, split))
        for index in damaged_indices(count - validating):
            file = folder / rows[validating + index][1]
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        (folder / "metadata.sqlite").unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(folder / "metadata.sqlite")) as connection, connection:
            connection.execute("CREATE TABLE images (id INTEGER PRIMARY KEY, path TEXT, label INT, split TEXT)")
            connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?)", rows)


def damaged_indices(training: int) -> range:
    """Which of the training images are cut short: a few, spread evenly."""
    return range(0, training, -(-training // DAMAGED))


def draw(name: str, random: np.random.Generator) -> npt.NDArray[np.uint8]:
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
