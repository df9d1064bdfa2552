"""Tar shards from front to back, without an index.

Takes: shards, plain or gzipped. Gives: a stream of dicts, shared out over ranks and workers.
Promises: what `sharing` promises; a sample that cannot be read or decoded is an error that names shard, key and offset,
and the next sample follows, or the next shard if nothing more of this one can be read. A place is a shard's number and
an offset in it, so nothing before it is read again; a gzipped shard is decompressed again up to there.
Not its job: shuffling (reading/shuffle_buffer; `shuffle` here is about the order of shards), what members mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from feedline.errors import SourceError, StateError
from feedline.errors.checks import check_function, check_whole
from feedline.sources.located import Located, locate, names_apart
from feedline.sources.sharing import State, Unit, UnitStream
from feedline.sources.tar.bytes_of import opened
from feedline.sources.tar.members import Members
from feedline.sources.tar.samples import MAX_BYTES, TarParts, TarSamples, TarTerms, warn_of
from feedline.sources.tar.tar_dataset import checked_suffixes, undecoded
from feedline.sources.tar.tar_values import Decode, decode_plain


class TarStream(UnitStream):
    """The samples of tar shards in WebDataset's layout, in the order they are stored.

    Samples, `suffixes`, `decode` and `max_bytes` are those of `TarDataset`. `shuffle=True` reads the shards in another
    order in each epoch; the loader's `shuffle_buffer` mixes their samples. Over ranks (environment variables of
    torchrun and others, torch.distributed, or `num_replicas` and `rank`) and workers each sample comes once: as many
    shards as possible are given out whole, in equal numbers; the rest is shared by samples. `num_replicas=1, rank=0`
    reads everything on every rank.

    >>> import tempfile
    >>> from feedline import DataLoader
    >>> from feedline.sources import TarStream, TarWriter
    >>> folder = tempfile.TemporaryDirectory()
    >>> with TarWriter(f"{folder.name}/train-%04d.tar", max_count=2) as writer:
    ...     for number in range(3):
    ...         writer.write({"__key__": f"{number:03}", "cls": number})
    >>> stream = TarStream(f"{folder.name}/train-{{0000..0001}}.tar")
    >>> for batch in DataLoader(stream, batch_size=2):
    ...     print(batch["__key__"], batch["cls"])
    ['000', '001'] [0 1]
    ['002'] [2]
    >>> folder.cleanup()
    """

    def __init__(
        self,
        urls: Any,
        suffixes: Iterable[str] | None = None,
        decode: Decode | None = decode_plain,
        *,
        max_bytes: int = MAX_BYTES,
        shuffle: bool = False,
        num_replicas: int | None = None,
        rank: int | None = None,
    ) -> None:
        super().__init__(shuffle, num_replicas, rank)
        self._shards = locate(urls, "tar shards")
        self._decode = check_function("decode", decode)
        self._terms = TarTerms(checked_suffixes(suffixes), check_whole("max_bytes", max_bytes, least=1))

    def _count(self) -> int:
        return len(self._shards)

    def _names(self) -> Iterator[str]:
        return iter(names_apart(self._shards))

    def _open(self, unit: Unit, place: State | None) -> ShardReader:
        return ShardReader(self._shards[unit.number], unit, place, self._terms, self._decode)


class ShardReader:
    """One shard, or the part of its samples that belongs to a unit."""

    def __init__(self, shard: Located, unit: Unit, place: State | None, terms: TarTerms, decode: Decode | None) -> None:
        place = place or {"offset": 0, "sample": 0, "size": None}
        self._url = shard.url
        self._size = shard.size()
        if place["size"] not in (None, self._size):
            raise StateError(
                f"{shard.url} has {self._size:,} bytes, but had {place['size']:,} when the state was saved"
            )
        self._samples = TarSamples(Members(opened(shard, place["offset"]), shard.url), place["sample"], terms)
        self._unit = unit
        self._wanted = terms.suffixes
        self._decode = decode

    def __iter__(self) -> ShardReader:
        return self

    def __next__(self) -> dict[str, Any]:
        samples, unit = self._samples, self._unit
        while True:
            number = samples.number
            parts = samples.next(unit.has)
            if parts is None:
                warn_of(samples.left_out, self._url)
                raise StopIteration
            if unit.has(number):
                return self._sample(parts)

    @property
    def ended(self) -> bool:
        """Has it ended because of an error?"""
        return self._samples.broken

    def place(self) -> State:
        """Where the next sample begins."""
        return {"offset": self._samples.at, "sample": self._samples.number, "size": self._size}

    def _sample(self, parts: TarParts) -> dict[str, Any]:
        if parts.problem:
            raise SourceError(f"{self._where(parts)}: {parts.problem}")
        sample: dict[str, Any] = {"__key__": parts.key, "__url__": self._url}
        found = {suffix: data for (suffix, _, _), data in zip(parts.members, parts.data, strict=True)}
        for suffix in found if self._wanted is None else self._wanted:
            if suffix not in found:
                raise SourceError(f"{self._where(parts)} has no {suffix}; it has {', '.join(found)}")
            try:
                sample[suffix] = found[suffix] if self._decode is None else self._decode(found[suffix], suffix)
            except Exception as error:
                raise undecoded(self._where(parts), suffix, error) from error
        return sample

    def _where(self, parts: TarParts) -> str:
        return f"{self._url}: the sample {parts.key!r} at offset {parts.start}"
