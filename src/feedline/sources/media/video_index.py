"""Where the frames of films are: the time of each, and which can be decoded without others.

Takes: films. Gives: an `Index` of many films as arrays; a file that keeps it.
Promises: read from the packets' headers, and decoded only where these do not tell the frames apart; the kept file
appears whole or not at all, and a film whose size or time of change differs is read again.
Not its job: decoding (video_clip).
"""

from __future__ import annotations

import os
import tempfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from feedline.datasets import IntArray
from feedline.errors import SourceError

VERSION = 4
_NO_TIMES = 0x80
"""FFmpeg's flag of formats that are nothing but pictures, one after another."""
_UNTOLD = ("h264", "hevc", "vvc")
"""Codecs whose packets do not tell FFmpeg whether another is shown before them."""


class Frames(NamedTuple):
    """The frames of one film, in the order in which they are shown."""

    times: IntArray
    """Of each frame, in units of the film."""
    keys: IntArray
    """The times of those that can be decoded without others; none if times do not tell the frames apart, so that they
    have to be counted from the beginning."""
    unit: float
    """Seconds."""
    last: int
    """How long the last frame is shown, in units."""

    @property
    def is_unknown(self) -> bool:
        """Could the film not be read?"""
        return not len(self.times)

    @property
    def seconds(self) -> float:
        """How long the film is."""
        return float(self.times[-1] - self.times[0] + self.last) * self.unit

    def shown_at(self, second: float) -> int:
        """The number of the frame that is shown at that time after the beginning.

        >>> film = Frames(np.array([512, 1024, 1536]), np.array([512]), 1 / 12_800, 512)
        >>> film.seconds, [film.shown_at(second) for second in (0, 0.039, 0.04, 9)]
        (0.12, [0, 0, 1, 2])
        """
        at = (
            second / self.unit + int(self.times[0]) + 1e-3
        )  # a thousandth of a unit: products of decimals are not exact
        return max(0, int(np.searchsorted(self.times, at, "right")) - 1)


NONE = Frames(np.zeros(0, np.int64), np.zeros(0, np.int64), 1.0, 0)
"""Of a film that could not be read."""


class _Packets(NamedTuple):
    """What the packets' headers of a film say, in the order in which they are stored."""

    shown: list[int | None]
    """When each is shown (pts)."""
    read: list[int | None]
    """When each is decoded (dts)."""
    keys: list[bool]
    lengths: list[int]

    def film(self, unit: float) -> Frames:
        """The frames, in the order of their times."""
        timed = [read if shown is None else shown for shown, read in zip(self.shown, self.read, strict=True)]
        known = [number for number, time in enumerate(timed) if time is not None]
        times = np.array([timed[number] for number in known], np.int64)
        keys = np.array([timed[number] for number in known if self.keys[number]], np.int64)
        if not any(self.keys):
            raise SourceError("has no frame that can be decoded")
        if not len(keys):
            raise SourceError("has no times of its frames; convert it to a format that has (ffmpeg -i it it.mp4)")
        order = np.argsort(times, kind="stable")
        steps = np.diff(times[order])
        last = self.lengths[known[order[-1]]] or (int(np.median(steps)) if len(steps) else 0)
        return Frames(times[order], np.sort(keys), unit, int(last))


def frames_of(opened: Callable[..., AbstractContextManager[Any]]) -> Frames:
    """Where the frames of a film are; `opened` opens it with PyAV, with FFmpeg's options.

    Key frames are only trusted where times that the container has stored tell the frames apart; FFmpeg guesses what
    is not stored, and not the same after a seek. An AVI has stored the order in which pictures are decoded, which is
    that in which they are shown if the codec leaves it so.
    """
    with opened(fflags="nofillin") as container:
        stored = _packets_of(container)
        stream = container.streams.video[0]
        codec, reorders = stream.codec_context.codec.canonical_name, stream.codec_context.has_b_frames
        kind, count = container.format.name, stream.frames
        is_sure = kind != "mpeg" and not container.format.flags & _NO_TIMES
        unit = float(stream.time_base)
    if None not in stored.shown:
        film = stored.film(unit)
        forgot = reorders and bool((np.diff(np.array(stored.shown, np.int64)) > 0).all())  # as some writers do
    else:
        with opened() as container:
            guessed = _packets_of(container)
        film, forgot = guessed.film(unit), False
        is_whole = kind != "avi" or count in (0, len(film.times))
        is_sure = is_sure and is_whole and codec not in _UNTOLD
        is_sure = is_sure and None not in stored.read and guessed.shown == guessed.read
    if not is_sure or not np.diff(film.times).all():
        film = film._replace(keys=film.keys[:0])
    elif not forgot:
        return film
    with opened() as container:
        return _counted(container, film)


def _packets_of(container: Any) -> _Packets:
    if not container.streams.video:
        raise SourceError("has no video in it")
    found = _Packets([], [], [], [])
    for packet in container.demux(container.streams.video[0]):
        if packet.size and not packet.is_discard:  # the last is empty; an edit of the film has cut off others
            found.shown.append(packet.pts)
            found.read.append(packet.dts)
            found.keys.append(packet.is_keyframe)
            found.lengths.append(packet.duration or 0)
    return found


