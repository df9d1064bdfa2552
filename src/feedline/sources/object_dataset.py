"""Objects as a dataset: one sample each, a whole batch of them fetched at the same time.

Takes: a URL or a place, which objects, labels, a decoder of the bytes. Gives: decoded objects, or `(value, label)`, or
rows with the decoded object in them.
Promises: when it is made, the names are known and no object has been read; errors name the object's URL; if one object
of a batch fails, `on_error="skip"` drops only that one; a `transform` that draws from `feedline.rng()` gives the same
augmentation everywhere.
Not its job: requests (object_store), decoding by suffix (decoding), keeping objects on disk (cached), rows that name
objects (object_rows).
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
from feedline.sources.names import Names
from feedline.sources.object_rows import ObjectRows
from feedline.sources.object_store import ObjectStore
from feedline.sources.places import REMOTE, FilePlace, place_of
from feedline.sources.set_aside import read_alone, read_aside, read_together


def as_array(data: bytes, name: str) -> Array:
    """The bytes as an array with its own memory, which can be written to.

    >>> as_array(b"ab", "x")
    array([97, 98], dtype=uint8)
    """
    return np.frombuffer(bytearray(data), np.uint8)


class ObjectDataset(Dataset[Any]):
    """Objects of a bucket, read many at a time: with a batch size of 64, 64 requests run at the same time.

    `place` is a URL (`s3://`, `gs://`, `az://`, `http(s)://`, then with ObjectStore's options) or a place
    (`ObjectStore`, `CachedPlace`, a folder). `names` are the objects in it: a list, or a column of a table; None means
    all whose names begin with `prefix`, in the order of their names. `labels` has one label for each, or is a function
    of the name. `decode` gets an object's bytes and its name (such as `Decoders(size=(224, 224))`), `transform` gets
    the result. By default the bytes are an array.

    With `key`, `names` is a dataset of rows (`SQLDataset`), and `key` the column that names the object. A sample is
    then the row, a dict, with the decoded object instead of its name; `transform` gets that dict.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name in ("cat-1.txt", "dog-1.txt"):
    ...         _ = pathlib.Path(folder, name).write_text(f"a {name[:3]}")
    ...     data = ObjectDataset(folder, labels=lambda name: name[:3], decode=lambda data, name: data.decode())
    ...     print(len(data), data.names, data.labels, data[1][0])
    ...     rows = [{"id": 7, "said": "dog-1.txt", "label": 1}]
    ...     print(ObjectDataset(folder, rows, key="said", decode=lambda data, name: data.decode())[0])
    2 ['cat-1.txt', 'dog-1.txt'] ['cat' 'dog'] a dog
    {'id': 7, 'said': 'a dog', 'label': 1}
    """

    labels: Array | None

    def __init__(
        self,
        place: str | os.PathLike[str] | FilePlace,
        names: Any = None,
        *,
        key: str | None = None,
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
        self._by_row = None if key is None else _rows(names, key, prefix, labels)
        listed = () if key is not None else self._all(prefix) if names is None else _checked(names, prefix)
        self._names = Names(listed, _none_empty, "names")
        if self._by_row is None and not len(self._names):
            raise OptionError("names is empty; pass None for all objects")
        self._before = _before(self.place)
        self.labels = None if labels is None else _one_each(labels, self.names if callable(labels) else self._names)

    def _all(self, prefix: str) -> list[str]:
        found = [entry.name for entry in self.place.list(prefix)]
        if not found:
            begins = f" whose name begins with {prefix!r}" if prefix else ""
            raise SourceError(f"{self.place.url_of('')}: there is no object{begins}; look at the URL and at prefix=")
        return found

    @property
    def names(self) -> list[str]:
        """The objects' names, in order."""
        return [self._name(at, row) for at, row in enumerate(self._rows(range(len(self))))]

    @property
    def rows(self) -> Any:
        """The dataset of rows that was given as `names`; None if there is none."""
        return None if self._by_row is None else self._by_row.dataset

    @property
    def fingerprint(self) -> str | None:
        """That of the rows, if there are any: resuming with other rows is refused. None for a list of names."""
        return None if self._by_row is None else self._by_row.fingerprint

    def __len__(self) -> int:
        return len(self._names if self._by_row is None else self._by_row)

    def __getitem__(self, index: int) -> Any:
        at = position(index, len(self), "ObjectDataset")
        (row,) = self._rows([at])
        name = self._name(at, row)
        return self._sample(at, row, name, read_alone(self.place, name))

    def __getitems__(self, indices: list[int]) -> list[Any]:
        """The samples of a batch, fetched at the same time."""
        places = [position(index, len(self), "ObjectDataset") for index in indices]
        rows = self._rows(places, indices)
        names = self._all_names(places, rows)
        samples: list[Any] = []
        contents = read_together(self.place, names)
        for number, (at, row, name) in enumerate(zip(places, rows, names, strict=True)):
            try:
                data = next(contents)
            except Exception as error:
                self._say_which(error, places, names)
                raise
            enter_one_of(number, indices)  # otherwise all of them would share the batch's random numbers
            samples.append(self._sample(at, row, name, data))
        next(contents, None)
        return samples

    def _all_names(self, places: list[int], rows: Sequence[Any]) -> list[str]:
        names: list[str] = []
        failed = []
        for at, row in zip(places, rows, strict=True):
            try:
                names.append(self._name(at, row))
            except SourceError as error:  # a row without a name
                failed.append(error.with_traceback(None))
        if failed:
            read_aside(self.place, names)
            raise failed.pop(0)
        return names

    def _say_which(self, error: Exception, places: list[int], names: list[str]) -> None:
        """Name the row of the object that an error names."""
        said = [
            (len(url), at)
            for at, name in zip(places, names, strict=True)
            if (url := self.place.url_of(name)) in str(error)
        ]
        if said and self._by_row is not None:
            add_note(error, f"feedline: it is the object of {self._by_row.describe(max(said)[1])}")

    def _sample(self, at: int, row: Any, name: str, data: bytes) -> Any:
        try:
            value = self.decode(data, name)
            if self._by_row is not None:
                value = {**row, self._by_row.key: value}
            if self.transform is not None:
                value = self.transform(value)
        except Exception as error:
            of = "" if self._by_row is None else f" of {self._by_row.describe(at)}"
            add_note(error, f"feedline: while decoding {self.place.url_of(name)} ({len(data):,} bytes){of}")
            raise
        if self.labels is None:
            return value
        label = self.labels[at]
        return value, label.copy() if isinstance(label, np.ndarray) else label

    def _rows(self, places: Sequence[int], indices: Sequence[int] = ()) -> Sequence[Any]:
        return [None] * len(places) if self._by_row is None else self._by_row.read(places, indices)

    def _name(self, at: int, row: Any) -> str:
        name = self._names[at] if self._by_row is None else self._by_row.name(row, at)
        return name.removeprefix(self._before)  # a table may have whole URLs

    def describe(self, index: int) -> str:
        """The URL of a sample, and its row if there is one; only the end of a very long URL. "" if there is none.

        >>> ObjectDataset("https://example.org/data", ["a.bin"]).describe(0)
        'https://example.org/data/a.bin'
        """
        if not -len(self) <= index < len(self):
            return ""
        at = position(index, len(self), "ObjectDataset")
        row = "" if self._by_row is None else self._by_row.describe(at)
        try:
            url = self.place.url_of(self._name(at, *self._rows([at])))
        except Exception:  # a row without a name, or that cannot be read itself
            return row
        if row:
            return f"{url} of {row}"[:LONGEST_DESCRIPTION]
        return url if len(url) < LONGEST_DESCRIPTION else "…" + url[2 - LONGEST_DESCRIPTION :]

    def __repr__(self) -> str:
        return f"ObjectDataset({self.place!r}, {counted(len(self), 'object')})"


def _before(place: FilePlace) -> str:
    """What names may begin with, if they are whole URLs or paths.

    Not that of a relative folder: within it there may be another one of the same name.

    >>> _before(place_of("/data")), _before(place_of("data"))
    ('/data/', '')
    """
    root = place.url_of("")
    return f"{root.rstrip('/')}/" if "://" in root or os.path.isabs(root) else ""


def _place(place: Any, options: dict[str, Any]) -> FilePlace:
    if isinstance(place, str) and place.partition("://")[0] in REMOTE:
        return ObjectStore(place, **options)
    if options:
        raise OptionError(
            f"{next(iter(options))}= is an option of ObjectStore: it needs a URL such as s3://bucket, not {place!r}"
        )
    return place_of(place)


def _rows(names: Any, key: Any, prefix: str, labels: Any) -> ObjectRows:
    if prefix or labels is not None:
        given = "prefix" if prefix else "labels"
        raise OptionError(
            f"{given}= goes with a list of names; with key=, the rows say which objects and labels there are"
        )
    return ObjectRows(names, key)


def _checked(names: Any, prefix: str) -> Any:
    if prefix:
        raise OptionError("prefix= chooses among all objects, and names= already names them: leave out one of them")
    if isinstance(names, Dataset):
        raise OptionTypeError(
            f"names is a {type(names).__name__}: say which of its columns names the objects, such as key='path'"
        )
    if isinstance(names, str | bytes) or not hasattr(names, "__iter__"):
        raise OptionTypeError(f"names must be a list of names; got {names!r}; pass a prefix as prefix=")
    return names


def _none_empty(names: list[str]) -> list[str]:
    if not all(names):
        raise OptionError("names must be names of objects, and one of them is empty")
    return names


def _one_each(labels: Any, names: Sequence[str]) -> Array:
    given = [labels(name) for name in names] if callable(labels) else labels
    array = np.asarray(given)
    if array.ndim == 0 or len(array) != len(names):
        has = "have no length" if array.ndim == 0 else f"are {len(array)}"
        raise OptionError(
            f"labels must have one label for each object; there are {len(names)} objects, and labels {has}"
        )
    return array
