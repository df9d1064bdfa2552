"""Files as a dataset: one sample each, decoded by suffix; folders as classes.

Takes: paths and labels (`FilesDataset`), or a folder with a folder for each class (`FolderDataset`); on disk or in
object storage. Gives: a decoded file, or a pair of it and its label.
Promises: a file is read when its sample is requested, and not before; errors name the file; the samples are the same in
every worker; paths are stored compactly. A `transform` that draws from `feedline.rng()` gives the same augmentation
everywhere.
Not its job: decoding (decoding), finding files (scanning), batches.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from feedline.datasets import Array, Dataset
from feedline.datasets.reading import LONGEST_DESCRIPTION, position
from feedline.errors import OptionTypeError, SourceError
from feedline.errors.checks import check_flag, check_function
from feedline.errors.counting import counted
from feedline.errors.masking import file_name
from feedline.randomness.rng import enter_one_of
from feedline.sources.decoding import MAX_BYTES, MAX_PIXELS, Decoders
from feedline.sources.given import PathLike, Taking, one_label_each, wanted_suffixes
from feedline.sources.names import Names
from feedline.sources.places import FilePlace, place_of
from feedline.sources.scanning import FolderClasses
from feedline.sources.set_aside import read_alone, read_together


class FilesDataset(Dataset[Any]):
    """Files, each decoded by its suffix: the value alone, or `(value, label)` if there are labels.

    `paths` is any sequence of paths: a list, a NumPy array, a column of an Arrow table or a data frame. They may be
    URLs (`s3://…`) of one bucket, or names within `root`. `labels` has one label for each path: numbers or strings.

    Pictures (`.jpg`, `.png`, `.webp`, `.gif`, `.bmp`, `.tif`) become uint8 arrays (height, width, channels), resized to
    `size=(height, width)` if it is given, and converted to `mode` ("RGB" or "L"); `channels_first=True` gives
    (channels, height, width). EXIF orientation is ignored unless `upright=True`. `.npy` gives an array, `.npz` a
    dict of arrays, `.txt` a string, `.json` what it holds, `.wav` a `(samples, rate)`. `decoders={".dcm": function}`
    adds kinds of files, or replaces ours; the function gets the bytes. `transform` gets the decoded value.

    Nothing is unpickled unless `allow_pickle=True`. A picture with more than `max_pixels` is an error, and so is a file
    that is, or unpacks to, more than `max_bytes`.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     paths = [pathlib.Path(folder, name) for name in ("a.txt", "b.json")]
    ...     _ = paths[0].write_text("hello"), paths[1].write_text("[1, 2]")
    ...     files = FilesDataset(paths, labels=[0, 1])
    ...     print(len(files), files[0][0], files[1][0], files.labels)
    2 hello [1, 2] [0 1]
    """

    paths: Sequence[str]
    labels: Array | None

    def __init__(
        self,
        paths: Iterable[PathLike],
        labels: Any = None,
        size: tuple[int, int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        *,
        root: PathLike | FilePlace | None = None,
        mode: str = "RGB",
        channels_first: bool = False,
        upright: bool = False,
        decoders: Mapping[str, Callable[[bytes], Any]] | None = None,
        allow_pickle: bool = False,
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._decoders = Decoders(
            size,
            mode=mode,
            channels_first=channels_first,
            upright=upright,
            allow_pickle=allow_pickle,
            max_pixels=max_pixels,
            max_bytes=max_bytes,
            decoders=decoders,
        )
        self.transform = check_function("transform", transform)
        self._take(paths, root)
        self.labels = None if labels is None else one_label_each(labels, len(self.paths))

    def _take(self, paths: Iterable[PathLike], root: PathLike | FilePlace | None) -> None:
        if isinstance(paths, str | bytes | os.PathLike) or not hasattr(paths, "__iter__"):
            raise OptionTypeError(f"paths must be a sequence of paths; got {paths!r}; FolderDataset takes a folder")
        taking = Taking(self._decoders, root)
        self.paths = Names(paths, taking)
        self._decoders.check_packages(taking.suffixes)
        self._place, self._before = taking.place, taking.before

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        place = position(index, len(self.paths), type(self).__name__)
        name = self.paths[place]
        return self._sample(place, name, self._on_disk(name) if self._place is None else read_alone(self._place, name))

    def _path(self, name: str) -> str:
        return os.path.join(self._before, name)  # without a root, names may be absolute

    def local_files(self) -> Iterator[str]:
        """The paths of all files on disk: a cache of samples looks at their sizes and dates."""
        return map(self._path, self.paths) if self._place is None else iter(())

    def _reads_many(self) -> bool:
        """Are several read at once? Only where that helps: a disk gains little from it."""
        return self._place is not None

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if self._place is None:
            return [self[index] for index in indices]
        places = [position(index, len(self.paths), type(self).__name__) for index in indices]
        names = [self.paths[place] for place in places]
        samples = []
        contents = read_together(self._place, names)
        for number, (place, name, data) in enumerate(zip(places, names, contents, strict=True)):
            enter_one_of(number, indices)  # otherwise all of them would share the batch's random numbers
            samples.append(self._sample(place, name, data))
        return samples

    def _on_disk(self, name: str) -> bytes:
        # O_NONBLOCK: opening a pipe would otherwise wait until somebody writes to it.
        descriptor = os.open(self._path(name), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise SourceError(f"{self._path(name)}: is not a regular file")
            self._check(name, about.st_size)
            with open(descriptor, "rb", buffering=0, closefd=False) as file:
                return file.read()
        finally:
            os.close(descriptor)

    def _check(self, name: str, size: int) -> None:
        if size > (most := self._decoders.max_bytes):
            raise SourceError(
                f"{self._path(name)}: has {size:,} bytes, more than max_bytes={most:,}; raise max_bytes= to read it"
            )

    def _sample(self, place: int, name: str, data: bytes) -> Any:
        self._check(name, len(data))
        value = self._decoders.decode(self._path(name), data)
        if self.transform is not None:
            value = self.transform(value)
        if self.labels is None:
            return value
        label = self.labels[place]
        return value, label.copy() if isinstance(label, np.ndarray) else label

    def describe(self, index: int) -> str:
        """The path of a sample; only its end, if it is very long. "" if there is no such sample.

        >>> FilesDataset(["a.txt"], root="/data").describe(0)
        '/data/a.txt'
        """
        if not -len(self.paths) <= index < len(self.paths):
            return ""
        path = file_name(self._path(self.paths[index]))
        return path if len(path) < LONGEST_DESCRIPTION else "…" + path[2 - LONGEST_DESCRIPTION :]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({counted(len(self.paths), 'file')})"


class FolderDataset(FilesDataset):
    """A folder with a folder for each class: `(value, label)`, where the label is the number of the class.

    `root` is a path or a URL (`s3://bucket/prefix`). `classes` are the folders' names in order, `class_to_idx` their
    numbers, `labels` the class of each file. The files are those with a picture's suffix or a suffix of `decoders`, or
    those with one of `suffixes` if they are given, at any depth below the folder of their class, sorted by name; hidden
    files are ignored. A class without files is an error that names it, unless `allow_empty=True`. The other options are
    those of FilesDataset.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name in ("cat/1.npy", "cat/2.npy", "dog/1.npy"):
    ...         pathlib.Path(root, name).parent.mkdir(exist_ok=True)
    ...         np.save(pathlib.Path(root, name), np.ones(2))
    ...     data = FolderDataset(root, suffixes=[".npy"])
    ...     print(data.classes, data.labels, data[2][0])
    ['cat', 'dog'] [0 0 1] [1. 1.]
    """

    classes: list[str]
    class_to_idx: dict[str, int]

    def __init__(
        self,
        root: PathLike | FilePlace,
        size: tuple[int, int] | None = None,
        transform: Callable[[Any], Any] | None = None,
        suffixes: Sequence[str] | None = None,
        *,
        allow_empty: bool = False,
        mode: str = "RGB",
        channels_first: bool = False,
        upright: bool = False,
        decoders: Mapping[str, Callable[[bytes], Any]] | None = None,
        allow_pickle: bool = False,
        max_pixels: int = MAX_PIXELS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        if not isinstance(root, str | os.PathLike) and not hasattr(root, "list"):
            raise OptionTypeError(f"root must be a folder with a folder for each class, or its URL; got {root!r}")
        wanted = wanted_suffixes(suffixes, decoders or ())
        found = FolderClasses(
            place_of(root), lambda name: name.lower().endswith(wanted), check_flag("allow_empty", allow_empty), wanted
        )
        super().__init__(
            found.names(),
            size=size,
            transform=transform,
            root=root,
            mode=mode,
            channels_first=channels_first,
            upright=upright,
            decoders=decoders,
            allow_pickle=allow_pickle,
            max_pixels=max_pixels,
            max_bytes=max_bytes,
        )
        self.classes = found.classes
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.labels = np.repeat(np.arange(len(found.sizes)), found.sizes)

    def __repr__(self) -> str:
        files, classes = counted(len(self), "file"), counted(len(self.classes), "class")
        return f"FolderDataset({file_name(self._before)!r}, {files}, {classes})"