def _counted(container: Any, film: Frames) -> Frames:
    """The same film, with the frames that there are if it is decoded from its beginning, each after the one before."""
    found = [picture.pts for picture in container.decode(container.streams.video[0])]
    if found == film.times.tolist():
        return film
    if len(found) == len(film.times) and np.diff(film.times).all():  # the times of other frames
        return film._replace(keys=film.keys[:0])
    known = [number for number, time in enumerate(found) if time is not None]
    if not known:
        raise SourceError("has no frame that can be decoded")
    times = np.interp(np.arange(len(found)), known, [found[number] - found[known[0]] for number in known])
    steps = np.diff(times.round().astype(np.int64))
    if (forward := steps[steps > 0]).size:
        steps[steps <= 0] = int(np.median(forward))
    first = int(film.times[0])
    return film._replace(times=np.cumsum(np.concatenate([[first], steps])), keys=film.keys[:0])


def time_of(picture: Any) -> int:
    """The time of a decoded picture, or of a packet, in units of the film."""
    time = picture.dts if picture.pts is None else picture.pts
    return -(2**62) if time is None else int(time)


class Index:
    """The frames of many films, in a few arrays that workers share."""

    def __init__(self, films: Sequence[Frames]) -> None:
        self._ends = np.cumsum([len(film.times) for film in films], dtype=np.int64)
        self._key_ends = np.cumsum([len(film.keys) for film in films], dtype=np.int64)
        self._times = np.concatenate([film.times for film in films] or [np.zeros(0, np.int64)])
        self._keys = np.concatenate([film.keys for film in films] or [np.zeros(0, np.int64)])
        self._units = np.array([film.unit for film in films])
        self._last = np.array([film.last for film in films], np.int64)

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> Frames:
        first, first_key = (int(ends[number - 1]) if number else 0 for ends in (self._ends, self._key_ends))
        times, keys = self._times[first : self._ends[number]], self._keys[first_key : self._key_ends[number]]
        return Frames(times, keys, float(self._units[number]), int(self._last[number]))


Stamp = tuple[int, int]
"""The size and the time of change of a file; a time of 0 where that is not known."""
UNKNOWN = (-1, -1)
"""Of a file that could not be read."""


def index_of(
    names: Sequence[str], stamp: Callable[[str], Stamp], read: Callable[[str], Frames], file: str | None
) -> Index:
    """The frames of all films. Those that the file has are taken from it, and it is written if any were missing."""
    kept = {} if file is None else _kept(file)
    films, stamps, new = [], [], False
    for name in names:
        now = stamp(name)
        before, film = kept.get(name, (UNKNOWN, None))
        if film is None or before != now or before == UNKNOWN:
            film, new = read(name), True
        films.append(film)
        stamps.append(UNKNOWN if film.is_unknown else now)
    if file is not None and (new or len(kept) != len(set(names))):
        try:
            _keep(file, names, stamps, films)
        except OSError as error:
            warnings.warn(
                f"index={file!r} cannot be written ({error.strerror or error}), so the films are read again the next "
                "time. Name a file where there is room.",
                RuntimeWarning,
                stacklevel=3,
            )
    return Index(films)


def _kept(file: str) -> dict[str, tuple[Stamp, Frames]]:
    """What the file has; nothing if there is none, or it is not one of ours: then it is made again."""
    try:
        with open(file, "rb") as data, np.load(data, allow_pickle=False) as found:
            if int(found["version"]) != VERSION:
                return {}
            names = bytes(found["names"]).decode("utf-8", "surrogateescape").split("\0")[:-1]
            stamps = [(size, changed) for size, changed in found["stamps"].tolist()]
            times = np.split(found["times"], found["counts"].cumsum()[:-1])
            keys = np.split(found["keys"], found["key_counts"].cumsum()[:-1])
            films = map(Frames, times, keys, found["units"].tolist(), found["last"].tolist())
            return dict(zip(names, zip(stamps, films, strict=True), strict=True))
    except (OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError, zipfile.BadZipFile, zlib.error):
        return {}


def _keep(file: str, names: Sequence[str], stamps: Sequence[Stamp], films: Sequence[Frames]) -> None:
    folder = os.path.dirname(os.path.abspath(file))
    descriptor, new = tempfile.mkstemp(prefix=os.path.basename(file), suffix=".new", dir=folder)
    joined = "".join(f"{name}\0" for name in names)
    try:
        with open(descriptor, "wb") as out:
            np.savez(
                out,
                version=np.array(VERSION),
                names=np.frombuffer(joined.encode("utf-8", "surrogateescape"), np.uint8),
                stamps=np.array(stamps, np.int64).reshape(-1, 2),
                counts=np.array([len(film.times) for film in films], np.int64),
                key_counts=np.array([len(film.keys) for film in films], np.int64),
                times=np.concatenate([film.times for film in films] or [np.zeros(0, np.int64)]),
                keys=np.concatenate([film.keys for film in films] or [np.zeros(0, np.int64)]),
                units=np.array([film.unit for film in films]),
                last=np.array([film.last for film in films], np.int64),
            )
        os.replace(new, file)
    except BaseException:
        os.unlink(new)
        raise
