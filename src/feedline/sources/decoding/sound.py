"""Whole files of sound: .wav by the standard library, compressed ones by libsndfile.

Takes: the bytes. Gives: a `Sound`: its samples, and how many there are per second.
Promises: of .wav, 16 bits stay int16, and 8, 24 and 32 bits become float32 between -1 and 1; compressed sound is
float32. Always two axes: (frames, channels). What a header says is checked before memory is taken for it.
Not its job: windows, resampling (media).
"""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from feedline.datasets import Array
from feedline.errors import SourceError
from feedline.errors.missing_packages import extra
from feedline.sources.decoding.chunks import check_whole_sound
from feedline.sources.decoding.lengths import frames_of
from feedline.sources.decoding.ogg import MARK, Ogg

RECORDINGS = (".aif", ".aiff", ".flac", ".mp3", ".oga", ".ogg", ".opus")
MAX_BYTES = 2**30
"""A header that promises more decoded sound than this is not believed."""


class Sound(NamedTuple):
    """What a file of sound holds."""

    samples: Array
    rate: int


@dataclass(frozen=True)
class Waves:
    """Decodes .wav."""

    channels_first: bool

    def __call__(self, data: bytes) -> Sound:
        try:
            with wave.open(io.BytesIO(data)) as file:
                channels, width, rate, frames = file.getparams()[:4]
                raw = file.readframes(frames)
        except MemoryError:
            raise
        except Exception as error:  # wave has an error class of its own, and raises several others
            told = str(error) or "it ends within its header"
            raise SourceError(
                f"this .wav cannot be read: {told} (only PCM can; give a decoder of your own: decoders={{'.wav': …}})"
            ) from error
        if not frames:
            check_whole_sound(io.BytesIO(data))
        needed = frames * channels * width
        if len(raw) < needed:
            raise SourceError(f"is cut short: {frames:,} frames need {needed:,} bytes, and there are only {len(raw):,}")
        samples = _numbers(raw, width).reshape(frames, channels)
        return Sound(samples.T if self.channels_first else samples, rate)


@dataclass(frozen=True)
class Recordings:
    """Decodes compressed sound."""

    channels_first: bool

    def __call__(self, data: bytes) -> Sound:
        package = extra("soundfile", "audio", "sound")
        try:
            ogg = Ogg(io.BytesIO(data)) if data.startswith(MARK) else None
            with package.SoundFile(ogg or io.BytesIO(data)) as file:
                frames, channels, rate = frames_of(file, io.BytesIO(data)), file.channels, file.samplerate
                if frames * channels * 4 > MAX_BYTES:
                    raise SourceError(
                        f"its header says {frames:,} frames of {channels} channels, more than can be right"
                    )
                samples = file.read(frames, dtype="float32", always_2d=True)
                if ogg is not None:
                    ogg.check(file, len(samples))
        except package.LibsndfileError as error:
            raise SourceError(f"this sound cannot be read: {error.error_string}") from error
        if len(samples) < frames:
            raise SourceError(f"is cut short: its header says {frames:,} frames, and there are only {len(samples):,}")
        return Sound(np.ascontiguousarray(samples.T) if self.channels_first else samples, rate)


def _numbers(raw: bytes, width: int) -> Array:
    if width == 2:
        return np.frombuffer(raw, "<i2").astype(np.int16)
    if width == 1:  # only this width is unsigned
        wide = (np.frombuffer(raw, np.uint8).astype(np.int32) - 128) << 24
    elif width == 3:
        padded = np.zeros((len(raw) // 3, 4), np.uint8)
        padded[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        wide = padded.view("<i4")[:, 0]
    elif width == 4:
        wide = np.frombuffer(raw, "<i4")
    else:
        raise SourceError(f"this .wav has samples of {width} bytes; 1 to 4 bytes can be read")
    numbers: Array = wide.astype(np.float32)
    numbers /= np.float32(2**31)
    return numbers
