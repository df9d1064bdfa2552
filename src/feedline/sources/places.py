"""Places that hold bytes under names: a folder, a bucket. Shards, Parquet files and images are read from them.

Takes: a URL or a path (`place_of`). Gives: a `FilePlace`: whole objects, ranges of them, many at a time, and lists.
Promises: names are relative to the place and use "/"; a place can be pickled, and opens what it needs again in the
other process; a missing object is a FileNotFoundError that names it; anything else that goes wrong is a SourceError
that names the place.
Not its job: object storage itself (object_store); what the bytes mean.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from feedline.errors import OptionError, SourceError
from feedline.errors.masking import address

REMOTE = ("s3", "gs", "az", "http", "https")


class StoredFile(NamedTuple):
    """An object in a place."""

    name: str
    size: int


class FilePlace(Protocol):
    """Bytes under names."""

    def read(self, name: str) -> bytes:
        """A whole object."""
        ...

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """Bytes `start` to `end` (not included) of an object; fewer only if the object ends earlier."""
        ...

    def read_many(self, names: Sequence[str]) -> list[bytes]:
        """Several objects, in the requested order; at the same time if that helps.

        A place may also have `read_each`, which gives an error in the place of an object that is not there: then the
        others of a batch are not asked for again.
        """
        ...

    def size(self, name: str) -> int:
        """The size of an object in bytes."""
        ...

    def list(self, prefix: str = "") -> list[StoredFile]:
        """All objects whose names begin with `prefix`, ordered by name."""
        ...

    def url_of(self, name: str) -> str:
        """The URL or path of an object, for messages; for "", that of the place."""
        ...


class Folder:
    """A folder on disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as name:
    ...     _ = (Path(name) / "a.txt").write_bytes(b"hello")
    ...     folder = Folder(name)
    ...     print(folder.list(), folder.read_range("a.txt", 1, 3))
    [StoredFile(name='a.txt', size=5)] b'el'
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    def read(self, name: str) -> bytes:
        """A whole file."""
        return self._at(name).read_bytes()

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """A part of a file."""
        descriptor = os.open(self._at(name), os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts, at = [], start
            while at < end and (part := os.pread(descriptor, end - at, at)):
                parts.append(part)
                at += len(part)
            return b"".join(parts)
        finally:
            os.close(descriptor)

    def read_many(self, names: Sequence[str]) -> list[bytes]:
        """One after the other: a disk gains little from parallel reads."""
        return [self.read(name) for name in names]

    def size(self, name: str) -> int:
        """The size of a file."""
        return self._at(name).stat().st_size

    def list(self, prefix: str = "") -> list[StoredFile]:
        """All files below the folder, ordered by name."""
        if not self.path.is_dir():
            raise SourceError(f"there is no folder {self.path}")
        found = []
        for folder, _, names in os.walk(self.path):
            for name in names:
                path = Path(folder, name)
                relative = path.relative_to(self.path).as_posix()
                if relative.startswith(prefix):
                    found.append(StoredFile(relative, path.stat().st_size))
        return sorted(found)

    def url_of(self, name: str) -> str:
        """A file's path.

        >>> Folder("data").url_of("a.txt")
        'data/a.txt'
        """
        return str(self.path / name)

    def _at(self, name: str) -> Path:
        if name.startswith("/") or ".." in name.split("/"):
            raise OptionError(f"the name {name!r} leads out of {self.path}")
        return self.path / name

    def __repr__(self) -> str:
        return f"Folder({str(self.path)!r})"


def unless_failed(found: list[bytes | Exception]) -> list[bytes]:
    """What `read_each` gave; the first error in it is raised.

    >>> unless_failed([b"a", b""])
    [b'a', b'']
    """
    for each in found:
        if isinstance(each, Exception):
            try:
                raise each
            finally:
                del each, found  # otherwise the error would refer to itself
    return cast("list[bytes]", found)


def place_of(url: str | os.PathLike[str] | FilePlace) -> FilePlace:
    """The place that a path, `file://`, `s3://`, `gs://`, `az://` or `http(s)://` URL means.

    >>> place_of("data/shards")
    Folder('data/shards')
    >>> place_of("file:///data/shards")
    Folder('/data/shards')
    """
    if not isinstance(url, str | os.PathLike):
        return url
    text = os.fspath(url)
    scheme, separator, rest = text.partition("://")
    if not separator:
        return Folder(text)
    if scheme == "file":
        return Folder(rest)
    if scheme in REMOTE:
        # Imported by name: most users of a folder have no driver for anything else.
        made: FilePlace = import_module("feedline.sources.object_store").ObjectStore(text)
        return made
    known = ", ".join(f"{each}://" for each in ("file", *REMOTE))
    raise OptionError(f"{address(text)}: feedline cannot read {scheme}://; give a path or one of {known}")
