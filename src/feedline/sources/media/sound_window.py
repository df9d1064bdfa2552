"""One window of a recording: read where it is, and resampled as if the whole recording had been.

Takes: a file and a place in it. Gives: a `Sound`: float32 samples (frames, channels), and how many a second has.
Promises: only the window, and what resampling needs around it, is decoded; its samples differ from those of the whole
resampled recording by less than one in a million; a recording that is shorter than the window is an error, or is
filled up with zeros if the user says so; one that ends before its header says is an error.
Not its job: which windows there are (clip_dataset); finding files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from math import gcd
from typing import Any

import numpy as np

from feedline.datasets import Array
from feedline.errors import OptionError, SourceError
from feedline.errors.checks import check_flag, check_positive, check_whole
from feedline.errors.counting import counted
from feedline.errors.missing_packages import extra
from feedline.randomness.rng import rng
from feedline.sources.decoding.lengths import frames_of
from feedline.sources.decoding.ogg import MARK, Ogg
from feedline.sources.decoding.sound import MAX_BYTES, Sound
from feedline.sources.media.seekable import Source, opened
from feedline.sources.places import FilePlace

SUFFIXES = (".flac", ".mp3", ".oga", ".ogg", ".opus", ".wav", ".aif", ".aiff")
AROUND = 512
"""Frames at each side that resampling needs, of whichever rate is lower: from 256 on, a resampled part differs from
the same part of the whole by at most 3 in 10 million (tests/sources/test_sound.py)."""

RESERVOIR = 10 * 1152
"""Frames of MP3 that are decoded before those that are needed: a frame's bits may lie in up to 20 others (8 kbit/s at
22,050 Hz), and libsndfile begins too late for that (tests/sources/test_sound.py)."""


class SoundWindow:
    """Reads `seconds` of a recording; None reads all of it.

    `rate` is what it is resampled to (frames per second), by soxr; None leaves it. `mono=True` averages the channels.
    A recording that is too short is an error, unless `pad=True` fills it up with zeros at its end.
    `channels_first=True` gives (channels, frames). Called with the bytes of a file, it reads a window at a place drawn
    from `feedline.rng()`: for sources that take decoders, `decoders={".flac": SoundWindow(2.0, rate=16_000)}`.

    >>> import io, soundfile
    >>> file = io.BytesIO()
    >>> soundfile.write(file, np.zeros((8000, 2), np.float32), 8000, format="FLAC")
    >>> samples, rate = SoundWindow(0.5, rate=16_000, mono=True)(file.getvalue())
    >>> samples.shape, samples.dtype, rate
    ((8000, 1), dtype('float32'), 16000)
    """

    def __init__(
        self,
        seconds: float | None = None,
        *,
        rate: int | None = None,
        mono: bool = False,
        pad: bool = False,
        channels_first: bool = False,
    ) -> None:
        self.seconds = None if seconds is None else check_positive("seconds", seconds)
        self.rate = None if rate is None else check_whole("rate", rate, 1)
        self.mono = check_flag("mono", mono)
        self.pad = check_flag("pad", pad)
        self.channels_first = check_flag("channels_first", channels_first)
        if self.pad and self.seconds is None:
            raise OptionError("pad fills up windows: it needs seconds=")

    def check_packages(self) -> None:
        """Check that what it needs is installed."""
        extra("soundfile", "audio", "sound")
        if self.rate is not None:
            extra("soxr", "audio", "resampling sound")

    def __call__(self, data: bytes) -> Sound:
        return self.read(data)

    def read(self, source: Source, place: FilePlace | None = None, start: float | None = None) -> Sound:
        """The window that begins `start` seconds after the beginning; None draws the place."""
        with _opened(source, place) as (sound, file):
            return self._read(_Recording(sound, file), start)

    def seconds_of(self, source: Source, place: FilePlace | None = None) -> float:
        """How long the recording is."""
        with _opened(source, place) as (sound, file):
            return float(frames_of(sound, file) / sound.samplerate)

    def _read(self, sound: _Recording, start: float | None) -> Sound:
        rate = self.rate or sound.samplerate
        whole = (sound.frames * rate + sound.samplerate // 2) // sound.samplerate
        count = whole if self.seconds is None else max(1, round(self.seconds * rate))
        if count * sound.channels * 4 > MAX_BYTES:
            raise SourceError(
                f"its header says {sound.frames:,} frames of {counted(sound.channels, 'channel')}, which are more than "
                f"{MAX_BYTES:,} bytes; read windows of it (seconds=)"
            )
        first = self._first(whole, count, rate, start)
        samples = _part(sound, first, min(count, whole - first), rate, self.mono)
        if len(samples) < count:
            samples = np.concatenate([samples, np.zeros((count - len(samples), samples.shape[1]), np.float32)])
        return Sound(np.ascontiguousarray(samples.T) if self.channels_first else samples, rate)

    def _first(self, whole: int, count: int, rate: int, start: float | None) -> int:
        if whole < count and not self.pad:
            raise SourceError(
                f"has {whole / rate:g} seconds, and a window {count / rate:g}; pad=True fills it up with zeros"
            )
        if start is None:
            return int(rng().integers(0, max(0, whole - count) + 1))
        first = round(start * rate)
        last = max(0, whole - (1 if self.pad else count))
        if not 0 <= first <= last + 1:  # one more: both numbers were rounded
            raise SourceError(f"has {whole / rate:g} seconds: no window of {count / rate:g} begins at {start:g}")
        return min(first, last)


@contextmanager
def _opened(source: Source, place: FilePlace | None) -> Iterator[tuple[Any, Any]]:
    """A recording opened by libsndfile, and the path or file object that this reads."""
    package = extra("soundfile", "audio", "sound")
    with ExitStack() as stack:
        file = stack.enter_context(opened(source, place))
        reader = stack.enter_context(open(file, "rb")) if isinstance(file, str) else file
        begins = reader.read(len(MARK))
        reader.seek(0)
        if begins == MARK:
            file = Ogg(reader)
        try:
            yield stack.enter_context(package.SoundFile(file)), file
        except package.LibsndfileError as error:
            raise SourceError(f"this sound cannot be read: {error.error_string}") from error


class _Recording:
    """An open recording: any frames of it, as decoding the whole would give them."""

    def __init__(self, sound: Any, file: Any) -> None:
        self._sound = sound
        self.frames, self.samplerate, self.channels = frames_of(sound, file), sound.samplerate, sound.channels
        self._ogg = file if isinstance(file, Ogg) else None

    def decoded(self, first: int, end: int, mono: bool) -> Array:
        """These frames."""
        sound, before = self._sound, self._before(first)
        sound.seek(before)
        samples: Array = sound.read(end - before, dtype="float32", always_2d=True)
        if self._ogg is not None:
            self._ogg.check(sound, len(samples))
        if len(samples) < end - before:
            there = before + len(samples)
            raise SourceError(f"is cut short: its header says {self.frames:,} frames, and it ends at {there:,}")
        samples = samples[first - before :]
        return samples.mean(axis=1, keepdims=True, dtype=np.float32) if mono and samples.shape[1] > 1 else samples

    def _before(self, first: int) -> int:
        """Where libsndfile may begin so that `first` is right."""
        if self._ogg is not None and self._sound.subtype == "VORBIS":
            # A seek into the last page is off by what is cut from the page's end.
            return max(0, min(first, self._ogg.last_page - 1))
        if self._sound.subtype.startswith("MPEG_LAYER"):
            return max(0, first - RESERVOIR)
        return first


def _part(sound: _Recording, first: int, count: int, rate: int, mono: bool) -> Array:
    """Frames of the resampled recording."""
    own = sound.samplerate
    if rate == own:
        return sound.decoded(first, first + count, mono)
    step, steps = own // gcd(own, rate), rate // gcd(own, rate)  # so many frames of the file are so many of the result
    margin = max(AROUND, AROUND * rate // own)
    before = max(0, first - margin) // steps  # where both have a frame: the filter is in the same phase there
    end = min(sound.frames, -(-(first + count + margin) * own // rate))
    soxr = extra("soxr", "audio", "resampling sound")
    made: Array = soxr.resample(sound.decoded(before * step, end, mono), own, rate, quality="HQ")
    return made[first - before * steps :][:count]
