"""A shard's bytes from front to back, in large pieces, plain or decompressed.

Takes: a `Located` file. Gives: `take(n)` and `skip(n)`, at a known position.
Promises: bytes that are skipped are not read if they are beyond the current piece; at most a piece, or what was
requested, is in memory; a file that ends too early is a `Cut`. Gzip must be decompressed from its beginning to reach
any position.
Not its job: tar itself (members).
"""

from __future__ import annotations

import zlib
from typing import Protocol

from feedline.errors import SourceError
from feedline.sources.located import Located
from feedline.sources.places import Folder

PIECE = 1 << 20
"""Bytes read at a time: from a local disk 1 MB was as fast as 4 and 16 (benchmarks/tar_shards.py)."""
FAR_PIECE = 8 << 20
"""…from anywhere else: at 20 ms a request and 100 MB/s a fifth of the time is waiting; with 1 MB it is two thirds."""
UNZIPPED = 1 << 20
"""The most bytes decompressed at a time: a few compressed bytes may become any number."""
GZIP = b"\x1f\x8b"
OTHER_PACKING = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}


class Cut(Exception):
    """The file ends too early."""


class Bytes(Protocol):
    """A shard from front to back."""

    at: int

    def take(self, count: int) -> bytes:
        """The next `count` bytes; none at the end of the file; a `Cut` if it ends in between."""

    def skip(self, count: int) -> None:
        """Go forward by `count` bytes."""


def opened(file: Located, at: int = 0) -> Bytes:
    """A shard from a position on (counted in decompressed bytes)."""
    plain = Plain(file)
    head = file.read(0, 6) if at else plain.peek(6)  # further on, the first piece is not needed
    if head.startswith(GZIP):
        try:
            return Unzipped(plain, at)
        except Cut:
            raise SourceError(
                f"{file.url} ends before byte {at:,} of its unzipped content, from which it was to be read"
            ) from None
    for magic, name in OTHER_PACKING.items():
        if head.startswith(magic):
            raise SourceError(
                f"{file.url} is compressed with {name}, which cannot be read here: unpack it to a plain .tar"
            )
    if not head:
        raise SourceError(f"{file.url} is empty (0 bytes): a tar archive without members has 1024")
    plain.skip(at)
    return plain


class Plain:
    """The bytes of an uncompressed shard."""

    def __init__(self, file: Located) -> None:
        self.file = file
        self.size = file.size()
        self.at = 0
        self._least = PIECE if isinstance(file.place, Folder) else FAR_PIECE
        self._piece = b""
        self._begin = 0  # the position of the piece

    def take(self, count: int) -> bytes:
        at, end = self.at, self.at + count
        if end > self._begin + len(self._piece):
            if end > self.size:  # checked before memory is allocated: a damaged header may ask for any size
                if at >= self.size:
                    return b""
                raise Cut
            self._read(at, count)
        self.at = end
        return self._piece[at - self._begin : end - self._begin]

    def rest(self) -> bytes:
        """Some of what comes next."""
        return self.take(min(self._least, max(0, self.size - self.at)))

    def skip(self, count: int) -> None:
        self.at += count

    def peek(self, count: int) -> bytes:
        """The next bytes, without going forward; fewer at the end."""
        found = self.take(min(count, self.size - self.at))
        self.at -= len(found)
        return found

    def _read(self, at: int, count: int) -> None:
        self._piece, self._begin = self.file.read(at, at + max(self._least, count)), at
        if len(self._piece) < count:
            raise Cut


class Held:
    """A stretch of a shard that has already been read."""

    def __init__(self, data: bytes, begin: int) -> None:
        self._data = data
        self._begin = begin
        self.at = begin

    def take(self, count: int) -> bytes:
        start = self.at - self._begin
        found = self._data[start : start + count]
        if found and len(found) < count:
            raise Cut
        self.at += len(found)
        return found

    def skip(self, count: int) -> None:
        self.at += count


class Unzipped:
    """The bytes of a .tar.gz."""

    def __init__(self, zipped: Plain, at: int) -> None:
        self._zipped = zipped
        self._unzip = zlib.decompressobj(wbits=31)
        self._input = b""
        self._ready = bytearray()
        self.at = 0
        self.skip(at)

    def take(self, count: int) -> bytes:
        while len(self._ready) < count and self._more():
            pass
        if len(self._ready) < count and self._ready:
            raise Cut
        found = bytes(self._ready[:count])
        del self._ready[: len(found)]
        self.at += len(found)
        return found

    def skip(self, count: int) -> None:
        while count > 0:
            here = min(count, len(self._ready))
            del self._ready[:here]
            self.at += here
            count -= here
            if count and not self._more():
                raise Cut

    def _more(self) -> bool:
        """Decompress some more; False at the end."""
        self._input = self._input or self._zipped.rest()
        if not self._input:
            if self._unzip.eof:
                return False
            raise Cut  # the last member of the gzip file is incomplete
        if self._unzip.eof:  # another gzip file follows the first: continue with it, as gzip does
            self._unzip = zlib.decompressobj(wbits=31)
        try:
            self._ready += self._unzip.decompress(self._input, UNZIPPED)
        except zlib.error as error:
            url = self._zipped.file.url
            raise SourceError(f"{url}: its gzip data is damaged after {self.at:,} unzipped bytes: {error}") from error
        self._input = self._unzip.unused_data if self._unzip.eof else self._unzip.unconsumed_tail
        return True
