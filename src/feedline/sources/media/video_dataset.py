"""Films as a dataset: one clip of each, or all clips.

Takes: paths and labels. Gives: pixels (frames, height, width, 3), or a pair of them and a label.
Promises: those of clip_dataset and video_clip; where the frames are is found once, when the dataset is made, and kept
in a file if one is named.
Not its job: reading a clip (video_clip), where frames are (video_index).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from feedline.datasets import Array
from feedline.datasets.reading import position
from feedline.errors import SourceError
from feedline.errors.checks import check_file, check_positive
from feedline.sources.decoding.by_suffix import MAX_PIXELS
from feedline.sources.given import PathLike
from feedline.sources.media.clip_dataset import ClipDataset, count_of
from feedline.sources.media.video_clip import SUFFIXES, VideoClip
from feedline.sources.media.video_index import NONE, UNKNOWN, Frames, Stamp, index_of
from feedline.sources.places import FilePlace


class VideoDataset(ClipDataset):
    """Films (`.mp4`, `.mkv`, `.mov`, `.webm`, `.avi`, `.mpg`, `.ts`): clips of `frames` pictures, and the label if any.

    One clip of each film, at a place drawn from `feedline.rng()`; with `every`, all clips that begin `every` seconds
    after one another. `fps` pictures a second (None: successive ones), `size`, `pad` and `channels_first` are those of
    `VideoClip`. Where the frames are is read from the films once, without decoding; `index="frames.npz"` keeps it for
    the next time. Only frames from the nearest key frame on are decoded.

    >>> import av, pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "a.mp4"
    >>> with av.open(path, "w") as film:
    ...     stream = film.add_stream("mpeg4", rate=25)
    ...     stream.width, stream.height = 64, 48
    ...     for number in range(50):
    ...         picture = av.VideoFrame.from_ndarray(np.full((48, 64, 3), 4 * number, np.uint8))
    ...         film.mux(stream.encode(picture))
    ...     film.mux(stream.encode())
    >>> data = VideoDataset([path], labels=[3], frames=4, fps=5, every=0.2)
    >>> pixels, label = data[1]
    >>> len(data), pixels.shape, int(label)
    (7, (4, 48, 64, 3), 3)
    >>> data.second_of(0, 10), bool((data.at(0, data.second_of(0, 10)) == data[2][0]).all())
    (0.4, True)
    """

    def __init__(
        self,
        paths: Iterable[PathLike],
        labels: Any = None,
        *,
        frames: int,
        fps: float | None = None,
        every: float | None = None,
        size: tuple[int, int] | None = None,
        pad: bool = False,
        channels_first: bool = False,
        index: PathLike | None = None,
        root: PathLike | FilePlace | None = None,
        transform: Callable[[Any], Any] | None = None,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        options: dict[str, Any] = {"size": size, "pad": pad, "channels_first": channels_first, "max_pixels": max_pixels}
        self.clip = VideoClip(frames, fps, **options)
        self.every = None if every is None else check_positive("every", every)
        super().__init__(paths, labels, SUFFIXES, root, transform)
        self.clip.check_packages()
        file = None if index is None else check_file("index", os.fspath(index))
        self._index = index_of(self.paths, self._stamp, self._frames, file)
        self._number(None if self.every is None else np.array([*map(self._count, range(len(self.paths)))], np.int64))

    def _stamp(self, name: str) -> Stamp:
        if self._place is not None:
            try:
                return self._place.size(name), 0
            except (SourceError, OSError):
                return UNKNOWN
        try:
            about = os.stat(self._path(name))
        except OSError:  # whoever asks for its sample is told
            return UNKNOWN
        return about.st_size, about.st_mtime_ns

    def _frames(self, name: str) -> Frames:
        try:
            return self.clip.index(self._source(name), self._place)
        except (SourceError, OSError):
            return NONE

    def _count(self, file: int) -> int:
        """How many clips a film has. One that has none or cannot be read has one, which says so."""
        assert self.every is not None
        film = self._index[file]
        if film.is_unknown:
            return 1
        count = count_of(film.seconds, self.clip.seconds(film), self.every, self.clip.pad)
        while not self.clip.pad and count and not self.clip.fits(film, (count - 1) * self.every):
            count -= 1  # a clip that would begin just where there are too few frames left
        return max(1, count)

    def second_of(self, file: int, frame: int) -> float:
        """When a frame of a file is shown: `data.at(3, data.second_of(3, 250))` begins with frame 250 of file 3."""
        film = self._index[position(file, len(self.paths), "paths")]
        return float(film.times[position(frame, len(film.times), "frames")] - film.times[0]) * film.unit

    def _read(self, source: str, file: int, start: float | None) -> Array:
        film = self._index[file]
        if film.is_unknown:  # this says why, or it has been repaired
            film = self.clip.index(source, self._place)
        return self.clip.read(source, film, self._place, start)
