"""The images: JPEG files, some of them damaged, and their metadata in SQLite; the dataset that reads them.

Takes: the demo's folder and how many images there shall be. Gives: the files, drawn once, and `Shapes`, a dataset.
Promises: the same images for the same number; a drawing that was interrupted is not taken for a finished one.
Not its job: what is on an image (shapes), the order in which they are read (training).
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import chain, cycle, islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image

import feedline
from feedline.demonstration.folder import Folder
from feedline.demonstration.shapes import CLASSES, RARE, draw

VERSION = 2  # a change in how images are drawn makes them anew
TIMES_RARER = 8
DAMAGED = 5
VIEW = 24
"""The classifier looks at grey images of this size."""


class Row(NamedTuple):
    """What the database knows of an image."""

    id: int
    path: str
    label: int
    split: str


Sample = tuple[npt.NDArray[np.float32], np.int64]


class Shapes(feedline.Dataset[Sample]):
    """One split of the images: two compact columns and no connection, so it travels to workers cheaply."""

    def __init__(self, folder: Folder, split: str, augment: bool = False) -> None:
        query = "SELECT path, label FROM images WHERE split = ? ORDER BY id"
        with closing(sqlite3.connect(folder.metadata)) as connection:
            rows = connection.execute(query, (split,)).fetchall()
        self.folder = folder.path
        self.paths = np.array([path for path, _ in rows])
        self.labels = np.array([label for _, label in rows], dtype=np.int64)
        self.augment = augment

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Sample:
        with Image.open(self.folder / str(self.paths[index])) as image:
            pixels = np.asarray(image.convert("L").resize((VIEW, VIEW)), dtype=np.float32)
        if self.augment:
            pixels = vary(pixels, feedline.rng())
        return (pixels - pixels.mean()) / (pixels.std() + 1), self.labels[index]

    def describe(self, index: int) -> str:
        """The path: what `loader.errors` says of an image that cannot be read."""
        return str(self.paths[index])


def vary(pixels: npt.NDArray[np.float32], random: np.random.Generator) -> npt.NDArray[np.float32]:
    """A mirror image or not, moved a little: anew in each epoch, whichever worker reads it (feedline.rng)."""
    if random.random() < 0.5:
        pixels = pixels[:, ::-1]
    return np.roll(pixels, random.integers(-2, 3, size=2), axis=(0, 1))


def are_drawn(folder: Folder, count: int) -> bool:
    """Whether an earlier run has finished drawing just these, and all of them are still there."""
    if not folder.metadata.exists():
        return False
    try:
        with closing(sqlite3.connect(folder.metadata)) as connection:
            version = connection.execute("PRAGMA user_version").fetchone()
            paths = {path for (path,) in connection.execute("SELECT path FROM images")}
    except sqlite3.Error:
        return False
    there = {f"images/{file.name}" for file in folder.images.glob("*.jpg")}
    return version == (VERSION,) and len(paths) == count and paths <= there


def draw_images(folder: Folder, count: int, progress: Callable[[int], None]) -> None:
    """Draw the images, cut some of the files short, and write the metadata: last, so that it vouches for the rest.

    `progress` is told how many there are, now and then.
    """
    rows = list(_rows(count))
    random = np.random.default_rng(0)
    with folder.writing():
        folder.metadata.unlink(missing_ok=True)
        shutil.rmtree(folder.images, ignore_errors=True)
        folder.images.mkdir()
        for row in rows:
            if row.id % 50 == 0:
                progress(row.id)
            Image.fromarray(draw(CLASSES[row.label], random)).save(folder.path / row.path, quality=85)
        damaged = _to_be_damaged(rows)
        for path in damaged:
            file = folder.path / path
            file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
        _write_metadata(folder, rows, damaged)


def damaged_indices(folder: Folder, images: Shapes) -> list[int]:
    """Which of the images were cut short, for the demo to check itself; a real database would not know."""
    with closing(sqlite3.connect(folder.metadata)) as connection:
        damaged = {path for (path,) in connection.execute("SELECT path FROM damaged")}
    return [index for index, path in enumerate(images.paths.tolist()) if path in damaged]


def _rows(count: int) -> Iterator[Row]:
    """A fifth to validate, each class equally often; the others to train, with rare classes."""
    validating = count // 5
    common = [label for label, name in enumerate(CLASSES) if name not in RARE]
    rare = [label for label, name in enumerate(CLASSES) if name in RARE]
    labels = chain(islice(cycle(range(len(CLASSES))), validating), cycle(common * TIMES_RARER + rare))
    for number, label in zip(range(count), labels, strict=False):
        yield Row(number, f"images/{number:05}.jpg", label, "validation" if number < validating else "train")


def _to_be_damaged(rows: list[Row]) -> list[str]:
    training = [row.path for row in rows if row.split == "train"]
    return training[:: -(-len(training) // DAMAGED)]


def _write_metadata(folder: Folder, rows: list[Row], damaged: list[str]) -> None:
    folder.unfinished.unlink(missing_ok=True)
    with closing(sqlite3.connect(folder.unfinished)) as connection, connection:
        connection.execute("PRAGMA journal_mode = OFF")  # an interrupted run's journal would be taken for this one's
        connection.execute("CREATE TABLE images (id INTEGER PRIMARY KEY, path TEXT, label INT, split TEXT)")
        connection.executemany("INSERT INTO images VALUES (?, ?, ?, ?)", rows)
        connection.execute("CREATE TABLE damaged (path TEXT)")
        connection.executemany("INSERT INTO damaged VALUES (?)", [(path,) for path in damaged])
        connection.execute(f"PRAGMA user_version = {VERSION}")
    folder.unfinished.replace(folder.metadata)
