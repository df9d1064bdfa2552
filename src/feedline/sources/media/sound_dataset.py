"""Recordings as a dataset: whole ones, one window of each, or all windows.

Takes: paths and labels. Gives: a `Sound`, or a pair of it and its label.
Promises: those of clip_dataset and sound_window; lengths are read from headers when the dataset is made, and only if
windows are numbered.
Not its job: reading a window (sound_window).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from feedline.errors import OptionError, SourceError
from feedline.errors.checks import check_positive
from feedline.sources.decoding.sound import Sound
from feedline.sources.given import PathLike
from feedline.sources.media.clip_dataset import ClipDataset, count_of
from feedline.sources.media.sound_window import SUFFIXES, SoundWindow
from feedline.sources.places import FilePlace


class SoundDataset(ClipDataset):
    """Recordings (`.flac`, `.mp3`, `.ogg`, `.opus`, `.wav`, `.aiff`): `(samples, rate)`, with a label if there are any.

    Without `seconds` a sample is a whole recording; with it, one window of each at a place drawn from
    `feedline.rng()`; with `every`, all windows that begin `every` seconds after one another, so that `every=seconds`
    covers the recordings without overlap (what is left at an end is not read; `pad=True` fills it up with zeros). A
    recording that is shorter than a window, or damaged, is one sample, which is an error. `rate`, `mono`, `pad` and
    `channels_first` are those of `SoundWindow`. `labels` has one label for each path. Only the window is read and
    decoded. Paths may be URLs (`s3://…`) of one bucket, or names within `root`.

    >>> import pathlib, tempfile, soundfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "a.flac", np.zeros((20_000, 2), np.float32), 8000)
    >>> data = SoundDataset([folder / "a.flac"], labels=[7], seconds=1.0, every=0.5, rate=16_000, mono=True)
    >>> (samples, rate), label = data[3]
    >>> len(data), samples.shape, rate, int(label)
    (4, (16000, 1), 16000, 7)
    """

    def __init__(
        self,
        paths: Iterable[PathLike],
        labels: Any = None,
        *,
        seconds: float | None = None,
        every: float | None = None,
        rate: int | None = None,
        mono: bool = False,
        pad: bool = False,
        channels_first: bool = False,
        root: PathLike | FilePlace | None = None,
        transform: Callable[[Any], Any] | None = None,
    ) -> None:
        self.window = SoundWindow(seconds, rate=rate, mono=mono, pad=pad, channels_first=channels_first)
        self.every = None if every is None else check_positive("every", every)
        if self.every is not None and seconds is None:
            raise OptionError("every is the distance between windows: it needs seconds=, their length")
        super().__init__(paths, labels, SUFFIXES, root, transform)
        self.window.check_packages()
        self._number(None if self.every is None else np.array([self._count(name) for name in self.paths], np.int64))

    def _count(self, name: str) -> int:
        """How many windows a recording has. One that has none or cannot be read has one, which says so."""
        assert self.every is not None
        assert self.window.seconds is not None
        try:
            length = self.window.seconds_of(self._source(name), self._place)
        except (SourceError, OSError):
            return 1
        return max(1, count_of(length, self.window.seconds, self.every, self.window.pad))

    def _read(self, source: str, file: int, start: float | None) -> Sound:
        return self.window.read(source, self._place, 0.0 if self.window.seconds is None else start)
