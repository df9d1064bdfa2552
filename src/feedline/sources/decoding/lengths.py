"""How many frames of sound a file has, as far as libsndfile's own number is not to be believed.

Takes: a file that libsndfile has opened, and its path or file object. Gives: a number of frames, or an error.
Promises: sound that a header promises and that is not there is an error; an estimate is replaced by what is counted; a
file object is left where it was.
Not its job: decoding (sound, media.sound_window).
"""

from __future__ import annotations

from typing import Any

from feedline.errors import SourceError
from feedline.sources.decoding.chunks import FORMATS, check_whole_sound
from feedline.sources.decoding.mp3 import length

_UNKNOWN = 2**63 - 1
"""What libsndfile says of a FLAC file whose header says nothing."""


def frames_of(sound: Any, file: Any) -> int:
    """How many frames `sound` has, which libsndfile has opened from `file`, a path or a file object."""
    if isinstance(file, str):
        with open(file, "rb") as own:
            return frames_of(sound, own)
    if sound.frames >= _UNKNOWN:
        raise SourceError(
            "its header does not say how long it is, because it was written into a pipe; write it anew: "
            "ffmpeg -i it.flac new.flac"
        )
    before = file.tell()
    try:
        if sound.format in FORMATS:
            check_whole_sound(file)
        counted = length(file, sound.frames) if sound.format == "MP3" else None
    finally:
        file.seek(before)
    return int(sound.frames) if counted is None else counted
