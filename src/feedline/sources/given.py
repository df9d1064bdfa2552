"""Checks of what a dataset of files is given: paths, their root, labels, suffixes.

Takes: what the user passed. Gives: names within a place, checked; labels as an array; suffixes as a tuple.
Promises: when the dataset is made, there is an error that names the path for each path without a known decoder, outside
the root, or in another bucket.
Not its job: reading (files_dataset), packing (names).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Protocol

from feedline.datasets import Array, array_of, as_numbers
from feedline.errors import OptionError, OptionTypeError
from feedline.sources.decoding import PICTURES
from feedline.sources.places import FilePlace, Folder, place_of

PathLike = str | os.PathLike[str]


class Suffixes(Protocol):
    """Knows which files can be read."""

    def suffix(self, name: str) -> str:
        """The known suffix of a name, in lower case; "" if there is none."""
        ...

    def remedy(self, name: str) -> str:
        """What to do about a file that cannot be read."""
        ...


class Taking:
    """Goes through paths, some thousands at a time; at the end `before` and `place` say where the names are."""

    def __init__(self, decoders: Suffixes, root: PathLike | FilePlace | None) -> None:
        self.place: FilePlace | None = None
        """None: on disk."""
        self.before = os.path.join(os.getcwd(), "")  # a worker may have another working directory
        self.suffixes: set[str] = set()
        self._decoders = decoders
        self._rooted, self._prefix = root is not None, "" if root is not None else None
        if root is not None:
            self._settle(root)

    def _settle(self, root: PathLike | FilePlace) -> None:
        place = place_of(root)
        if isinstance(place, Folder):
            self.before = os.path.join(os.path.abspath(place.path), "")
            return
        self.place = place
        url = root if isinstance(root, str) else getattr(place, "url", "")  # for messages
        self.before = url.rstrip("/") + "/" if url else ""

    def __call__(self, paths: list[str]) -> list[str]:
        if self._prefix is None:
            self._prefix = self._of_all(paths[0])
        names = self._without(self._prefix, paths) if self._prefix else paths
        if not self._prefix:
            _check_no_urls(names)
        if self._rooted:
            _check_inside(names, self.before)
        self._check_suffixes(names)
        return names

    def _of_all(self, first: str) -> str:
        """What all paths must begin with if the first one is a URL: it decides the place of all."""
        scheme, is_url, rest = first.partition("://")
        if not is_url or not scheme.isalnum():
            return ""
        if scheme == "file":
            return "file://"
        bucket = f"{scheme}://{rest.partition('/')[0]}/"
        self._settle(bucket)
        return bucket

    def _without(self, prefix: str, paths: list[str]) -> list[str]:
        for path in paths:
            if not path.startswith(prefix):
                raise OptionError(
                    f"paths: {path!r} does not begin with {prefix} as the first one does; "
                    "make a dataset for each place and join them (ConcatDataset)"
                )
        return [path[len(prefix) :] for path in paths]

    def _check_suffixes(self, names: list[str]) -> None:
        """One name of each suffix is checked: most names have one of a few suffixes."""
        for last, name in {name.rpartition(".")[2]: name for name in names}.items():
            suffix = self._decoders.suffix(name)
            if suffix != f".{last.lower()}":  # no suffix, or one of several parts, which other names may lack
                for each in names:
                    if not self._decoders.suffix(each):
                        raise OptionError(f"paths: no decoder is known for {each!r}; {self._decoders.remedy(each)}")
            self.suffixes.add(suffix)


def _check_no_urls(names: list[str]) -> None:
    for name in names:
        if "://" in name:
            raise OptionError(
                f"paths: {name!r} is a URL, but the first path or root= says that paths are names; URLs are given "
                "without root=, all in one bucket. Make a dataset for each place and join them (ConcatDataset)"
            )


def _check_inside(names: list[str], root: str) -> None:
    for name in names:
        if name.startswith("/") or (".." in name and ".." in name.split("/")):
            raise OptionError(f"paths: {name!r} leads out of the root {root!r}; give names within it")


def one_label_each(labels: Any, count: int) -> Array:
    """Labels as an array.

    >>> one_label_each(["cat", "dog"], 2)
    array(['cat', 'dog'], dtype='<U3')
    """
    array = as_numbers(array_of("labels", labels))
    if array.ndim == 0 or len(array) != count:
        has = "has no length" if array.ndim == 0 else f"has {len(array)}"
        raise OptionError(f"labels must have one label for each path; there are {count} paths, and labels {has}")
    if array.dtype.hasobject:
        odd = next((place for place, each in enumerate(array) if not isinstance(each, str)), 0)
        raise OptionTypeError(f"labels must be numbers or strings, but labels[{odd}] is {array[odd]!r}")
    return array


def wanted_suffixes(suffixes: Any, own: Iterable[str]) -> tuple[str, ...]:
    """The requested suffixes; by default those of pictures and of the user's decoders.

    >>> wanted_suffixes([".NPY"], ())
    ('.npy',)
    """
    if suffixes is None:
        return (*PICTURES, *(suffix.lower() for suffix in own if isinstance(suffix, str)))
    if isinstance(suffixes, str) or not hasattr(suffixes, "__iter__"):
        raise OptionTypeError(f"suffixes must be a list of suffixes, such as ['.npy']; got {suffixes!r}")
    wanted = tuple(suffixes)
    for suffix in wanted:
        if not isinstance(suffix, str) or not suffix.startswith("."):
            raise OptionError(f"suffixes has {suffix!r}; a suffix begins with a dot, such as '.npy'")
    if not wanted:
        raise OptionError("suffixes is empty, so no file would be found; pass None for all pictures")
    return tuple(suffix.lower() for suffix in wanted)
