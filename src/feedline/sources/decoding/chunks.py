"""What libsndfile does not tell of WAV and AIFF files: whether all the sound is there that the header promises.

Takes: a file object. Gives: nothing, or an error.
Promises: only the headers of chunks are read. Programs that write into a pipe promise nothing: they leave a length of
zero, which is refused, or nearly all that fits into 32 bits.
Not its job: decoding (sound, media.sound_window).
"""

from __future__ import annotations

import os
import struct
from typing import Any

from feedline.errors import SourceError

FORMATS = ("WAV", "WAVEX", "RF64", "AIFF")
"""As libsndfile calls them."""
UNKNOWN = 0x7FFFF000
"""From here on it is no length."""
_FIRST = {b"RIFF": "<", b"RF64": "<", b"FORM": ">"}
_SOUND = (b"data", b"SSND")


def check_whole_sound(file: Any) -> None:
    """Refuse what is cut short: libsndfile reads it as a shorter recording."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    order = _FIRST.get(file.read(12)[:4])
    at, large = 12, 0
    while order is not None and at + 8 <= size:
        file.seek(at)
        name, length = struct.unpack(f"{order}4sI", file.read(8))
        at += 8
        if name == b"ds64":
            large = struct.unpack("<8xQ", file.read(16))[0]
        if name in _SOUND:
            if not large and not length and at < size:  # libsndfile takes it at its word
                raise SourceError(
                    f"its header says that there is no sound, and {size - at:,} bytes follow: it was written into a "
                    "pipe; write it anew: ffmpeg -i it.wav new.wav"
                )
            length = large or (length if length < UNKNOWN else 0)
            if at + length > size:
                raise SourceError(
                    f"is cut short: its header says {length:,} bytes of sound, and there are only {size - at:,}"
                )
            return
        at += length + length % 2
