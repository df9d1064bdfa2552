"""Pictures and recordings in a Hugging Face table, decoded by feedline's decoders.

Takes: a column of files (bytes or paths), its feature, `Decoders`. Gives: `media_of`: a decoded value, or None if the
feature is something else.
Promises: what the bytes are decides about the decoder, because names in tables often have no suffix; a user's decoder
is also found by the name's. A recording has the rate and the number of channels that its feature asks for, as float32
between -1 and 1. What cannot be read is an error that names row, column and file.
Not its job: decoding (decoding, media).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from feedline.errors import SourceError
from feedline.sources.decoding import Decoders
from feedline.sources.decoding.pictures import MODES
from feedline.sources.decoding.sound import Sound
from feedline.sources.media.sound_window import SoundWindow

_PICTURES = ((b"\x89PNG", ".png"), (b"\xff\xd8", ".jpg"), (b"GIF8", ".gif"), (b"BM", ".bmp"), (b"RIFF", ".webp"))
_RECORDINGS = ((b"fLaC", ".flac"), (b"OggS", ".ogg"), (b"RIFF", ".wav"), (b"RF64", ".wav"), (b"FORM", ".aiff"))


class MediaColumn:
    """A column of files."""

    def __init__(self, name: str, column: Any, feature: Any, decoders: Decoders) -> None:
        self._name = name
        self._column = column
        self._decoders = decoders
        self._window = None
        if type(feature).__name__ == "Audio":
            self._channels = feature.num_channels
            self._window = SoundWindow(rate=feature.sampling_rate, mono=self._channels == 1)

    def one(self, row: int, place: int) -> Any:
        """The value in that row of the table, which is the sample `place`."""
        found = self._column[row].as_py()
        if found is None:
            return None
        path = found["path"] or ""
        try:
            data = found["bytes"]
            if data is None:
                with open(path, "rb") as file:
                    data = file.read()
            return self._picture(data) if self._window is None else self._sound(data, path, self._window)
        except (SourceError, OSError) as error:
            raise SourceError(f"row {place}, column {self._name!r} {path!r}: {error}") from error

    def _picture(self, data: bytes) -> Any:
        return self._decoders.decode(f"picture{_suffix(data, _PICTURES, '.tif')}", data)

    def _sound(self, data: bytes, path: str, window: SoundWindow) -> Any:
        for suffix in (_suffix(data, _RECORDINGS, ".mp3"), os.path.splitext(path)[1].lower()):
            if self._decoders.has_own(suffix):
                return self._decoders.decode(f"sound{suffix}", data)
        samples, rate = window(data)
        if self._channels == 2 and samples.shape[1] == 1:
            samples = np.repeat(samples, 2, axis=1)
        if self._channels not in (None, samples.shape[1]):
            raise SourceError(f"has {samples.shape[1]} channels, and its feature asks for {self._channels}")
        return Sound(np.ascontiguousarray(samples.T) if self._decoders.channels_first else samples, rate)


def media_of(name: str, column: Any, feature: Any, decoders: Decoders | None) -> MediaColumn | None:
    """The column, if it has files that feedline decodes. Without decoders, pictures are as their feature asks."""
    if type(feature).__name__ not in ("Image", "Audio") or not feature.decode:
        return None
    if getattr(feature, "stream_index", None) is not None:  # one of several recordings in a file
        return None
    if decoders is None:
        mode = getattr(feature, "mode", None) or "RGB"
        if mode not in MODES:
            return None
        decoders = Decoders(mode=mode, upright=True)
    return MediaColumn(name, column, feature, decoders)


def _suffix(data: bytes, known: tuple[tuple[bytes, str], ...], otherwise: str) -> str:
    return next((suffix for magic, suffix in known if data.startswith(magic)), otherwise)
