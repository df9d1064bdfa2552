"""Many files by few words: `train-{0000..0099}.tar`, `parts/*.parquet`, or a list of such patterns.

Takes: paths, URLs, patterns. Gives: `Located`s: a file, its place, and its name for messages.
Promises: files come in the order of the patterns and, for a `*`, in the order of names; the same pattern gives the same
files. A file that cannot be read is a `SourceError` with its full name.
Not its job: reading places (places), what is in a file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from itertools import product
from math import prod
from typing import Any, NamedTuple

from feedline.errors import OptionError, OptionTypeError, SourceError
from feedline.errors.masking import file_name
from feedline.sources.places import FilePlace, Folder, place_of

MOST = 1_000_000
"""The most files: more are a typing error in a range, and would fill the memory before any message."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(\d+)\.\.(\d+)(?:\.\.(\d+))?")


class Located(NamedTuple):
    """A file, and where it is."""

    place: FilePlace
    name: str
    url: str

    def size(self) -> int:
        """Its size in bytes."""
        try:
            return self.place.size(self.name)
        except OSError as error:
            raise self._missing(error) from error

    def read(self, start: int, end: int) -> bytes:
        """Bytes `start` to `end`; fewer if the file ends earlier."""
        try:
            return self.place.read_range(self.name, start, end)
        except OSError as error:
            raise self._missing(error) from error

    def beside(self, suffix: str) -> Located:
        """The file of the same name with a suffix added."""
        return Located(self.place, self.name + suffix, self.url + suffix)

    def _missing(self, error: OSError) -> SourceError:
        if isinstance(error, FileNotFoundError):
            return SourceError(f"{self.url}: there is no such file")
        return SourceError(f"{self.url}: cannot be read: {error}")


def locate(urls: Any, what: str) -> list[Located]:
    """The files that one pattern or several mean; `what` is the kind of files, for messages ("tar shards").

    >>> [each.url for each in locate("data/train-{000..002}.tar", "tar shards")]
    ['data/train-000.tar', 'data/train-001.tar', 'data/train-002.tar']
    """
    words = [urls] if isinstance(urls, str | os.PathLike) else urls
    if not isinstance(words, Iterable):
        raise OptionTypeError(f"urls must be a path, a URL, a pattern or a list of them; got {urls!r}")
    places: dict[str, FilePlace] = {}
    found: list[Located] = []
    for word in words:
        if not isinstance(word, str | os.PathLike):
            raise OptionTypeError(f"urls must hold paths, URLs or patterns; got {word!r}")
        for url in expand(os.fspath(word)):
            found += _located(url, places)
    if not found:
        raise OptionError(f"urls names no {what}: it is empty")
    return found


def names_apart(files: Sequence[Located]) -> list[str]:
    """Their names without the common beginning: they stay the same if all files move to another folder or bucket.

    >>> names_apart(locate("data/{a,b}/0.tar", "tar shards"))
    ['a/0.tar', 'b/0.tar']
    """
    folders = [each.url.split("/")[:-1] for each in files]
    first, last = min(folders), max(folders)
    same = next((at for at, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), len(first))
    return ["/".join([*folder[same:], each.name]) for folder, each in zip(folders, files, strict=True)]


def expand(pattern: str) -> list[str]:
    """A pattern with braces, expanded as in a shell: ranges of numbers and alternatives.

    >>> expand("{train,test}-{08..10}.tar")
    ['train-08.tar', 'train-09.tar', 'train-10.tar', 'test-08.tar', 'test-09.tar', 'test-10.tar']
    """
    pieces: list[Sequence[str]] = []
    at = 0
    for braces in _BRACES.finditer(pattern):
        choices = _choices(braces[1], pattern)
        if choices is not None:
            pieces += [[pattern[at : braces.start()]], choices]
            at = braces.end()
    pieces.append([pattern[at:]])
    if prod(map(len, pieces)) > MOST:
        raise _too_many(pattern)
    return ["".join(each) for each in product(*pieces)]


def _choices(inside: str, pattern: str) -> list[str] | None:
    """The values of a pair of braces; None if it is neither a range nor a choice, and stays unchanged."""
    numbers = _RANGE.fullmatch(inside)
    if numbers is None:
        return inside.split(",") if "," in inside else None
    first, last, step = numbers.groups()
    padded = any(len(each) > 1 and each[0] == "0" for each in (first, last))
    digits = max(len(first), len(last)) if padded else 0
    way = 1 if int(first) <= int(last) else -1
    span = range(int(first), int(last) + way, way * max(1, int(step or 1)))
    if abs(int(last) - int(first)) // abs(span.step) >= MOST:  # a range beyond 2**63 has no len()
        raise _too_many(pattern)
    return [str(number).zfill(digits) for number in span]


def _too_many(pattern: str) -> OptionError:
    return OptionError(f"{pattern} stands for more than {MOST:,} files: is a range too long?")


def _located(url: str, places: dict[str, FilePlace]) -> list[Located]:
    head, slash, name = url.rpartition("/")
    if not name:
        shown = file_name(url)
        raise OptionError(
            f"urls must name files, but {shown!r} ends without a name; for all files in it, write {shown}*"
        )
    parent = head + slash if head in ("", "file://") or head.endswith("//") else head
    if parent not in places:
        places[parent] = place_of(parent or ".")
    place = places[parent]
    if "*" not in name or url.startswith(("http://", "https://")):  # there a * is no pattern, and nothing can be listed
        return [Located(place, name, file_name(url))]
    return _matching(place, name, parent, url)


def _matching(place: FilePlace, pattern: str, parent: str, url: str) -> list[Located]:
    fits = re.compile(translate(pattern.replace("[", "[[]"))).match
    names = (
        _names(place) if isinstance(place, Folder) else [each.name for each in place.list(pattern.partition("*")[0])]
    )
    names = [name for name in names if fits(name) and "/" not in name]
    if not names:
        raise SourceError(f"{url}: no file matches this")
    head = f"{parent.rstrip('/')}/" if parent else ""
    return [Located(place, name, file_name(head + name)) for name in names]


def _names(folder: Folder) -> list[str]:
    """The names in the folder itself: listing everything below it would take long, and find nothing more."""
    try:
        return sorted(os.listdir(folder.path))
    except OSError as error:
        raise SourceError(f"there is no folder {folder.path}") from error
