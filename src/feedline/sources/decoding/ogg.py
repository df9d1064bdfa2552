"""What libsndfile does not tell of Ogg files: pages that are damaged or missing, where the last page begins, and
whether one recording follows another.

Takes: a file object. Gives: a file object for libsndfile, which knows where it was read.
Promises: libsndfile skips a page whose checksum is wrong, and gives what follows in its place; here it is an error if
it is one of the pages that were needed. Only these, the first pages and the file's last 256 kB are read.
Not its job: decoding (sound, media.sound_window).
"""

from __future__ import annotations

import io
import os
import struct
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from feedline.errors import SourceError

MARK = b"OggS"
_PAGE = struct.Struct("<4sBBqIIIB")
"""The beginning of a page: the mark, version, flags, frames up to its end (-1: no packet ends in it), recording, its
number, checksum, how many lengths follow."""
_TAIL = 1 << 18
"""A page has at most 65,307 bytes."""
_STEP = 1 << 16
_OPUS = 48_000
"""Frames a second by which Opus counts, whatever the recording has."""
_EARLIER = 3
"""Pages before those that are wanted from which on libsndfile may decode."""
_TURNED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))
"""Each byte with its bits in the other order, in which zlib's checksum is that of Ogg."""


class Ogg(io.RawIOBase):
    """An Ogg file for libsndfile. Its first and its last page are checked when it is made, those that were decoded by
    `check`."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._size = file.seek(0, os.SEEK_END)
        last, self.last_page = self._ends()
        """The frame with which the last page begins, or one before it."""
        self._first_at, self._first = self._first_with_sound()  # libsndfile reads that first: it is in the buffer
        if last.recording != self._first.recording:
            raise SourceError(
                "has several recordings one after another (chained Ogg), of which only the first would be read; "
                "convert it (ffmpeg -i it.ogg it.flac), or cut it at its recordings"
            )
        self._last = max(self.last_page, last.frames)
        self._at = self._jump = 0

    def readable(self) -> bool:
        """It can be read."""
        return True

    def seekable(self) -> bool:
        """It can be read from any place."""
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """The next byte to be read."""
        at: int = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence] + offset
        if at != self._at:
            self._at = self._jump = at
        return at

    def readinto(self, buffer: Any) -> int:
        """The next bytes."""
        self._file.seek(self._at)
        data = self._file.read(len(buffer))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def check(self, sound: Any, frames: int) -> None:
        """Refuse damaged and missing pages among those that libsndfile needed for the last so many frames, which it
        has just decoded."""
        scale = _OPUS / sound.samplerate if sound.subtype == "OPUS" else 1
        end = self._last - (sound.frames - sound.tell()) * scale
        at = min(self._pages_before(end - frames * scale), self._after_jump())
        page = _page(self._file, at)
        while page is not None and page.frames < end and page.end < self._size:
            at, before, page = page.end, page, _page(self._file, page.end)
            if page is None or not page.is_intact or not page.follows(before):
                raise _damaged(at)

    def _after_jump(self) -> int:
        """The first page that libsndfile got since it looked elsewhere: it may have decoded from there on."""
        if self._jump <= self._first.end:
            return self._first_at
        return next((at for at, _ in self._intact(self._jump)), self._size)

    def _pages_before(self, frame: float) -> int:
        """Where the last intact pages begin that end before that frame; they are near where libsndfile looked last."""
        start, step = max(self._first_at, self._jump), _STEP
        while len(found := self._last_before(frame, start)) < _EARLIER and start > self._first_at:
            start, step = max(self._first_at, start - step), 2 * step
        return found[0] if found else self._first_at

    def _last_before(self, frame: float, start: int) -> deque[int]:
        found: deque[int] = deque(maxlen=_EARLIER)
        for at, page in self._intact(start):
            if page.frames > frame:
                break
            found.append(at)
        return found

    def _intact(self, at: int) -> Iterator[tuple[int, _Page]]:
        """The intact pages from somewhere on."""
        while at < self._size:
            page = _page(self._file, at)
            if page is not None and page.is_intact:
                yield at, page
                at = page.end
                continue
            self._file.seek(at + 1)
            marks = _marks(self._file.read(_STEP + len(MARK)))
            at += 1 + (marks[0] if marks else _STEP)

    def _first_with_sound(self) -> tuple[int, _Page]:
        """libsndfile counts from there."""
        at, page = 0, _page(self._file, 0)
        while page is not None and page.is_intact and page.frames <= 0 and page.end < self._size:
            at, before, page = page.end, page, _page(self._file, page.end)
            if page is not None and not page.follows(before):
                raise _damaged(at)
        if page is None or not page.is_intact:
            raise _damaged(at)
        return at, page

    def _ends(self) -> tuple[_Page, int]:
        """The last page, and the frame with which it begins."""
        start = max(0, self._size - _TAIL)
        self._file.seek(start)
        marks = _marks(tail := self._file.read(_TAIL))
        pages = [_PAGE.unpack_from(tail, at) for at in marks if at + _PAGE.size <= len(tail)]
        if not pages or (last := _page(self._file, start + marks[-1])) is None or not last.is_intact:
            raise _damaged(start + (marks[-1] if marks else 0))
        if last.end < self._size:
            raise _damaged(last.end)
        before = max([frames for *_, frames, _, _, _, _ in pages[:-1] if frames >= 0], default=0)
        return last, before


class _Page(NamedTuple):
    frames: int
    recording: int
    number: int
    end: int
    is_intact: bool

    def follows(self, before: _Page) -> bool:
        """Is none missing in between? Of other streams that is not known."""
        return self.recording != before.recording or self.number == before.number + 1


def _page(file: Any, at: int) -> _Page | None:
    """The page that begins there; None if none does, or not all of it is there."""
    file.seek(at)
    if len(head := file.read(_PAGE.size)) < _PAGE.size or not head.startswith(MARK):
        return None
    *_, frames, recording, number, checksum, many = _PAGE.unpack(head)
    lengths = file.read(many)
    body = file.read(sum(lengths))
    if len(lengths) < many or len(body) < sum(lengths):
        return None
    turned = (head[:22] + bytes(4) + head[26:] + lengths + body).translate(_TURNED)
    found = (zlib.crc32(turned, 0xFFFFFFFF) ^ 0xFFFFFFFF).to_bytes(4, "little").translate(_TURNED)
    end = at + len(head) + len(lengths) + len(body)
    return _Page(frames, recording, number, end, int.from_bytes(found, "big") == checksum)


def _marks(data: bytes | bytearray) -> list[int]:
    """Where pages may begin."""
    found, at = [], data.find(MARK + b"\0")
    while at >= 0:
        found.append(at)
        at = data.find(MARK + b"\0", at + 1)
    return found


def _damaged(at: int) -> SourceError:
    return SourceError(f"is damaged or cut short: its pages (Ogg) are not whole at byte {at:,}")
