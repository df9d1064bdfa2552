"""One clip of a film: the frames at given times, decoded from the nearest frame before that needs no other.

Takes: a film, where its frames are (video_index), a time. Gives: pixels, uint8, (frames, height, width, 3).
Promises: each frame is the one that decoding the whole film shows at that time, upright; nothing before the
nearest key frame and nothing after the last frame that is needed is decoded; frames that are not where the index says
are an error.
Not its job: which clips there are (clip_dataset), sound, resizing one picture (decoding.resizing).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from feedline.datasets import Array, IntArray
from feedline.errors import SourceError
from feedline.errors.checks import check_flag, check_positive, check_whole
from feedline.errors.missing_packages import extra
from feedline.randomness.rng import rng
from feedline.sources.decoding.by_suffix import MAX_PIXELS, check_size
from feedline.sources.decoding.resizing import can_vector, resized
from feedline.sources.media.seekable import Source, opened
from feedline.sources.media.video_index import Frames, frames_of, time_of
from feedline.sources.places import FilePlace

SUFFIXES = (".avi", ".m4v", ".mkv", ".mov", ".mp4", ".mpeg", ".mpg", ".ts", ".webm")
EARLIER = 10
"""Seconds before the first frame: where a seek to its own time finds a later one, which FFmpeg does near the end of
what times in broadcasts can count."""
_DAMAGED = "is damaged or has changed: no frame can be decoded {when}"
_TURNED = "its header turns pictures in a way that is no multiple of 90°: {matrix}"


class VideoClip:
    """Reads `frames` pictures of a film, `fps` of them a second; None takes successive ones.

    The picture at a time is the one that is shown then. `size=(height, width)` is what pictures are resized to. A film
    that is too short is an error, unless `pad=True` repeats its last picture. `channels_first=True` gives (frames, 3,
    height, width). Called with the bytes of a file, it reads a clip at a place drawn from `feedline.rng()`: for sources
    that take decoders, `decoders={".mp4": VideoClip(16, fps=8)}`.

    >>> import av, io
    >>> file = io.BytesIO()
    >>> with av.open(file, "w", format="avi") as film:
    ...     stream = film.add_stream("mpeg4", rate=25)
    ...     stream.width, stream.height = 64, 48
    ...     for number in range(25):
    ...         film.mux(stream.encode(av.VideoFrame.from_ndarray(np.full((48, 64, 3), 9 * number, np.uint8))))
    ...     film.mux(stream.encode())
    >>> VideoClip(4, fps=8, size=(24, 32))(file.getvalue()).shape
    (4, 24, 32, 3)
    """

    def __init__(
        self,
        frames: int,
        fps: float | None = None,
        *,
        size: tuple[int, int] | None = None,
        pad: bool = False,
        channels_first: bool = False,
        max_pixels: int = MAX_PIXELS,
    ) -> None:
        self.frames = check_whole("frames", frames, 1)
        self.fps = None if fps is None else check_positive("fps", fps)
        self.size = check_size(size)
        self.pad = check_flag("pad", pad)
        self.channels_first = check_flag("channels_first", channels_first)
        self.max_pixels = check_whole("max_pixels", max_pixels, 1)
        self._vector = can_vector()

    def check_packages(self) -> None:
        """Check that what it needs is installed."""
        extra("av", "video", "video")
        if self.size is not None and not self._vector:
            extra("PIL.Image", "images", "resizing pictures")

    def __call__(self, data: bytes) -> Array:
        return self.read(data, self.index(data))

    def index(self, source: Source, place: FilePlace | None = None) -> Frames:
        """Where the frames of a film are."""
        return frames_of(partial(_film, source, place))

    def read(self, source: Source, film: Frames, place: FilePlace | None = None, start: float | None = None) -> Array:
        """The clip that begins `start` seconds after the beginning; None draws the place."""
        wanted = self._wanted(film, start)
        with _film(source, place) as container:
            found = self._decoded(container, film, np.unique(wanted))
            if len({picture.shape for picture in found.values()}) > 1:
                raise SourceError("has pictures of several sizes in this clip; size=(height, width) makes them one")
            made = np.stack([found[number] for number in wanted.tolist()])
        return np.ascontiguousarray(made.transpose(0, 3, 1, 2)) if self.channels_first else made

    def seconds(self, film: Frames) -> float:
        """How much of the film a clip needs: one that begins at least this long before its end is whole."""
        if self.fps is not None:
            return (self.frames - 1) / self.fps
        if self.frames > len(film.times):
            return math.inf
        if self.frames == 1:
            return 0.0
        return film.seconds - (int(film.times[1 - self.frames]) - int(film.times[0])) * film.unit

    def fits(self, film: Frames, start: float) -> bool:
        """Does the film have all of the clip that begins there?"""
        if not 0 <= start < film.seconds:
            return False
        if self.fps is None:
            return film.shown_at(start) + self.frames <= len(film.times)
        return start + (self.frames - 1) / self.fps < film.seconds

    def _wanted(self, film: Frames, start: float | None) -> IntArray:
        """The numbers of the frames."""
        if not (self.fits(film, start or 0.0) or (self.pad and 0 <= (start or 0.0) < film.seconds)):
            raise SourceError(self._told(film, start))
        most = len(film.times) - 1
        if self.fps is not None:
            begin = float(rng().random()) * max(0.0, film.seconds - self.seconds(film)) if start is None else start
            times = begin + np.arange(self.frames) / self.fps
            return np.array([film.shown_at(time) for time in times.tolist()], np.int64)
        first = int(rng().integers(0, max(0, most + 1 - self.frames) + 1)) if start is None else film.shown_at(start)
        return np.minimum(np.arange(first, first + self.frames), most)

    def _told(self, film: Frames, start: float | None) -> str:
        has = f"has {len(film.times):,} frames in {film.seconds:g} seconds"
        clip = f"{self.frames} frames" + (f" at {self.fps:g} a second" if self.fps else "")
        if start is not None:
            return f"{has}: no clip of {clip} begins at {start:g}"
        return f"{has}, too few for a clip of {clip}; pad=True repeats the last one"

    def _decoded(self, container: Any, film: Frames, wanted: IntArray) -> dict[int, Array]:
        """Pictures by number; `wanted` is in order."""
        stream = container.streams.video[0]
        stream.thread_type, stream.codec_context.thread_count = "SLICE", 1  # the loader's workers share the CPUs
        if stream.width * stream.height > self.max_pixels:
            raise SourceError(
                f"its header says {stream.width} × {stream.height} pixels, more than max_pixels={self.max_pixels:,}; "
                "raise max_pixels= if you trust the file"
            )
        if not len(film.keys):
            return self._counted(container.decode(stream), film, wanted)
        found: dict[int, Array] = {}
        pictures, at = None, -1
        for number in wanted.tolist():
            time = int(film.times[number])
            key = int(np.searchsorted(film.keys, time, "right")) - 1
            if pictures is None or int(film.keys[max(key, 0)]) > at:  # nothing in between is needed
                pictures = _from(container, stream, film, key, time)
            picture = next((each for each in pictures if time_of(each) >= time), None)
            if picture is None or time_of(picture) != time or picture.is_corrupt:
                raise SourceError(_DAMAGED.format(when=_second(film, time)))
            found[number], at = self._pixels(picture), time
        return found

    def _counted(self, pictures: Iterator[Any], film: Frames, wanted: IntArray) -> dict[int, Array]:
        """Pictures that only their number tells apart."""
        found: dict[int, Array] = {}
        for number, picture in enumerate(islice(pictures, int(wanted[-1]) + 1)):
            if number in wanted and not picture.is_corrupt:
                found[number] = self._pixels(picture)
        if len(found) < len(wanted):
            missing = next(number for number in wanted.tolist() if number not in found)
            raise SourceError(_DAMAGED.format(when=_second(film, int(film.times[missing]))))
        return found

    def _pixels(self, picture: Any) -> Array:
        pixels: Array = _upright(picture.to_ndarray(format="rgb24"), picture)
        return pixels if self.size is None else resized(pixels, self.size, self._vector)


def _from(container: Any, stream: Any, film: Frames, key: int, time: int) -> Iterator[Any]:
    """The pictures from that key frame on, or from an earlier one: some formats only seek roughly."""
    for earlier in range(key, -1, -1):
        container.seek(int(film.keys[earlier]), stream=stream, backward=True, any_frame=False)
        pictures = _pictures(container, stream, film)
        first = next(pictures, None)
        if first is not None and time_of(first) <= time:
            return _chain(first, pictures)
    container.seek(int(film.times[0]) - round(EARLIER / film.unit), stream=stream, backward=True)
    return _pictures(container, stream, film)


def _pictures(container: Any, stream: Any, film: Frames) -> Iterator[Any]:
    """The pictures from here on, as long as packets are whole: what is missing in one, FFmpeg conceals."""
    for packet in container.demux(stream):
        if packet.is_corrupt:
            raise SourceError(_DAMAGED.format(when=_second(film, time_of(packet))))
        yield from packet.decode()


def _upright(pixels: Array, picture: Any) -> Array:
    """The picture as a player shows it: telephones store how they were held."""
    found = picture.side_data.get("DISPLAYMATRIX")
    if found is None:
        return pixels
    matrix = np.frombuffer(bytes(found), np.int32).reshape(3, 3)[:2, :2] / 65536
    across, down = matrix.sum(axis=0)  # where what was to the right and below goes to
    if sorted(np.abs(matrix).ravel()) != [0, 0, 1, 1] or not across or not down:
        raise SourceError(_TURNED.format(matrix=matrix.tolist()))
    if not matrix[0, 0]:
        pixels = pixels.swapaxes(0, 1)
    return np.ascontiguousarray(pixels[:: int(down), :: int(across)])


def _chain(first: Any, others: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from others


def _second(film: Frames, time: int) -> str:
    return f"{(time - int(film.times[0])) * film.unit:g} seconds after the beginning"


@contextmanager
def _film(source: Source, place: FilePlace | None, **options: str) -> Iterator[Any]:
    av = extra("av", "video", "video")
    with opened(source, place) as file:
        try:
            with av.open(file, mode="r", metadata_errors="ignore", options=options) as container:
                yield container
        except av.FFmpegError as error:
            raise SourceError(f"this video cannot be read: {error.strerror}") from error
