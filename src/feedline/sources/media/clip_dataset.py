"""Datasets of pieces of long files: which file and time a sample is, where files are, what a sample is called.

Takes: paths, labels, a function that reads a piece, and how many pieces each file has. Gives: a map-style dataset.
Promises: one piece of each file at a drawn place, or all pieces at equal distances, numbered file after file; errors
name the file and the time; it can be pickled and opens nothing for longer than a sample.
Not its job: reading (sound_window, video_clip).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from math import floor
from typing import Any

import numpy as np

from feedline.datasets import Array, Dataset
from feedline.datasets.reading import LONGEST_DESCRIPTION, position
from feedline.errors import OptionTypeError, SourceError
from feedline.errors.checks import check_function
from feedline.errors.counting import counted
from feedline.errors.masking import file_name
from feedline.sources.given import PathLike, Taking, one_label_each
from feedline.sources.names import Names
from feedline.sources.places import FilePlace


class KnownSuffixes:
    """The suffixes that a dataset reads, for the check of paths."""

    def __init__(self, suffixes: tuple[str, ...]) -> None:
        self._suffixes = suffixes

    def suffix(self, name: str) -> str:
        """The suffix of a name, in lower case; "" if it is not one of those."""
        found = os.path.splitext(name)[1].lower()
        return found if found in self._suffixes else ""

    def remedy(self, name: str) -> str:
        """What to do about another file."""
        return f"the known suffixes are {' '.join(self._suffixes)}"


class ClipDataset(Dataset[Any]):
    """Pieces of files. A subclass defines `_read` and, if `every` is given, `_starts_in`."""

    every: float | None
    """Seconds from the beginning of one piece to that of the next; None: one piece of each file, at a drawn place."""
    labels: Array | None

    def __init__(
        self,
        paths: Iterable[PathLike],
        labels: Any,
        suffixes: tuple[str, ...],
        root: PathLike | FilePlace | None,
        transform: Callable[[Any], Any] | None,
    ) -> None:
        if isinstance(paths, str | bytes | os.PathLike) or not hasattr(paths, "__iter__"):
            raise OptionTypeError(f"paths must be a sequence of paths; got {paths!r}")
        taking = Taking(KnownSuffixes(suffixes), root)
        self.paths = Names(paths, taking)
        self._place, self._before = taking.place, taking.before
        self.transform = check_function("transform", transform)
        self._given_labels = None if labels is None else one_label_each(labels, len(self.paths))

    def _number(self, counts: Array | None) -> None:
        """Number the samples: so many of each file."""
        self._ends = None if counts is None else np.cumsum(counts, dtype=np.int64)
        given = self._given_labels
        self.labels = given if given is None or counts is None else np.repeat(given, counts, axis=0)

    def _read(self, source: str, file: int, start: float | None) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        if self._ends is None:
            return len(self.paths)
        return int(self._ends[-1]) if len(self._ends) else 0

    def __getitem__(self, index: int) -> Any:
        place = position(index, len(self), type(self).__name__)
        file, start = self._where(place)
        value = self.at(file, start)
        if self.transform is not None:
            value = self.transform(value)
        if self.labels is None:
            return value
        label = self.labels[place]
        return value, label.copy() if isinstance(label, np.ndarray) else label

    def at(self, file: int, start: float | None) -> Any:
        """The piece of the file with that number that begins `start` seconds after its beginning, without `transform`
        and label; None draws the place."""
        number = position(file, len(self.paths), "paths")
        name = self.paths[number]
        try:
            return self._read(self._source(name), number, start)
        except SourceError as error:
            raise SourceError(f"{file_name(self._path(name))}: {error}") from error.__cause__

    def local_files(self) -> Iterator[str]:
        """The paths of all files on disk: a cache of samples looks at their sizes and dates."""
        return map(self._path, self.paths) if self._place is None else iter(())

    def _where(self, place: int) -> tuple[int, float | None]:
        """The file and the time of a sample."""
        if self._ends is None:
            return place, None
        assert self.every is not None
        file = int(np.searchsorted(self._ends, place, "right"))
        first = int(self._ends[file - 1]) if file else 0
        return file, (place - first) * self.every

    def _path(self, name: str) -> str:
        return os.path.join(self._before, name)

    def _source(self, name: str) -> str:
        return self._path(name) if self._place is None else name

    def _reads_many(self) -> bool:
        """Are several read at once? No: each seeks in a file of its own."""
        return False

    def describe(self, index: int) -> str:
        """The path of a sample, and the second at which it begins; "" if there is no such sample."""
        if not -len(self) <= index < len(self):
            return ""
        file, start = self._where(index % len(self))
        path = file_name(self._path(self.paths[file])) + ("" if start is None else f" from {start:g} s on")
        return path if len(path) < LONGEST_DESCRIPTION else "…" + path[2 - LONGEST_DESCRIPTION :]

    def __repr__(self) -> str:
        pieces = "" if self._ends is None else f", {counted(len(self), 'piece')}"
        return f"{type(self).__name__}({counted(len(self.paths), 'file')}{pieces})"


def count_of(length: float, seconds: float, every: float, pad: bool) -> int:
    """How many pieces of `seconds` begin `every` seconds after one another in a file of that length.

    >>> count_of(2.5, 1.0, 0.5, pad=False), count_of(2.5, 1.0, 0.5, pad=True), count_of(0.5, 1.0, 0.5, pad=False)
    (4, 4, 0)
    >>> count_of(2.6, 1.0, 0.5, pad=True), count_of(0.5, 1.0, 0.5, pad=True)
    (5, 1)
    """
    over = (length - seconds) / every + 1e-6  # a frame is longer than a millionth of a distance
    whole = floor(over) + 1 if over >= 0 else 0  # of a film that is too short, over is minus infinity
    if pad and length > 0:
        covered = (whole - 1) * every + seconds if whole else 0.0
        return whole + (length > covered + 1e-6 and whole * every < length)
    return whole
