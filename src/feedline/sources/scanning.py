"""The files below a folder or in a bucket, class by class.

Takes: a place with one folder for each class. Gives: `FolderClasses`: their names, and the names of their files.
Promises: sorted by name, as bytes, so the order depends on no file system and no locale; hidden files and folders
(those with a leading dot) are ignored; links are followed, but not in circles; on a disk no single file is queried,
only its folder.
Not its job: reading files (files_dataset).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from feedline.errors import SourceError
from feedline.sources.places import FilePlace, Folder

Wanted = Callable[[str], bool]
FEW = 5
"""How many names a message lists."""


class ClassFolder(NamedTuple):
    """A class."""

    name: str
    files: list[str]
    """Names of the wanted files, relative to the place."""
    others: list[str]
    """Some of the other files."""


def scan(place: FilePlace, wanted: Wanted) -> Iterator[ClassFolder]:
    """One class after the other, by name.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name in ("b/2.txt", "a/1.txt", "a/.hidden.txt", "a/deeper/3.txt", "a/x.bin"):
    ...         pathlib.Path(root, name).parent.mkdir(parents=True, exist_ok=True)
    ...         pathlib.Path(root, name).touch()
    ...     for each in scan(Folder(root), lambda name: name.endswith(".txt")):
    ...         print(each)
    ClassFolder(name='a', files=['a/1.txt', 'a/deeper/3.txt'], others=['x.bin'])
    ClassFolder(name='b', files=['b/2.txt'], others=[])
    """
    return _scan_disk(os.fspath(place.path), wanted) if isinstance(place, Folder) else _scan_listed(place, wanted)


def _scan_disk(root: str, wanted: Wanted) -> Iterator[ClassFolder]:
    try:
        with os.scandir(root) as entries:
            names = [
                each.name for each in entries if not each.name.startswith(".") and (each.is_dir() or _is_broken(each))
            ]
    except OSError as error:
        raise SourceError(f"{root}: cannot be read as a folder of classes: {error.strerror}") from error
    for name in sorted(names, key=os.fsencode):
        found, others = _below(os.path.join(root, name), name, wanted)
        found.sort(key=os.fsencode)
        yield ClassFolder(name, found, others)


def _below(path: str, name: str, wanted: Wanted) -> tuple[list[str], list[str]]:
    """Files in a folder and in the folders below it, in no order."""
    found: list[str] = []
    others: list[str] = []
    waiting = [(path, name, frozenset({os.path.realpath(path)}))]
    while waiting:
        path, name, above = waiting.pop()
        try:
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir():
                        waiting += _deeper(entry, name, above)
                    elif not wanted(entry.name):
                        others += [entry.name] if len(others) < FEW else []
                    elif entry.is_file() or _is_broken(entry):  # a broken link is reported when it is read
                        found.append(f"{name}/{entry.name}")
        except OSError as error:
            raise SourceError(f"{path}: this folder cannot be read: {error.strerror}") from error
    return found, others


def _is_broken(entry: os.DirEntry[str]) -> bool:
    return entry.is_symlink() and not os.path.exists(entry.path)


def _deeper(entry: os.DirEntry[str], name: str, above: frozenset[str]) -> list[tuple[str, str, frozenset[str]]]:
    """A folder to search; nothing if it is a link to a folder that contains it."""
    if entry.is_symlink():
        real = os.path.realpath(entry.path)
        if real in above:
            return []
        above = above | {real}
    return [(entry.path, f"{name}/{entry.name}", above)]


def _scan_listed(place: FilePlace, wanted: Wanted) -> Iterator[ClassFolder]:
    """Object storage has no folders, only names with slashes, which are listed in order."""
    classes: dict[str, ClassFolder] = {}
    for each in place.list():
        first, slash, rest = each.name.partition("/")
        if not slash or any(part.startswith(".") for part in each.name.split("/")):
            continue
        folder = classes.setdefault(first, ClassFolder(first, [], []))
        if each.name.endswith("/"):  # some tools write such an object for a folder
            continue
        if wanted(each.name):
            folder.files.append(each.name)
        elif len(folder.others) < FEW:
            folder.others.append(rest)
    for name in sorted(classes, key=os.fsencode):
        yield classes[name]


class FolderClasses:
    """The classes below a place; they are known after the names of all files have been read."""

    def __init__(self, place: FilePlace, wanted: Wanted, allow_empty: bool, suffixes: Any) -> None:
        self.classes: list[str] = []
        self.sizes: list[int] = []
        self._place, self._wanted = place, wanted
        self._allow_empty, self._suffixes = allow_empty, " ".join(sorted(suffixes))

    def names(self) -> Iterator[str]:
        """The names of all files, class by class."""
        empty: list[ClassFolder] = []
        for each in scan(self._place, self._wanted):
            self.classes.append(each.name)
            self.sizes.append(len(each.files))
            empty += [] if each.files else [each]
            yield from each.files
        if not self.classes:
            raise SourceError(
                f"{self._place!r} has no folders in it, and each class should have one; FilesDataset takes bare files"
            )
        if len(empty) == len(self.classes) or (empty and not self._allow_empty):
            raise SourceError(self._told(empty))

    def _told(self, empty: list[ClassFolder]) -> str:
        folders = ", ".join(f"{each.name} ({_contents(each)})" for each in empty[:FEW])
        more = f" and {len(empty) - FEW:,} more" if len(empty) > FEW else ""
        remedy = "" if len(empty) == len(self.classes) else ", or leave them empty with allow_empty=True"
        return (
            f"{self._place!r}: no file with one of the suffixes {self._suffixes} is in {folders}{more}; "
            f"name others with suffixes=[…]{remedy}"
        )


def _contents(folder: ClassFolder) -> str:
    return f"has {', '.join(folder.others)}" if folder.others else "nothing at all"
