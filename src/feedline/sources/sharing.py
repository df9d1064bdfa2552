"""Streams made of units (shards, row groups): shared out over ranks and workers, and continued where they stood.

Takes: how many units there are, ranks, workers; from a subclass of `UnitStream`, what reads one unit. Gives: a stream's
iterator, whose state is plain data.
Promises: over all ranks and workers each sample comes once, whatever their number. Units are dealt out whole as far
as they go round; those that are left over are read by several, who take turns with their samples. So all parts have
the same number of units, up to fractions. A unit that fails raises once and the next one follows.
Not its job: what a unit is, and reading it (tar, parquet); the shuffle buffer and batches (line).
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
"""Whose generator an epoch's order is drawn from: no sample's, and the same in each of a loader's workers."""
State = dict[str, Any]


class Unit(NamedTuple):
    """A unit, or the part of one that has every `every`-th sample from `first` on."""

    number: int
    every: int = 1
    first: int = 0

    def has(self, sample: int) -> bool:
        """Is the sample of that number (in the whole unit) in this part?"""
        return sample % self.every == self.first

    def part(self, index: int, count: int) -> Unit:
        """One of so many parts of it."""
        return Unit(self.number, self.every * count, self.first + self.every * index)


def deal(units: Sequence[Unit], index: int, count: int) -> list[Unit]:
    """What one of `count` gets.

    Of what does not go round, groups of as many as possible get whole units, which they share by samples: the smaller
    a group, the fewer read the same bytes.

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
    """Reads one unit: an iterator that may raise for one sample and go on with the next."""

    def __iter__(self) -> Iterator[Any]: ...
    def __next__(self) -> Any: ...

    @property
    def ended(self) -> bool:
        """After an error: can nothing more be read of it?"""

    def place(self) -> State:
        """Where the next sample is: what to open it with to go on there."""


class UnitStream(IterableDataset[Any]):
    """A stream of units. A subclass gives `_count`, `_names` and `_open`."""

    def __init__(self, shuffle: bool, num_replicas: int | None, rank: int | None) -> None:
        self.shuffle = check_flag("shuffle", shuffle)
        self._given = (num_replicas, rank)
        ranks(*self._given, alone=True)
        self._part = (0, 1)

    def _count(self) -> int:
        """How many units there are."""
        raise NotImplementedError

    def _names(self) -> Iterator[str]:
        """What a state must agree with, as texts."""
        raise NotImplementedError

    def _open(self, unit: Unit, place: State | None) -> UnitReader:
        """Read a unit, from its beginning or from a place."""
        raise NotImplementedError

    @property
    def ranks(self) -> tuple[int, int]:
        """The number of ranks, and this one."""
        return ranks(*self._given, alone=True)

    def shard(self, index: int, count: int) -> UnitStream:
        """One of `count` parts of this rank's share; parts of parts, too."""
        part = copy.copy(self)
        own, of = self._part
        part._part = (own + of * index, of * count)
        return part

    def __iter__(self) -> UnitReading:
        # Asked for by number, so that all workers of a loader draw the same.
        return UnitReading(self, int(rng(ORDER).integers(1 << 62)) if self.shuffle else 0)

    def __getstate__(self) -> State:
        # A worker process cannot ask torch.distributed. But a pickle that travels to a rank must ask there.
        return {**self.__dict__, "_given": self._given if self.ranks == (1, 0) else self.ranks}

    def units(self, key: int) -> list[Unit]:
        """Those of this part, in the order in which they come.

        Over ranks they are dealt out before they are shuffled: ranks whose loaders have different seeds read no sample
        twice either.
        """
        count, rank = self.ranks
        note_sharing(count)
        units = deal([Unit(number) for number in range(self._count())], rank, count)
        if self.shuffle:
            units.sort(key=lambda unit: mix(key, unit.number))
        return deal(units, *self._part)

    def fingerprint(self) -> str:
        """Of the names of what it reads; where their common folder is does not matter."""
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
            self._to_next()  # it raised once: that is all there is to say of it
            raise
        return self._reader

    def _to_next(self) -> None:
        self._at += 1
        self._place = self._reader = None

    def state_dict(self) -> State:
        """Where the next sample is."""
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
        """Go on there."""
        self._check("files", state["files"], self._fingerprint, "with other files")
        count, rank = self._stream.ranks
        self._check("ranks", list(state["ranks"]), [count, rank], "by another rank, or one of another number of ranks")
        self._check("part", list(state["part"]), list(self._stream._part), "of another part of the stream")
        self._begin(state["key"], state["unit"], state["place"])
        if self._place is not None:
            # Now, while a state is being loaded: a unit that is another one is no bad sample that may be left out.
            with suppress(SourceError):  # what cannot be read is told when it is read
                self._reader = self._stream._open(self._units[self._at], self._place)

    def _check(self, name: str, then: Any, now: Any, how: str) -> None:
        if then != now:
            kind = type(self._stream).__name__
            raise StateError(f"the {kind}'s state was saved {how}: its {name!r} is {then!r}, and here it is {now!r}")
