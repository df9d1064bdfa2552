"""Sound: .wav files, by the standard library.

Takes: the bytes. Gives: a `Sound`: its samples, and how many there are per second.
Promises: 16 bits stay int16; 8, 24 and 32 bits become float32 between -1 and 1. Always two axes: (frames, channels).
Not its job: compressed sound, floating point files, resampling.
"""

from __future__ import annotations

import io
import wave
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from feedline.datasets import Array
from feedline.errors import SourceError


class Sound(NamedTuple):
    """What a .wav file holds."""

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
        needed = frames * channels * width
        if len(raw) < needed:
            raise SourceError(f"is cut short: {frames:,} frames need {needed:,} bytes, and there are only {len(raw):,}")
        samples = _numbers(raw, width).reshape(frames, channels)
        return Sound(samples.T if self.channels_first else samples, rate)


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
