"""A place whose objects are stored on disk after they have been read once.

Takes: a place, a folder, how many bytes it may hold. Gives: the same place, read from disk if possible.
Promises: the bytes are the place's: a damaged entry is read again, and objects of the same name in different places are
kept apart by the place's repr(). If the folder cannot be used, or the disk is full, reading continues without the
cache, with one warning.
Not its job: how entries are stored, shared and removed (cache_folder); noticing that an object has changed.
"""

from __future__ import annotations

import os
import warnings
from builtins import list as list_of
from collections.abc import Sequence

from feedline.errors import OptionTypeError
from feedline.errors.checks import check_folder, check_whole
from feedline.sources.cache_folder import CacheFolder
from feedline.sources.places import FilePlace, Folder, StoredFile, place_of, unless_failed


class CachedPlace:
    """A place with a cache in a folder on disk, of at most `max_bytes`; least recently used entries are removed first.

    Any number of processes may share the folder, including different training runs at the same time; none of them
    leaves a damaged entry, however it ends. Whole objects are cached, ranges are not. Objects are assumed not to
    change: empty the folder if objects have been replaced under their old names.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as far, tempfile.TemporaryDirectory() as near:
    ...     _ = pathlib.Path(far, "a.txt").write_bytes(b"hello")
    ...     place = CachedPlace(far, near, max_bytes=1_000_000)
    ...     _ = place.read("a.txt")
    ...     pathlib.Path(far, "a.txt").unlink()
    ...     print(place.read("a.txt"))
    b'hello'
    """

    def __init__(
        self, place: str | os.PathLike[str] | FilePlace, folder: str | os.PathLike[str], *, max_bytes: int
    ) -> None:
        self.place = place_of(place)
        self._known_as = _identity(self.place)
        self._folder = CacheFolder(check_folder("folder", folder), check_whole("max_bytes", max_bytes, least=1))

    def read(self, name: str) -> bytes:
        """A whole object, from disk if it is there."""
        return self.read_many([name])[0]

    def read_many(self, names: Sequence[str]) -> list_of[bytes]:
        """Several objects; those that are not on disk are read at the same time."""
        return unless_failed(self.read_each(names))

    def read_each(self, names: Sequence[str]) -> list_of[bytes | Exception]:
        """The same; in the place of an object that is not there, the error, if the place tells them apart."""
        found: dict[str, bytes | Exception] = {
            name: data for name in set(names) if (data := self._folder.get(self._key(name))) is not None
        }
        missing = [name for name in dict.fromkeys(names) if name not in found]
        if missing:
            each = getattr(self.place, "read_each", self.place.read_many)
            for name, data in zip(missing, each(missing), strict=True):
                found[name] = data
                if isinstance(data, bytes):
                    self._keep(name, data)
        return [found[name] for name in names]

    def read_range(self, name: str, start: int, end: int) -> bytes:
        """A part of an object, always from the place: checking an entry would mean reading all of it."""
        return self.place.read_range(name, start, end)

    def size(self, name: str) -> int:
        """The size of an object, as the place says."""
        return self.place.size(name)

    def list(self, prefix: str = "") -> list_of[StoredFile]:
        """What the place has."""
        return self.place.list(prefix)

    def url_of(self, name: str) -> str:
        """The name of an object in its place.

        >>> CachedPlace("https://example.org", "/tmp/cache", max_bytes=1000).url_of("a")
        'https://example.org/a'
        """
        return self.place.url_of(name)

    def _key(self, name: str) -> bytes:
        return f"{self._known_as}\0{name}".encode()

    def _keep(self, name: str, data: bytes) -> None:
        refused = self._folder.put(self._key(name), data)
        if refused is not None:
            warnings.warn(
                f"the cache in {self._folder.path} cannot be written ({refused}), so nothing more is kept in it. Give "
                "another folder, or a smaller max_bytes if the disk is full.",
                RuntimeWarning,
                stacklevel=5,
            )

    def __repr__(self) -> str:
        return f"CachedPlace({self.place!r}, {str(self._folder.path)!r}, max_bytes={self._folder.max_bytes})"


def _identity(place: FilePlace) -> str:
    """A text that distinguishes it from all other places, also in other processes and later."""
    if isinstance(place, Folder):
        return f"Folder({os.path.abspath(place.path)!r})"  # a relative path depends on the working directory
    if type(place).__repr__ is object.__repr__:
        raise OptionTypeError(
            "place must have a __repr__ that names it, because the cache is keyed by it: that of "
            f"{type(place).__name__} only shows an address in memory, which another place may have later"
        )
    return repr(place)
