"""NumPy's own files: .npy, an array; .npz, several by name.

Takes: the bytes. Gives: arrays with their own memory (writable).
Promises: Python objects are refused unless `allow_pickle` is set, because unpickling runs any code in the file. What a
header says is compared with the data before memory is allocated for it.
Not its job: mapping large arrays (np.memmap in an ArrayDataset does that).
"""

from __future__ import annotations

import ast
import io
import math
import zipfile
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from feedline.datasets import Array
from feedline.errors import SourceError

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 65_536
_PICKLED = (
    "it holds Python objects, which only unpickling can read, and a pickle can run any code; "
    "if you trust these files, allow_pickle=True reads them"
)


@dataclass(frozen=True)
class OneArray:
    """Decodes .npy."""

    allow_pickle: bool

    def __call__(self, data: bytes) -> Array:
        dtype, shape, by_column, start = _header(data)
        if dtype.hasobject:
            return self._unpickled(data)
        needed, there = math.prod(shape) * dtype.itemsize, len(data) - start
        if needed > there:
            raise SourceError(
                f"is cut short: an array {shape} of {dtype} needs {needed:,} bytes, and there are only {there:,}"
            )
        try:
            if not needed:
                return np.empty(shape, dtype)
            flat = np.frombuffer(data, dtype, math.prod(shape), start)
            kept: Array = flat.reshape(shape, order="F" if by_column else "C").copy(order="K")
            return kept
        except ValueError as error:  # more axes, or longer ones, than NumPy allows
            raise SourceError(f"NumPy cannot make an array {shape} of {dtype}: {error}") from error

    def _unpickled(self, data: bytes) -> Array:
        if not self.allow_pickle:
            raise SourceError(_PICKLED)
        try:
            loaded: Array = np.load(io.BytesIO(data), allow_pickle=True)
            return loaded
        except Exception as error:
            raise SourceError(f"cannot be unpickled: {error}") from error


@dataclass(frozen=True)
class ManyArrays:
    """Decodes .npz: a dict of arrays."""

    one: OneArray
    max_bytes: int

    def __call__(self, data: bytes) -> dict[str, Array]:
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                self._check(archive)
                return {name.removesuffix(".npy"): self._member(archive, name) for name in archive.namelist()}
        except (SourceError, MemoryError):
            raise
        except Exception as error:  # zipfile, zlib and struct have errors of their own
            raise SourceError(f"is not an .npz file, or is damaged: {error}") from error

    def _check(self, archive: zipfile.ZipFile) -> None:
        whole = sum(member.file_size for member in archive.infolist())  # zipfile reads no more than that
        if whole > self.max_bytes:
            raise SourceError(
                f"unpacked it has {whole:,} bytes, more than max_bytes={self.max_bytes:,}; raise max_bytes= if you "
                "trust the file"
            )

    def _member(self, archive: zipfile.ZipFile, name: str) -> Array:
        try:
            return self.one(archive.read(name))
        except SourceError as error:
            raise SourceError(f"{name} in it: {error}") from error.__cause__


def _header(data: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """An array's dtype and shape, whether it is stored column by column, and where its data starts."""
    if data[:6] != _MAGIC or len(data) < 12:
        raise SourceError(f"is not a .npy file: it begins with {data[:12]!r}")
    wide = data[6] > 1  # version 2 has a header length of 4 bytes, version 3 a header in UTF-8
    start = 12 if wide else 10
    length = int.from_bytes(data[8:start], "little")
    if length > _LONGEST_HEADER or start + length > len(data):
        raise SourceError(f"is cut short, or is not a .npy file: its header should have {length:,} bytes")
    header, is_utf8 = bytes(data[start : start + length]), data[6] > 2
    dtype, shape, by_column = _kept(header, is_utf8)
    if dtype.names is not None:  # its fields can be renamed, in all arrays that have this very object
        dtype, shape, by_column = _understood(header, is_utf8)
    return dtype, shape, by_column, start + length


def _understood(header: bytes, is_utf8: bool) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """A header's dtype, shape and order."""
    try:
        told = ast.literal_eval(header.decode("utf-8" if is_utf8 else "latin-1"))
        dtype = np.lib.format.descr_to_dtype(told["descr"])
        shape = tuple(int(side) for side in told["shape"])
        by_column = bool(told["fortran_order"])
    except Exception as error:  # a damaged header may contain anything
        raise SourceError(f"its header cannot be understood: {error}") from error
    if any(side < 0 for side in shape):
        raise SourceError(f"its header has the impossible shape {shape}")
    if not dtype.itemsize and dtype.kind in "SU":  # NumPy makes each one character long, however many there are
        dtype = np.dtype(f"{dtype.kind}1")
    return dtype, shape, by_column


_kept = lru_cache(maxsize=64)(_understood)
"""Most members of a shard have the same header, and understanding it takes 20 µs: as long as reading a hundred KB
(benchmarks/tar_shards.py)."""
