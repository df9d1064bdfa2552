"""What libsndfile does not tell of Ogg files: where the last page begins, and whether one recording follows another.

Takes: a path, or a file object. Gives: a frame.
Promises: at most the file's first page and its last 256 kB are read; a file object is left where it was.
Not its job: decoding (sound, media.sound_window).
"""

from __future__ import annotations

import os
import struct
from typing import Any

from feedline.errors import SourceError

PAGE = struct.Struct("<4sBBqI")
"""The beginning of a page: "OggS", version, flags, frames up to its end (-1: no packet ends in it), recording."""
TAIL = 1 << 18
"""A page has at most 65,307 bytes."""


def last_page(file: Any) -> int:
    """The frame with which the last page begins, or one before it. Several recordings in one file are an error, because
    libsndfile reads the first and says nothing of the others."""
    if isinstance(file, str):
        with open(file, "rb") as own:
            return last_page(own)
    before = file.tell()
    try:
        file.seek(0)
        head = file.read(PAGE.size)
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        pages = _pages(file.read(TAIL))
    finally:
        file.seek(before)
    if not pages or len(head) < PAGE.size:
        return 0
    if pages[-1][1] != PAGE.unpack(head)[4]:
        raise SourceError(
            "has several recordings one after another (chained Ogg), of which only the first would be read; convert it "
            "(ffmpeg -i it.ogg it.flac), or cut it at its recordings"
        )
    return max([frames for frames, _ in pages[:-1] if frames >= 0], default=0)


def _pages(data: bytes) -> list[tuple[int, int]]:
    """Of each page: the frames up to its end, and its recording."""
    found = []
    at = data.find(b"OggS\0")
    while 0 <= at <= len(data) - PAGE.size:
        *_, frames, recording = PAGE.unpack_from(data, at)
        found.append((frames, recording))
        at = data.find(b"OggS\0", at + 1)
    return found
