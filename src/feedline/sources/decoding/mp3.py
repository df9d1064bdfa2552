"""What libsndfile does not tell of MP3 files: how long one is whose header does not say it.

Takes: a file object. Gives: how many frames of sound there are, or None if the header says it.
Promises: the number is what decoding gives; a file whose header says it is only read at its beginning. Without that
header, libsndfile divides the size of the file by the first frame's bit rate.
Not its job: decoding (sound, media.sound_window).
"""

from __future__ import annotations

from typing import Any

from feedline.errors import SourceError

_RATES = (44_100, 48_000, 32_000)
_BITS = (
    (0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (0, 8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
)
"""Thousands of bits a second, of MPEG 1 and of MPEG 2."""
_FIRST = 1 << 16
"""Bytes in which the first frame begins."""
_TAGS = (b"TAG", b"APETAGEX", b"LYRICSBEGIN", b"ID3")
"""What may be behind the last frame."""
_NEW = "write its header anew: ffmpeg -i it.mp3 -c copy new.mp3"


def length(file: Any, libsndfile: int) -> int | None:
    """How many frames of sound; None if the header says it, or the sound is of another layer. `libsndfile` is what that
    takes for the length, beyond which it reads nothing."""
    file.seek(0)
    head = file.read(10)
    start = 10 + sum((byte & 0x7F) << 7 * place for place, byte in enumerate(head[:5:-1])) if head[:3] == b"ID3" else 0
    file.seek(start)
    data = file.read(_FIRST)
    first = next((at for at in range(len(data)) if (size := _size(data, at)) and _size(data, at + size)), None)
    if first is None:
        return None
    is_one = data[first + 1] & 8
    side = first + 4 + ((17 if is_one else 9) if data[first + 3] >> 6 == 3 else (32 if is_one else 17))
    if data[side : side + 4] in (b"Xing", b"Info"):
        if data[side + 7] & 1:
            return None
        first += _size(data, first)  # it is no sound
    number, end = _walk(data + file.read(), first)
    frames: int = number * (1152 if is_one else 576)
    if end is not None:
        raise SourceError(f"is damaged: there is no frame at byte {start + end:,}")
    if frames - libsndfile >= 1152:  # less is what libsndfile leaves out at the end
        raise SourceError(f"does not say how long it is, and its bit rates differ; {_NEW}")
    return min(frames, libsndfile)


def _walk(data: bytes, at: int) -> tuple[int, int | None]:
    """How many frames there are one after another, and where something else is, if it is no tag and no cut frame."""
    number = 0
    while size := _size(data, at):
        if at + size > len(data):
            return number, None
        number, at = number + 1, at + size
    rest = data[at : at + 4096]
    is_end = len(data) - at < 4 or rest.startswith(_TAGS) or not data[at:].strip(b"\0")
    return number, None if is_end else at


def _size(data: bytes, at: int) -> int:
    """How many bytes the frame there has; 0 if there is none of layer III."""
    if at + 4 > len(data) or data[at] != 0xFF or data[at + 1] & 0xE6 != 0xE2:
        return 0
    version, bits, rate = data[at + 1] >> 3 & 3, data[at + 2] >> 4, data[at + 2] >> 2 & 3
    if version == 1 or not 0 < bits < 15 or rate == 3:
        return 0
    is_one = version == 3
    divided = _RATES[rate] >> (0 if is_one else 1 if version == 2 else 2)
    return (144 if is_one else 72) * _BITS[not is_one][bits] * 1000 // divided + (data[at + 2] >> 1 & 1)
