"""Tar shards by index: any sample of any shard, so a shuffle covers all of them.

Takes: shards, whose indices are next to them or are made by reading headers. Gives: a map-style dataset of dicts.
Promises: a sample is one range read; name and size are compared with the index, so a changed shard is an error and
never gives another sample's data.
Not its job: the index itself (index), what members mean (tar_values), order (order).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from feedline.datasets import Dataset, IntArray
from feedline.datasets.reading import position
from feedline.errors import OptionTypeError, SourceError
from feedline.errors.checks import check_function, check_whole
from feedline.randomness.rng import enter_one_of
from feedline.sources.located import Located, locate
from feedline.sources.places import Folder
from feedline.sources.tar.bytes_of import Held
from feedline.sources.tar.index import Index, index_of
from feedline.sources.tar.members import BLOCK, Damage, Members
from feedline.sources.tar.samples import MAX_BYTES, TarTerms, key_and_suffix
from feedline.sources.tar.tar_values import Decode, decode_plain

NEAR = 64 << 10
"""Two samples with at most this many bytes between them are read in one request: at 20 ms a request and 100 MB/s that
is faster for up to 2 MB, but never from a fast disk."""
BETWEEN = 2 << 20
"""The same for two members of one sample: a film between a wanted picture and its label should not be read."""
Range = tuple[int, int, int]
"""A shard's number, and where in it to start and stop."""
Stretch = tuple[Range, list[int]]
"""…and the numbers of the members in it."""


