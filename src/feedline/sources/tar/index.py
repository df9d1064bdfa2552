"""Where each sample is in a shard: found by reading its headers, stored in a file next to it.

Takes: a shard. Gives: an `Index`: keys, suffixes, offsets and sizes as arrays; `shard.tar.idx`, which holds them.
Promises: the file appears complete or not at all. It has the length of the shard and the position of its end mark: for
any other shard it is stale, and not used. Whenever a sample is read (dataset), the index is compared with the headers,
so that a changed shard of the same length is noticed, too.
Not its job: reading samples (dataset), headers (samples, members).
"""

from __future__ import annotations

import io
import json
import logging
import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from feedline.datasets import IntArray
from feedline.errors import OptionError, SourceError
from feedline.sources.located import Located, locate
from feedline.sources.places import Folder
from feedline.sources.tar.bytes_of import Plain, opened
from feedline.sources.tar.members import BLOCK, Members
from feedline.sources.tar.samples import TarParts, TarSamples, warn_of
from feedline.sources.tar.unfinished import unfinished

log = logging.getLogger("feedline")
SUFFIX = ".idx"
VERSION = 1
COLUMNS = ("ends", "first", "starts", "stops", "suffix")


class Index(NamedTuple):
    """One shard's index. Sample i has the key `keys[ends[i-1]:ends[i]]` and the members `first[i]` to `first[i+1]`."""

    size: int
    """The size of the shard in bytes."""
    end: int
    """The position of its end mark: there may be room after it for another member, at the same file size."""
    keys: bytes
    ends: IntArray
    first: IntArray
    starts: IntArray
    """For each member: where its first header is."""
    stops: IntArray
    """For each member: where its data ends."""
    suffixes: tuple[str, ...]
    suffix: IntArray
    """For each member: the number of its suffix."""

    def __len__(self) -> int:
        return len(self.ends)


class Building:
    """An index that grows sample by sample."""

    def __init__(self) -> None:
        self._keys: list[bytes] = []
        self._first = [0]
        self._starts: list[int] = []
        self._stops: list[int] = []
        self._suffixes: dict[str, int] = {}
        self._suffix: list[int] = []

    def add(self, parts: TarParts) -> None:
        """Add the next sample."""
        self._keys.append(parts.key.encode("utf-8", "surrogateescape"))
        for suffix, member, data in parts.members:
            self._starts.append(member.start)
            self._stops.append(data + member.size)
            self._suffix.append(self._suffixes.setdefault(suffix, len(self._suffixes)))
        self._first.append(len(self._starts))

    def finish(self, size: int, end: int) -> Index:
        """The index of a shard of that many bytes, with its end mark at `end`."""
        ends = np.cumsum([len(key) for key in self._keys], dtype=np.int64)
        first, starts, stops, suffix = (
            np.asarray(each, np.int64) for each in (self._first, self._starts, self._stops, self._suffix)
        )
        return Index(size, end, b"".join(self._keys), ends, first, starts, stops, tuple(self._suffixes), suffix)


def made(shard: Located) -> Index:
    """The index of a shard, by reading its headers."""
    stream = opened(shard)
    if not isinstance(stream, Plain):
        raise SourceError(
            f"{shard.url} is compressed with gzip, so no sample can be read without everything before it: unpack it "
            "(gunzip), or read it in order with TarStream"
        )
    samples, building = TarSamples(Members(stream, shard.url)), Building()
    while (parts := samples.next(lambda number: False)) is not None:
        if parts.problem:
            raise SourceError(f"{shard.url}: the sample {parts.key!r} at offset {parts.start}: {parts.problem}")
        building.add(parts)
    warn_of(samples.left_out, shard.url)
    return building.finish(stream.size, samples.at)


def write_index(urls: Any) -> list[Path]:
    """Write the index of each shard next to it, as `shard.tar.idx`; returns the paths.

    Only for shards in a folder: for object storage, write the index before you upload both.

    >>> import tempfile
    >>> from feedline.sources import TarWriter
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TarWriter(f"{folder}/a.tar", index=False) as writer:
    ...         writer.write({"__key__": "0", "txt": "hello"})
    ...     [path] = write_index(f"{folder}/a.tar")
    ...     print(path.name)
    a.tar.idx
    """
    paths = []
    for shard in locate(urls, "tar shards"):
        if not isinstance(shard.place, Folder):
            raise OptionError(
                f"{shard.url}: an index can only be written into a local folder; write it before you upload the shard"
            )
        path = shard.place.path / (shard.name + SUFFIX)
        save(made(shard), path)
        paths.append(path)
    return paths


def save(index: Index, path: Path) -> None:
    """Write an index; the file appears complete or not at all."""
    stream = io.BytesIO()
    np.savez(
        stream,
        about=np.array([VERSION, index.size, index.end], np.int64),
        keys=np.frombuffer(index.keys, np.uint8),
        suffixes=np.frombuffer(json.dumps(index.suffixes).encode(), np.uint8),
        **{name: getattr(index, name) for name in COLUMNS},
    )
    replace_with(path, stream.getvalue())


def replace_with(path: Path, data: bytes) -> None:
    """Write a file that appears complete or not at all."""
    file, where = unfinished(path)
    try:
        with file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(where, path)
    except BaseException:
        os.unlink(where)
        raise


def index_of(shard: Located) -> Index:
    """The index next to the shard if it exists and fits; else it is made, in memory."""
    found = _kept(shard)
    size = shard.size()
    if found is not None and found.size == size and _still_ends(shard, found.end):
        return found
    if found is not None:
        changed = (
            f"of {found.size:,} bytes, which has {size:,} now" if found.size != size else "to which members were added"
        )
        warnings.warn(
            f"{shard.url}{SUFFIX} is out of date: it is for a shard {changed}. The headers were read instead; "
            "feedline.sources.write_index(urls) writes a new index",
            stacklevel=3,
        )
    else:
        log.info(
            "%s has no index, so all its headers are read. feedline.sources.write_index(urls) writes an index",
            shard.url,
        )
    return made(shard)


def _still_ends(shard: Located, end: int) -> bool:
    """Is the end mark where it was? Checked on a disk only: elsewhere files do not grow, and reading takes long."""
    return not isinstance(shard.place, Folder) or not any(shard.read(end, end + BLOCK))


def _kept(shard: Located) -> Index | None:
    file = shard.beside(SUFFIX)
    try:
        data = file.place.read(file.name)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceError(f"{file.url}: cannot be read: {error}") from error
    try:
        return _loaded(data)
    except Exception as error:  # a damaged zip file or array makes NumPy raise anything
        raise SourceError(
            f"{file.url} is not an index of a tar shard, or is damaged ({type(error).__name__}: {error}): remove it, "
            "or write a new one with feedline.sources.write_index"
        ) from error


def _loaded(data: bytes) -> Index:
    with np.load(io.BytesIO(data), allow_pickle=False) as kept:
        version, size, end = kept["about"].tolist()
        if version != VERSION:
            raise ValueError(f"version {version}, not {VERSION}")
        names = json.loads(kept["suffixes"].tobytes())
        keys = kept["keys"].tobytes()
        ends, first, starts, stops, suffix = (kept[name].astype(np.int64, copy=False) for name in COLUMNS)
        index = Index(size, end, keys, ends, first, starts, stops, tuple(names), suffix)
    members = len(index.starts)
    if not (len(index.stops) == len(index.suffix) == members == index.first[-1]) or len(index.first) != len(index) + 1:
        raise ValueError("its columns do not fit together")
    return index
