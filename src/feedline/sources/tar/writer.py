"""Writes tar shards in WebDataset's layout.

Takes: samples as dicts. Gives: shards, and an index next to each.
Promises: a shard appears complete or not at all, with the permissions that the umask gives; the same samples always
give the same bytes.
A sample that could not be read back unchanged (a dot in a key, a key twice in a shard) is refused.
Not its job: object storage: write into a folder and upload it.
"""

from __future__ import annotations

import os
import re
import tarfile
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_flag, check_whole
from feedline.sources.tar.index import SUFFIX, Building, save
from feedline.sources.tar.members import BLOCK, FILE, TarMember
from feedline.sources.tar.samples import OWN_FIELDS, TarParts, key_and_suffix
from feedline.sources.tar.tar_values import encode_plain
from feedline.sources.tar.unfinished import unfinished

END = bytes(2 * BLOCK)
_NUMBER = re.compile(r"%0?\d*d")


class TarWriter:
    """Writes samples into one tar shard, or into as many as are needed.

    `path` is a file, or a pattern with a number in it (`train-%06d.tar`) if there may be several: a new shard begins
    before one would have more than `max_count` samples or `max_size` bytes. A sample is a dict: `__key__`, and a field
    for each suffix: bytes, or the value for txt (text), json, cls (an integer) and npy (an array). Use it in `with`: if
    an error leaves the block, the unfinished shard is removed. `shards` lists the finished ones.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with TarWriter(f"{folder}/train-%03d.tar", max_count=2) as writer:
    ...         for number in range(5):
    ...             writer.write({"__key__": f"{number:04}", "txt": "a text", "cls": number})
    ...     print([path.name for path in writer.shards])
    ['train-000.tar', 'train-001.tar', 'train-002.tar']
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        max_size: int | None = None,
        max_count: int | None = None,
        *,
        index: bool = True,
    ) -> None:
        self._pattern = os.fspath(path)
        self._max_size = None if max_size is None else check_whole("max_size", max_size, least=1)
        self._max_count = None if max_count is None else check_whole("max_count", max_count, least=1)
        self._index = check_flag("index", index)
        if (max_size or max_count) and len(_NUMBER.findall(self._pattern)) != 1:
            raise OptionError(
                f"with max_size or max_count, path must have one number to count shards by, as in train-%06d.tar; got "
                f"{self._pattern!r}"
            )
        self.shards: list[Path] = []
        self._shard: _Shard | None = None
        self._closed = False

    def write(self, sample: dict[str, Any]) -> None:
        """Add a sample."""
        if self._closed:
            raise OptionError("the TarWriter is closed: its shards are finished")
        key, fields = _checked(sample)
        members = [(f"{key}.{suffix}", encode_plain(fields[suffix], suffix)) for suffix in sorted(fields)]
        blocks = [(name, _header(name, len(data)), data) for name, data in members]
        size = sum(len(header) + -(-len(data) // BLOCK) * BLOCK for _, header, data in blocks)
        if self._shard is not None and self._is_full(self._shard, size):
            self._finish()
        if self._shard is None:
            self._shard = _Shard(self._next_path())
        self._shard.add(key, blocks)

    def close(self) -> None:
        """Finish the last shard. If no sample was written, there is one empty shard."""
        if self._closed:
            return
        if self._shard is None and not self.shards:
            self._shard = _Shard(self._next_path())
        self._finish()
        self._closed = True

    def __enter__(self) -> TarWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
        elif self._shard is not None:
            self._closed = True
            self._shard.discard()

    def _is_full(self, shard: _Shard, more: int) -> bool:
        too_many = self._max_count is not None and shard.count + 1 > self._max_count
        return too_many or (self._max_size is not None and shard.size + more + len(END) > self._max_size)

    def _next_path(self) -> Path:
        # Only the number is replaced: a path may have other percent signs.
        return Path(_NUMBER.sub(lambda found: found[0] % len(self.shards), self._pattern))

    def _finish(self) -> None:
        if self._shard is not None:
            shard, self._shard = self._shard, None
            self._closed, before = True, self._closed  # if it fails, it is gone: no other shard may take its number
            shard.finish(self._index)
            self._closed = before
            self.shards.append(shard.path)


class _Shard:
    """One shard being written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = self.count = 0
        self._building = Building()
        self._keys: set[str] = set()
        if not path.parent.is_dir():
            raise OptionError(f"path: there is no folder {path.parent} to write {path.name} into")
        self._file, self._unfinished = unfinished(path)  # closed in finish or discard

    def add(self, key: str, blocks: list[tuple[str, bytes, bytes]]) -> None:
        if key in self._keys:
            raise OptionError(f"the key {key!r} is already in {self.path}: the keys of a shard must differ")
        self._keys.add(key)
        parts = TarParts(key, self.size)
        for name, header, data in blocks:
            member = TarMember(name, FILE, self.size, len(data))
            parts.members.append((name[len(key) + 1 :], member, self.size + len(header)))
            for piece in (header, data, bytes(-len(data) % BLOCK)):
                self._file.write(piece)
                self.size += len(piece)
        self._building.add(parts)
        self.count += 1

    def finish(self, index: bool) -> None:
        try:
            self._file.write(END)
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._unfinished, self.path)
        except BaseException:
            self.discard()
            raise
        beside = Path(f"{self.path}{SUFFIX}")
        if index:
            save(self._building.finish(self.size + len(END), self.size), beside)
        else:
            beside.unlink(missing_ok=True)  # the index of an earlier shard of that name

    def discard(self) -> None:
        self._unfinished.unlink(missing_ok=True)
        with suppress(OSError):  # what it has not written yet does not fit on a full disk, either
            self._file.close()


def _header(name: str, size: int) -> bytes:
    """A member's header; nothing in it depends on who writes it and when."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o444
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _checked(sample: Any) -> tuple[str, dict[str, Any]]:
    if not isinstance(sample, dict):
        raise OptionTypeError(
            f"a sample must be a dict with '__key__' and a field for each suffix; got {sample!r:.100}"
        )
    key = sample.get("__key__")
    if not isinstance(key, str):
        raise OptionTypeError(f"a sample must have a text as its '__key__'; got {key!r:.100} in {list(sample)}")
    fields = {suffix: value for suffix, value in sample.items() if suffix not in OWN_FIELDS}
    if not fields:
        raise OptionError(f"the sample {key!r} has no field besides its key: nothing of it would be written")
    if "\0" in key or key.startswith("/") or ".." in key.split("/"):
        raise OptionError(f"the key {key!r} must be a plain relative path: not begin with / and have no ..")
    for suffix in fields:
        if not isinstance(suffix, str) or "\0" in suffix or key_and_suffix(f"{key}.{suffix}") != (key, suffix):
            raise OptionError(
                f"the sample {key!r} with the field {suffix!r} would not be read back under these names: the last part "
                "of a key must not be empty and must have no dot, and a suffix must have no slash and no upper case. "
                "Rename the key or the field"
            )
    return key, fields