class TarDataset(Dataset[dict[str, Any]]):
    """The samples of tar shards in WebDataset's layout, by number.

    Each is a dict: `__key__`, `__url__` (its shard), and a value for each suffix. `suffixes` chooses some of them; a
    sample that lacks one is an error. `decode(data, suffix)` makes values from bytes; by default txt, json, cls and npy
    are decoded and everything else stays bytes; with None everything stays bytes. A sample whose members together have
    more than `max_bytes` is an error: a few compressed bytes, or a damaged header, may mean any number.

    `block_sizes` has the number of samples in each shard, for `feedline.BlockSampler`.

    >>> import tempfile
    >>> from feedline.sources import TarDataset, TarWriter
    >>> folder = tempfile.TemporaryDirectory()
    >>> with TarWriter(f"{folder.name}/train-%04d.tar", max_count=2) as writer:
    ...     for number in range(3):
    ...         writer.write({"__key__": f"{number:03}", "cls": number, "txt": "abc"[number]})
    >>> data = TarDataset(f"{folder.name}/train-{{0000..0001}}.tar", suffixes=["txt", "cls"])
    >>> len(data), data.block_sizes, data[2]["txt"], data[2]["__key__"]
    (3, [2, 1], 'c', '002')
    >>> folder.cleanup()
    """

    def __init__(
        self,
        urls: Any,
        suffixes: Iterable[str] | None = None,
        decode: Decode | None = decode_plain,
        *,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._shards = locate(urls, "tar shards")
        self._decode = check_function("decode", decode)
        self._terms = TarTerms(checked_suffixes(suffixes), check_whole("max_bytes", max_bytes, least=1))
        indices = [index_of(shard) for shard in self._shards]
        self.block_sizes = [len(index) for index in indices]
        self._ends: list[int] = np.cumsum(self.block_sizes).tolist()
        if not self._ends[-1]:
            raise SourceError(f"there is no sample in {_several([shard.url for shard in self._shards])}")
        self._join(indices)

    def _join(self, indices: list[Index]) -> None:
        """One set of columns for all shards: a few large arrays, which workers share without copies."""
        names = {
            name: number for number, name in enumerate(sorted({name for each in indices for name in each.suffixes}))
        }
        numbers = [np.array([names[name] for name in each.suffixes] or [0], np.int64)[each.suffix] for each in indices]
        self._names = tuple(names)
        self._suffix = np.concatenate(numbers).astype(np.int16 if len(names) < 1 << 15 else np.int64)
        self._starts = np.concatenate([each.starts for each in indices])
        self._stops = np.concatenate([each.stops for each in indices])
        self._keys = np.frombuffer(b"".join(each.keys for each in indices), np.uint8)
        self._key_ends = _behind([each.ends for each in indices], [len(each.keys) for each in indices])
        self._first = _behind([each.first[1:] for each in indices], [len(each.starts) for each in indices])

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> dict[str, Any]:
        place = position(index, len(self), "TarDataset")
        stretches = self._stretches(place)
        held = {each: self._shards[each[0]].read(each[1], each[2]) for each, _ in stretches}
        return self._sample(place, stretches, held)

    def __getitems__(self, indices: list[int]) -> list[dict[str, Any]]:
        places = [position(index, len(self), "TarDataset") for index in indices]
        stretches = [self._stretches(place) for place in places]
        held = self._read([each for of in stretches for each, _ in of])
        found = []
        for number, (place, of) in enumerate(zip(places, stretches, strict=True)):
            enter_one_of(number, indices)  # `feedline.rng()` in decode belongs to the sample
            found.append(self._sample(place, of, held))
        return found

    def _reads_many(self) -> bool:
        """Is reading many at once faster? Not from a disk, which answers at once."""
        return not all(isinstance(shard.place, Folder) for shard in self._shards)

    def describe(self, index: int) -> str:
        """The sample's shard and key."""
        if not -len(self) <= index < len(self):
            return f"no such sample: there are {len(self)}"
        place = position(index, len(self), "TarDataset")
        return f"{self._shards[self._shard(place)].url[-150:]}: {self._key(place)[:140]}"

    def _shard(self, place: int) -> int:
        return bisect_right(self._ends, place)

    def _key(self, place: int) -> str:
        start = int(self._key_ends[place - 1]) if place else 0
        return self._keys[start : int(self._key_ends[place])].tobytes().decode("utf-8", "surrogateescape")

    def _members(self, place: int) -> list[int]:
        """The numbers of the wanted members, in the order they are stored."""
        members = list(range(int(self._first[place - 1]) if place else 0, int(self._first[place])))
        wanted = self._terms.suffixes
        if wanted is None:
            return members
        has = {self._names[self._suffix[member]]: member for member in members}
        missing = [name for name in wanted if name not in has]
        if missing:
            raise SourceError(
                f"{self.describe(place)}: the sample has no {', '.join(missing)}; it has {', '.join(has)}"
            )
        return sorted(has[name] for name in wanted)

    def _stretches(self, place: int) -> list[Stretch]:
        """Where the wanted members are: in one range, except for those with many bytes between them."""
        members, shard = self._members(place), self._shard(place)
        self._check_sizes(place, members)
        found: list[tuple[list[int], list[int]]] = []
        for member in members:
            start, stop = int(self._starts[member]), int(self._stops[member])
            if found and start - found[-1][0][1] <= BETWEEN:
                found[-1][0][1] = stop
                found[-1][1].append(member)
            else:
                found.append(([start, stop], [member]))
        return [((shard, start, stop), of) for (start, stop), of in found]

    def _check_sizes(self, place: int, members: list[int]) -> None:
        sizes = [int(self._stops[member] - self._starts[member]) - BLOCK for member in members]
        if sum(sizes) <= self._terms.max_bytes:
            return
        before = 0
        for member, size in zip(members, sizes, strict=True):
            name = f"{self._key(place)}.{self._names[self._suffix[member]]}"
            if excess := self._terms.excess(name, size, before):
                raise SourceError(f"{self.describe(place)}: {excess}")
            before += size

    def _sample(self, place: int, stretches: list[Stretch], read: dict[Range, bytes]) -> dict[str, Any]:
        shard, key = self._shards[self._shard(place)], self._key(place)
        sample: dict[str, Any] = {"__key__": key, "__url__": shard.url}
        for stretch, members in stretches:
            held = Held(read[stretch], stretch[1])
            reader = Members(held, shard.url)
            for member in members:
                suffix = self._names[self._suffix[member]]
                data = self._data(reader, held, member, key, suffix, shard)
                sample[suffix] = self._value(data, suffix, place)
        return sample

    def _value(self, data: bytes, suffix: str, place: int) -> Any:
        if self._decode is None:
            return data
        try:
            return self._decode(data, suffix)
        except Exception as error:
            raise undecoded(self.describe(place), suffix, error) from error

    def _data(self, reader: Members, held: Held, member: int, key: str, suffix: str, shard: Located) -> bytes:
        held.at = start = int(self._starts[member])
        try:
            found = reader.next()
            fits = found is not None and key_and_suffix(found.name) == (key, suffix)
            if found is not None and fits and held.at + found.size == int(self._stops[member]):
                return reader.data(found)
        except Damage:
            found = None
        there = "no header of a member" if found is None else f"{found.name!r} of {found.size:,} bytes"
        raise SourceError(
            f"{shard.url} has changed since its index was made: at offset {start} there is {there}, where "
            f"{key}.{suffix} was. Write a new index (feedline.sources.write_index), or make the TarDataset again"
        )

    def _read(self, ranges: Sequence[Range]) -> dict[Range, bytes]:
        """The bytes of each range; ranges close together are read at once."""
        found: dict[Range, bytes] = {}
        together: list[Range] = []
        for each in [*sorted(set(ranges)), (-1, 0, 0)]:
            if together and (each[0] != together[-1][0] or each[1] - together[-1][2] > NEAR):
                shard, start, _ = together[0]
                data = memoryview(self._shards[shard].read(start, together[-1][2]))
                found |= {one: bytes(data[one[1] - start : one[2] - start]) for one in together}
                together = []
            together.append(each)
        return found


def undecoded(where: str, suffix: str, error: Exception) -> SourceError:
    """The error for a member that `decode` could not decode."""
    # Our decoders say what it is not ("is not JSON: …"); any other exception needs its class name.
    what = f"cannot be decoded: {type(error).__name__}: {error}"
    if isinstance(error, SourceError):
        what = str(error).removeprefix("*.").removeprefix(f"{suffix}: ")  # `Decoders` takes the suffix for the name
    return SourceError(f"{where}: its {suffix!r}: {what}")


def checked_suffixes(suffixes: Iterable[str] | None) -> tuple[str, ...] | None:
    """The wanted suffixes; None if all are."""
    if suffixes is None:
        return None
    if isinstance(suffixes, str):
        raise OptionTypeError(f"suffixes must be a list of suffixes; got the text {suffixes!r}: pass [{suffixes!r}]")
    wanted = tuple(dict.fromkeys(suffixes))
    if not wanted or not all(isinstance(each, str) for each in wanted):
        raise OptionTypeError(f"suffixes must be texts such as 'jpg', at least one; got {suffixes!r}")
    return tuple(each.lower().lstrip(".") for each in wanted)


def _behind(columns: list[IntArray], lengths: list[int]) -> IntArray:
    """The numbers of all shards in one array; those of each shard continue after the one before."""
    before = np.cumsum([0, *lengths[:-1]])
    return np.concatenate([column + begin for column, begin in zip(columns, before, strict=True)]).astype(np.int64)


def _several(urls: list[str]) -> str:
    return urls[0] if len(urls) == 1 else f"any of {len(urls)} shards ({urls[0]}, …)"
