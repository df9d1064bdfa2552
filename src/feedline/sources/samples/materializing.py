"""All samples of a dataset, written ahead of training.

Takes: a map-style dataset, a folder and a format. Gives: `materialize`, and what it did.
Promises: what is there already is not made again, so it may be killed and called again; a shard appears whole or not at
all. A folder that has another dataset's samples, or the same dataset's by other code, is refused.
Not its job: reading them (sample_cache; TarDataset; ParquetDataset).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from feedline.datasets import read_samples
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_choice, check_flag, check_folder, check_whole
from feedline.sources.located import expand
from feedline.sources.parquet.parquet_dataset import ParquetDataset
from feedline.sources.samples.parquet_shards import ParquetShards
from feedline.sources.samples.records import pack
from feedline.sources.samples.sample_cache import UNBOUNDED, CachedDataset, cached
from feedline.sources.tar.index import SUFFIX, replace_with
from feedline.sources.tar.samples import OWN_FIELDS
from feedline.sources.tar.tar_dataset import TarDataset
from feedline.sources.tar.tar_values import is_read_as_value
from feedline.sources.tar.writer import TarWriter

CHUNK = 64
"""Samples that a thread reads at a time, and that are read back to say how long that takes."""
MANIFEST = "materialized.json"
_REMEDY = (
    "shards get numbers, texts, bytes and arrays of NumPy's own types: convert it with .map first, or use "
    "format='cache'"
)


@dataclass(frozen=True)
class Materialized:
    """What `materialize` has done. `print` it.

    >>> print(Materialized(100, 20, 1_000_000, 8.0, 0.1, 0.001))
    80 samples written, 20 were there; 1.0 MB; read in 0.1 s instead of 10 s each epoch (one thread)
    """

    samples: int
    found: int
    """How many of them were there before."""
    bytes: int
    """What the folder takes on disk."""
    seconds: float
    before: float
    """Seconds to make one sample, by one thread…"""
    after: float
    """…and to read it back, in order; 0 if that was not measured."""

    def __str__(self) -> str:
        said = f"{self.samples - self.found} samples written, {self.found} were there; {self.bytes / 1e6:.1f} MB"
        if not self.before or not self.after:
            return said
        then, now = self.before * self.samples, self.after * self.samples
        return f"{said}; read in {now:.3g} s instead of {then:.3g} s each epoch (one thread)"


def materialize(
    dataset: Any,
    out: str | os.PathLike[str],
    *,
    format: str = "cache",
    per_shard: int = 1_000,
    num_threads: int = 1,
    key: str | None = None,
    progress: bool = True,
) -> Materialized:
    """Write all samples of a dataset into the folder `out`, to be read from there in every epoch.

    `format="cache"` is read by `cached(dataset, out)`. "tar" and "parquet" are files of `per_shard` samples, for
    `TarDataset` and `ParquetDataset`, and need samples that are dicts (or tuples, whose fields are then named 0, 1, …)
    of arrays, numbers, texts and bytes. In Parquet each field has one type in all samples, that of the first sample;
    what does not fit is refused.

    It may be stopped at any moment and called again. `key` is that of `cached`.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     done = materialize([{"x": np.ones(4)}] * 10, folder, progress=False)
    ...     again = materialize([{"x": np.ones(4)}] * 10, folder, progress=False)
    >>> done.samples, done.found, again.found
    (10, 0, 10)
    """
    check_choice("format", format, ("cache", "tar", "parquet"))
    check_whole("per_shard", per_shard, least=1)
    check_whole("num_threads", num_threads, least=1)
    out = Path(check_folder("out", out)).absolute()
    data = cached(dataset, out, max_bytes=UNBOUNDED, key=key)
    bar = _Bar(len(data), check_flag("progress", progress))
    writing = _Writing(data, num_threads, bar)
    began = time.perf_counter()
    try:
        found = writing.into_cache() if format == "cache" else writing.into_shards(out, format, per_shard)
    finally:
        bar.close()
    seconds = time.perf_counter() - began
    return Materialized(len(data), found, _taken(out), seconds, writing.cost(), writing.cost_after(out, format))


class _Writing:
    def __init__(self, data: CachedDataset, threads: int, bar: _Bar) -> None:
        self._data = data
        self._threads = threads
        self._bar = bar
        self._read = 0
        self._spent = 0.0

    def into_cache(self) -> int:
        data, store = self._data, self._data._store
        missing = [index for index in range(len(data)) if not store.has(index)]
        found = len(data) - len(missing)
        self._bar.more(found)
        for samples in self._samples(missing):
            for index, sample in samples:
                store.write(index, pack(sample))
            if store.problem is not None:  # what is read from here on would be read for nothing
                raise store.problem
        return found

    def into_shards(self, out: Path, format: str, per_shard: int) -> int:
        _claim(out, {"identity": self._data._store.identity, "format": format, "per_shard": per_shard})
        write = _write_tar if format == "tar" else ParquetShards(out).write
        found = 0
        for number, first in enumerate(range(0, len(self._data), per_shard)):
            indices = range(first, min(first + per_shard, len(self._data)))
            path = out / f"{number:06}.{format}"
            if path.exists() and (format != "tar" or Path(f"{path}{SUFFIX}").exists()):
                found += len(indices)
                self._bar.more(len(indices))
            else:
                rows = (row for samples in self._samples(indices) for row in samples)
                write(path, ((index, _fields(index, sample)) for index, sample in rows))
        return found

    def _samples(self, indices: Sequence[int]) -> Iterator[list[tuple[int, Any]]]:
        """The samples in order, some at a time; not more are read ahead than threads have in hand."""
        chunks = (indices[at : at + CHUNK] for at in range(0, len(indices), CHUNK))
        if self._threads == 1:
            yield from map(self._chunk, chunks)
            return
        with ThreadPoolExecutor(self._threads) as pool:
            waiting = [pool.submit(self._chunk, chunk) for chunk in islice(chunks, 2 * self._threads)]
            while waiting:
                yield waiting.pop(0).result()
                waiting += [pool.submit(self._chunk, chunk) for chunk in islice(chunks, 1)]

    def _chunk(self, indices: Sequence[int]) -> list[tuple[int, Any]]:
        began = time.thread_time(), time.perf_counter()
        with self._data._watching(*indices):
            samples = read_samples(self._data.dataset, list(indices))
        spent = time.perf_counter() - began[1]
        self._spent += spent if self._threads == 1 else max(time.thread_time() - began[0], spent / self._threads)
        self._read += len(indices)
        self._bar.more(len(indices))
        return list(zip(indices, samples, strict=True))

    def cost(self) -> float:
        """Seconds for each sample that was read; 0 if none was."""
        return self._spent / self._read if self._read else 0.0

    def cost_after(self, out: Path, format: str) -> float:
        """Seconds to read one back; 0 if none was made now, so that there is nothing to compare it with."""
        if not self._read:
            return 0.0
        written: Any = self._data
        if format != "cache":
            shard = str(out / f"{0:06}.{format}")
            if expand(shard) != [shard]:  # to whom reads it, that name is a pattern, which means other files
                return 0.0
            written = TarDataset(shard) if format == "tar" else ParquetDataset(shard)
        # A shard of Parquet is decoded as a whole: a part of its samples would seem to take as long as all.
        count = len(written) if format == "parquet" else min(CHUNK, len(written))
        began = time.perf_counter()
        for first in range(0, count, CHUNK):
            written.__getitems__(list(range(first, min(first + CHUNK, count))))
        return (time.perf_counter() - began) / count


def _claim(out: Path, manifest: dict[str, Any]) -> None:
    path = out / MANIFEST
    if path.exists():
        then = json.loads(path.read_text(encoding="utf-8"))
        if then != manifest:
            names = [name for name in manifest if then.get(name) != manifest[name]]
            raise OptionError(
                f"{out} has samples of something else: {', '.join(names)} differ ({then}, and now {manifest}). Another "
                "identity is another dataset, or other code. Give another folder, or empty this one"
            )
        return
    others = [each.name for each in out.glob(f"*.{manifest['format']}")]
    if others:
        raise OptionError(f"{out} has files that materialize did not write ({others[0]}, …): give another folder")
    replace_with(path, json.dumps(manifest).encode())


def _fields(index: int, sample: Any) -> dict[str, Any]:
    if isinstance(sample, tuple | list):
        return {str(number): value for number, value in enumerate(sample)}
    if not isinstance(sample, dict):
        raise OptionTypeError(
            f"sample {index} is a {type(sample).__name__}; shards need dicts or tuples: use format='cache', or map it "
            "first"
        )
    for name in sample:
        if not isinstance(name, str):
            raise OptionTypeError(f"sample {index} has the field {name!r}; shards need fields with texts as names")
    return sample


def _write_tar(path: Path, rows: Iterator[tuple[int, dict[str, Any]]]) -> None:
    with TarWriter(path) as writer:
        for index, fields in rows:
            try:
                named = dict(_tar_field(name, value) for name, value in fields.items())
                writer.write({"__key__": f"{index:09}", **named})
            except (TypeError, ValueError) as error:  # OptionTypeError and OptionError are such, too
                raise OptionTypeError(f"sample {index} cannot be written: {error}") from error


def _tar_field(name: str, value: Any) -> tuple[str, Any]:
    if name in OWN_FIELDS:
        raise OptionError(f"{name!r} is a name of its own in tar files: rename the field")
    if isinstance(value, bytes):
        if is_read_as_value(name):
            raise OptionError(
                f"{name!r} has bytes, which would be read as something else, because of the name's end: rename it"
            )
        return name, value
    if isinstance(value, str):
        return f"{name}.txt", value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{name}.cls", value
    kind = type(value)
    if kind not in (bool, float, complex, np.ndarray, np.memmap) and not isinstance(value, np.generic):
        raise OptionTypeError(f"{name!r} is a {kind.__name__}; {_REMEDY}")
    array = np.asarray(value)
    if array.dtype.hasobject or (not array.dtype.names and np.dtype(array.dtype.str) != array.dtype):
        raise OptionTypeError(f"{name!r} is an array of {array.dtype}; {_REMEDY}")
    return f"{name}.npy", array


def _taken(folder: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


class _Bar:
    """A line on the terminal that says how far it is; nothing where standard error is no terminal."""

    def __init__(self, total: int, wanted: bool) -> None:
        self._total = total
        self._done = 0
        self._on = wanted and sys.stderr.isatty()
        self._began = self._shown = time.monotonic()

    def more(self, count: int) -> None:
        self._done += count
        now = time.monotonic()
        if self._on and now - self._shown > 0.2:
            self._shown = now
            filled = 40 * self._done // max(1, self._total)
            left = (now - self._began) / self._done * (self._total - self._done)
            bar = "█" * filled + "·" * (40 - filled)
            sys.stderr.write(f"\r{bar} {self._done:,} of {self._total:,} samples, {left:.0f} s left ")
            sys.stderr.flush()

    def close(self) -> None:
        if self._on:
            sys.stderr.write("\n")
