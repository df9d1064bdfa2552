"""Records cut from bytes that arrive in pieces of any size.

Takes: pieces, in order. Gives: the records that each piece completes, unchanged; the beginning of the next record.
Promises: the work grows linearly with the number of bytes, however small the pieces and however long a record. A record
longer than `most` is a `LineTooLong` before it is stored: at once if its length is sent first, else when that many
bytes have arrived.
Not its job: connections (sockets), what a record means.
"""

from __future__ import annotations

from typing import Protocol


class LineTooLong(Exception):
    """A record has this many bytes, or more."""

    def __init__(self, size: int, whole: list[bytes]) -> None:
        super().__init__(size)
        self.size = size
        self.whole = whole
        """The complete records before it in the same piece."""


class Framing(Protocol):
    """A way to recognise where a record ends."""

    rest: bytearray
    """What has arrived of the next record."""

    def cut(self, piece: bytes) -> list[bytes]:
        """The records that this piece completes."""


class LineFraming:
    r"""Each record ends with a line feed, or with a carriage return and a line feed.

    >>> lines = LineFraming(most=100)
    >>> lines.cut(b"one\ntw"), lines.cut(b"o\r\n"), bytes(lines.rest)
    ([b'one'], [b'two'], b'')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.rest = bytearray()

    def cut(self, piece: bytes) -> list[bytes]:
        """The lines that this piece completes. Only the piece is searched: earlier bytes have no line feed."""
        found: list[bytes] = []
        start = 0
        while (end := piece.find(b"\n", start)) >= 0:
            self._take(piece, start, end, found)
            found.append(bytes(self.rest).removesuffix(b"\r"))
            self.rest.clear()
            start = end + 1
        self._take(piece, start, len(piece), found)
        return found

    def _take(self, piece: bytes, start: int, end: int, found: list[bytes]) -> None:
        if len(self.rest) + end - start > self._most:
            raise LineTooLong(len(self.rest) + end - start, found)
        self.rest += piece[start:end]


class Lengths:
    r"""Each record follows its length, which is four bytes, highest byte first.

    >>> lengths = Lengths(most=100)
    >>> lengths.cut(b"\0\0\0\x03on"), lengths.cut(b"e\0\0\0\x02t"), bytes(lengths.rest)
    ([], [b'one'], b'\x00\x00\x00\x02t')
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.rest = bytearray()

    def cut(self, piece: bytes) -> list[bytes]:
        """The records that this piece completes."""
        self.rest += piece
        found: list[bytes] = []
        start = 0
        while len(self.rest) - start >= 4:
            size = int.from_bytes(self.rest[start : start + 4], "big")
            if size > self._most:
                raise LineTooLong(size, found)
            if len(self.rest) - start - 4 < size:
                break
            found.append(bytes(self.rest[start + 4 : start + 4 + size]))
            start += 4 + size
        del self.rest[:start]
        return found


FRAMINGS: dict[str, type[LineFraming] | type[Lengths]] = {"length": Lengths, "line": LineFraming}
