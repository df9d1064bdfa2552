"""Streams made of units (shards, row groups): shared out over ranks and workers, and continued from a saved position.

Takes: the number of units, ranks, workers; from a subclass of `UnitStream`, a reader of one unit. Gives: a stream's
iterator, whose state is plain data.
Promises: over all ranks and workers each sample comes once, whatever their number. As many units as possible are given
out whole, in equal numbers; each unit left over is read by several workers, who take its samples in turn. So all parts
have the same number of units, including fractions. A unit that fails raises once, and the next one follows.
Not its job: what a unit is, and reading it (tar, parquet); the shuffle buffer and batches (reading).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from math import gcd
from typing import Any, NamedTuple, Protocol

from feedline.datasets import IterableDataset
from feedline.errors import SourceError, StateError
from feedline.errors.checks import check_flag
from feedline.machine.rank_questions import note_sharing
from feedline.machine.this_rank import ranks
from feedline.randomness.rng import mix, rng

ORDER = 0x0DE4_0F_5A4D5
"""The number of the generator that draws an epoch's order: no sample's, and the same in all workers of a loader."""
State = dict[str, Any]


class Unit(NamedTuple):
    """A unit, or a part of one: every `every`-th sample from `first` on."""

    number: int
    every: int = 1
    first: int = 0

    def has(self, sample: int) -> bool:
        """Is the sample with that number (in the whole unit) in this part?"""
        return sample % self.every == self.first

    def part(self, index: int, count: int) -> Unit:
        """One of `count` parts of it."""
        return Unit(self.number, self.every * count, self.first + self.every * index)


def deal(units: Sequence[Unit], index: int, count: int) -> list[Unit]:
    """The units of one of `count` readers.

    Each unit left over is shared by a group of readers, by samples. There are as many groups as possible: the smaller a
    group, the fewer readers read the same bytes.

    >>> [deal([Unit(0), Unit(1), Unit(2)], index, 2) for index in range(2)]
    [[Unit(number=0, every=1, first=0), Unit(number=2, every=2, first=0)], \
[Unit(number=1, every=1, first=0), Unit(number=2, every=2, first=1)]]
    """
    round_ = len(units) // count * count
    left = units[round_:]
    groups = gcd(len(left), count)
    shared = [unit.part(index // groups, count // groups) for unit in left[index % groups :: groups]]
    return [*units[index:round_:count], *shared]


class UnitReader(Protocol):
    """Reads one unit: an iterator that may raise for one sample and continue with the next."""

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...

    @property
    def ended(self) -> bool:
        """After an error: is it impossible to read any more of it?"""

    def place(self) -> State:
        """Where the next sample is: opened with this place, reading continues there."""


class UnitStream(IterableDataset[Any]):
    """A stream of units. A subclass defines `_count`, `_names` and `_open`."""

    def __init__(self, shuffle: bool, num_replicas: int | None, rank: int | None) -> None:
        self.shuffle = check_flag("shuffle", shuffle)
        self._given = (num_replicas, rank)
        ranks(*self._given, alone=True)
        self._part = (0, 1)

    def _count(self) -> int:
        """How many units there are."""
        raise NotImplementedError

    def _names(self) -> Iterator[str]:
        """Texts that a state must agree with."""
        raise NotImplementedError

    def _open(self, unit: Unit, place: State | None) -> UnitReader:
        """Read a unit, from its beginning or from a place."""
        raise NotImplementedError

    @property
    def ranks(self) -> tuple[int, int]:
        """The number of ranks, and this rank."""
        return ranks(*self._given, alone=True)

    def shard(self, index: int, count: int) -> UnitStream:
        """One of `count` parts of this rank's share; works for parts of parts, too."""
        part = copy.copy(self)
        own, of = self._part
        part._part = (own + of * index, of * count)
        return part

    def __iter__(self) -> UnitReading:
        # A generator by number, so that all workers of a loader draw the same.
        return UnitReading(self, int(rng(ORDER).integers(1 << 62)) if self.shuffle else 0)

    def __getstate__(self) -> State:
        # A worker process cannot ask torch.distributed, so it gets the ranks; a pickle sent to a rank asks there.
        return {**self.__dict__, "_given": self._given if self.ranks == (1, 0) else self.ranks}

    def units(self, key: int) -> list[Unit]:
        """The units of this part, in the order in which they come.

        Units are shared out over ranks before they are shuffled: so ranks whose loaders have different seeds still read
        no sample twice.
        """
        count, rank = self.ranks
        note_sharing(count)
        units = deal([Unit(number) for number in range(self._count())], rank, count)
        if self.shuffle:
            units.sort(key=lambda unit: mix(key, unit.number))
        return deal(units, *self._part)

    def fingerprint(self) -> str:
        """A fingerprint of the names that it reads; their common folder does not matter."""
        return blake2b("\n".join(self._names()).encode(errors="surrogateescape"), digest_size=8).hexdigest()


class UnitReading:
    """One pass over a part of a stream."""

    def __init__(self, stream: UnitStream, key: int) -> None:
        self._stream = stream
        self._fingerprint = stream.fingerprint()
        self._begin(key)

    def _begin(self, key: int, at: int = 0, place: State | None = None) -> None:
        self._key = key
        self._units = self._stream.units(key)
        self._at = at
        self._place = place
        self._reader: UnitReader | None = None

    def __iter__(self) -> UnitReading:
        return self

    def __next__(self) -> Any:
        while self._at < len(self._units):
            reader = self._reader or self._opened()
            try:
                return next(reader)
            except StopIteration:
                self._to_next()
            except Exception:
                if reader.ended:
                    self._to_next()
                raise
        raise StopIteration

    def _opened(self) -> UnitReader:
        try:
            self._reader = self._stream._open(self._units[self._at], self._place)
        except Exception:
            self._to_next()  # it raises only once
            raise
        return self._reader

    def _to_next(self) -> None:
        self._at += 1
        self._place = self._reader = None

    def state_dict(self) -> State:
        """The position of the next sample."""
        place = self._place if self._reader is None else self._reader.place()
        return {
            "files": self._fingerprint,
            "ranks": self._stream.ranks,
            "part": self._stream._part,
            "key": self._key,
            "unit": self._at,
            "place": place,
        }

    def load_state_dict(self, state: State) -> None:
        """Continue at that position."""
        self._check("files", state["files"], self._fingerprint, "with other files")
        count, rank = self._stream.ranks
        self._check("ranks", list(state["ranks"]), [count, rank], "by another rank, or with another number of ranks")
        self._check("part", list(state["part"]), list(self._stream._part), "for another part of the stream")
        self._begin(state["key"], state["unit"], state["place"])
        if self._place is not None:
            # Opened while the state is loaded: a unit that has changed is no bad sample that could be left out.
            with suppress(SourceError):  # a unit that cannot be read is reported when it is read
                self._reader = self._stream._open(self._units[self._at], self._place)

    def _check(self, name: str, then: Any, now: Any, how: str) -> None:
        if then != now:
            kind = type(self._stream).__name__
            raise StateError(f"the {kind}'s state was saved {how}: its {name!r} is {then!r}, and here it is {now!r}")
