"""Objects as a dataset: one sample each, a whole batch of them fetched at the same time.

Takes: a URL or a place, which objects, labels, a decoder of the bytes. Gives: decoded objects, or `(value, label)`.
Promises: when it is made, the names are known and no object has been read; errors name the object's URL; if one object
of a batch fails, `on_error="skip"` drops only that one; a `transform` that draws from `feedline.rng()` gives the same
augmentation everywhere.
Not its job: requests (object_store), decoding by suffix (decoding), keeping objects on disk (cached).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from feedline.datasets import Array, Dataset
from feedline.datasets.reading import LONGEST_DESCRIPTION, position
from feedline.errors import OptionError, OptionTypeError, SourceError, add_note
from feedline.errors.checks import check_function
from feedline.errors.counting import counted
from feedline.randomness.rng import enter_one_of
from feedline.sources.object_store import ObjectStore
from feedline.sources.places import REMOTE, FilePlace, place_of


def as_array(data: bytes, name: str) -> Array:
    """The bytes as an array with its own memory, which can be written to.

    >>> as_array(b"ab", "x")
    array([97, 98], dtype=uint8)
    """
    return np.frombuffer(bytearray(data), np.uint8)


class ObjectDataset(Dataset[Any]):
    """Objects of a bucket, read many at a time: with a batch size of 64, 64 requests run at the same time.

    `place` is a URL (`s3://`, `gs://`, `az://`, `http(s)://`, then with ObjectStore's options) or a place
    (`ObjectStore`, `CachedPlace`, a folder). `names` are the objects in it; None means all whose names begin with
    `prefix`, in the order of their names. `labels` has one label for each, or is a function of the name. `decode` gets
    an object's bytes and its name, `transform` gets the result. By default the bytes are an array.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("cat-1.txt", "dog-1.txt"):
    ...         _ = pathlib.Path(folder, name).write_text(f"a {name[:3]}")
    ...     data = ObjectDataset(folder, labels=lambda name: name[:3], decode=lambda data, name: data.decode())
    ...     print(len(data), data.names, data.labels, data[1][0])
    2 ['cat-1.txt', 'dog-1.txt'] ['cat' 'dog'] a dog
    """

    labels: Array | None

    def __init__(
        self,
        place: str | os.PathLike[str] | FilePlace,
        names: Sequence[str] | None = None,
        *,
        prefix: str = "",
        labels: Sequence[Any] | Array | Callable[[str], Any] | None = None,
        decode: Callable[[bytes, str], Any] = as_array,
        transform: Callable[[Any], Any] | None = None,
        **options: Any,
    ) -> None:
        self.place = _place(place, options)
        if not callable(decode):
            raise OptionTypeError(f"decode must be a function of bytes and name; got {decode!r}")
        self.decode, self.transform = decode, check_function("transform", transform)
        found = self._all(prefix) if names is None else _checked_names(names, prefix)
        self.labels = None if labels is None else _one_each(labels, found)
        # One array, not a string each: reading strings would copy their pages in every forked worker.
        self._names: Array = np.array([name.encode() for name in found], np.bytes_)

    def _all(self, prefix: str) -> list[str]:
        found = [entry.name for entry in self.place.list(prefix)]
        if not found:
            begins = f" whose name begins with {prefix!r}" if prefix else ""
            raise SourceError(f"{self.place.url_of('')}: there is no object{begins}; look at the URL and at prefix=")
        return found

    @property
    def names(self) -> list[str]:
        """The objects' names, in order."""
        return [name.decode() for name in self._names.tolist()]

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> Any:
        at = position(index, len(self), "ObjectDataset")
        name = self._name(at)
        return self._sample(at, name, self.place.read(name))

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of a batch, fetched at the same time."""
        places = [position(index, len(self), "ObjectDataset") for index in indices]
        names = [self._name(at) for at in places]
        samples = []
        contents = self.place.read_many(names)
        for number, (at, name, data) in enumerate(zip(places, names, contents, strict=True)):
            enter_one_of(number, indices)  # otherwise all of them would share the batch's random numbers
            samples.append(self._sample(at, name, data))
        return samples

    def _sample(self, at: int, name: str, data: bytes) -> Any:
        try:
            value = self.decode(data, name)
            if self.transform is not None:
                value = self.transform(value)
        except Exception as error:
            add_note(error, f"feedline: while decoding {self.place.url_of(name)} ({len(data):,} bytes)")
            raise
        if self.labels is None:
            return value
        label = self.labels[at]
        return value, label.copy() if isinstance(label, np.ndarray) else label

    def describe(self, index: int) -> str:
        """The URL of a sample; only its end, if it is very long. "" if there is no such sample.

        >>> ObjectDataset("https://example.org/data", ["a.bin"]).describe(0)
        'https://example.org/data/a.bin'
        """
        if not -len(self) <= index < len(self):
            return ""
        url = self.place.url_of(self._name(index))
        return url if len(url) < LONGEST_DESCRIPTION else "…" + url[2 - LONGEST_DESCRIPTION :]

    def _name(self, at: int) -> str:
        name: bytes = self._names[at]
        return name.decode()

    def __repr__(self) -> str:
        return f"ObjectDataset({self.place!r}, {counted(len(self), 'object')})"


def _place(place: Any, options: dict[str, Any]) -> FilePlace:
    if isinstance(place, str) and place.partition("://")[0] in REMOTE:
        return ObjectStore(place, **options)
    if options:
        raise OptionError(
            f"{next(iter(options))}= is an option of ObjectStore: it needs a URL such as s3://bucket, not {place!r}"
        )
    return place_of(place)


def _checked_names(names: Sequence[str], prefix: str) -> list[str]:
    if prefix:
        raise OptionError("prefix= chooses among all objects, and names= already names them: leave out one of them")
    if isinstance(names, str | bytes):
        raise OptionTypeError(f"names must be a list of names; got {names!r}; pass a prefix as prefix=")
    found = list(names)
    for at, name in enumerate(found):
        if not isinstance(name, str) or not name:
            raise OptionTypeError(f"names must be strings, but names[{at}] is {name!r}")
    if not found:
        raise OptionError("names is empty; pass None for all objects")
    return [str(name) for name in found]


def _one_each(labels: Any, names: list[str]) -> Array:
    given = [labels(name) for name in names] if callable(labels) else labels
    array = np.asarray(given)
    if array.ndim == 0 or len(array) != len(names):
        has = "have no length" if array.ndim == 0 else f"are {len(array)}"
        raise OptionError(
            f"labels must have one label for each object; there are {len(names)} objects, and labels {has}"
        )
    return array
