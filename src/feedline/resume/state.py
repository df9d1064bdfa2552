"""Where a run stands, as plain data: saved after any batch, and gone on from exactly there.

Takes: numbers and short texts. Gives: `Place` and its dict, which `json` can write if it can write what the dataset and
the sampler say of themselves; the refusal of one that does not fit.
Promises: versioned; of a state that is loaded nothing is unpickled but what was pickled here, to have a copy; what
cannot be continued is refused with a message that names the difference.
Not its job: counting what was delivered (resume.passed), going on from a place (plans, streams).
"""

from __future__ import annotations

import base64
import operator
import pickle
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from feedline.errors import StateError

VERSION = 1
MOST_SHARDS = 1 << 16
"""A stream is read in one part per worker and rank; more than that is a damaged state."""


class End(NamedTuple):
    """A sampler that has given all its indices; before the first batch of an epoch, those of the epoch before."""

    state: bytes | None = None
    """What it said of itself then, pickled."""


class Unsaid(str):
    """Why an object of the user's cannot say where it stands."""


@dataclass(frozen=True)
class Tail:
    """The last indices before a place, by which a sampler that is asked again is known to give the same.

    >>> import numpy as np
    >>> Tail.of([7, 8, 9]) == Tail.of([np.int64(7), 8, 9]), Tail.of([7, 8, 9]) == Tail.of([7, 9, 8])
    (True, False)
    """

    LONGEST: ClassVar[int] = 8
    """Few, because they are looked at whenever a state is saved; those of another shuffle differ all the same."""

    count: int
    digest: int

    @classmethod
    def of(cls, indices: Sequence[Any]) -> Tail:
        """Of a list's last ones."""
        last = [_as_text(index) for index in indices[-cls.LONGEST :]]
        return cls(len(last), zlib.crc32("\n".join(last).encode(errors="replace")))


def _as_text(index: Any) -> str:
    try:
        return str(operator.index(index))
    except TypeError:
        return str(index)


@dataclass(frozen=True)
class Place:
    """A place in a run: so many batches of an epoch have been delivered."""

    epoch: int = 0
    batches: int = 0
    """The number of the first batch that has not been delivered."""
    samples: int = 0
    """Indices in the batches before that one, over all ranks; where the sampler makes whole batches, those batches."""
    ahead: Sequence[int] = ()
    """Batches after that one that have been delivered all the same (in_order=False)."""
    sampler: Any = None
    """What the sampler itself says of its place, pickled, or `End`; a `Tail` if it can only be asked again."""
    shards: int = 0
    """For a stream: in how many parts it was read."""
    streams: dict[str, Any] = field(default_factory=dict)
    """For a stream: where each part stands, by its number (reading.stream_source); a dataset's own state is pickled."""
    drawn: Any = None
    """What a front's order was drawn from, which that front saves by itself."""
    ranks: tuple[int, int] = (1, 0)
    """For a stream that is shared out over ranks: how many there were, and which of them has saved it."""
    datasets: Sequence[dict[str, Any] | None] = ()
    """For a stream between two epochs: how each part begins the next one (see reading.stream_source)."""
    unsaid: str = ""
    """Why the sampler, which keeps its own place, could not be asked for it."""

    def is_of_others(self, ranks: tuple[int, int]) -> bool:
        """Is it in the middle of a stream, and did another rank save it, or one of another number of ranks?"""
        return self.ranks[0] > 1 and self.batches > 0 and self.ranks != ranks


@dataclass(frozen=True)
class Kind:
    """What must be the same on both sides for a place to mean the same; None where it is not known."""

    seed: int | None
    length: int | None
    sampler: str
    batched_by: str
    """Who decides the batches: "batch_size", "batch_sampler" or "nobody"."""
    reading: str | None = None
    """For a stream: what decides which elements are in which batch."""
    batch_size: int | None = None
    """May change, unless batches were delivered ahead."""
    fingerprint: str | None = None
    """Of the dataset's content, if it has one; looked at where both sides have."""


def to_dict(place: Place, kind: Kind) -> dict[str, Any]:
    """As JSON would have it."""
    found: dict[str, Any] = {"feedline": VERSION, "epoch": place.epoch, "batches": place.batches}
    found |= {"samples": place.samples, "seed": kind.seed, "length": kind.length}
    found |= {"sampler": kind.sampler, "batched_by": kind.batched_by}
    if place.ahead:
        found["ahead"] = list(place.ahead)
        found["batch_size"] = kind.batch_size
    if isinstance(place.sampler, Tail):
        found["last"] = [place.sampler.count, place.sampler.digest]
    elif isinstance(place.sampler, bytes):
        found |= _said({"sampler_state": place.sampler}, "sampler_problem")
    elif isinstance(place.sampler, End):
        found |= {"sampler_end": None} | _said({"sampler_end": place.sampler.state}, "sampler_problem")
    if place.unsaid:
        found["sampler_problem"] = place.unsaid
    if place.shards:
        found["shards"] = place.shards
        found["streams"] = {shard: _said(record, "problem") for shard, record in place.streams.items()}
    if place.ranks[0] > 1:
        found["ranks"] = list(place.ranks)
    if place.datasets:
        found["datasets"] = [None if record is None else _said(record, "problem") for record in place.datasets]
    if kind.reading is not None:
        found["reading"] = kind.reading
    if kind.fingerprint is not None:
        found["fingerprint"] = kind.fingerprint
    return found


def _said(record: dict[str, Any], problem: str) -> dict[str, Any]:
    """With what objects of the user's have said of themselves as they have put it; or why that cannot be had."""
    try:
        return {name: pickle.loads(value) if isinstance(value, bytes) else value for name, value in record.items()}
    except Exception as error:  # of a class that is there in workers only, say
        why = f"what its state_dict() gave could be pickled, but not unpickled ({type(error).__name__}: {error})"
        kept = ("read", "own", "seen", "ended")
        return {name: value for name, value in record.items() if name in kept} | {problem: why}


_SAID = ("state", "dataset", "unread")


def _record(found: Any) -> dict[str, Any]:
    """The other way round, checked as far as it is ours."""
    record = dict(found)
    record |= {name: pickle.dumps(record[name]) for name in _SAID if name in record}
    if "ended" in record:
        kept = ("ended", "of", *_SAID, "complete", "problem", "count")
        return {name: value for name, value in record.items() if name in kept}
    for name in ("read", "next", "failures", "count"):
        if name in record:
            _count(record[name])
    if "seen" in record:
        record["seen"] = [_count(each) for each in record["seen"]]
    whole = record.get("of") in ("iterator", "dataset") and ("anew" in record or {"next", "read"} <= record.keys())
    if "state" in record and not whole:
        raise ValueError(f"{sorted(record)} is no place of a stream")
    if "shuffle" in record:
        shuffle = record["shuffle"] = dict(record["shuffle"])
        _count(shuffle["drawn"])
        if sum(_count(times) for reads, times in shuffle["batches"] if _count(reads) >= 0) > _count(record["next"]):
            raise ValueError(f"{shuffle['batches']} are more batches than were delivered")
        if _count(shuffle["seq"]) > record["next"] or len(base64.b64decode(shuffle["kept"], validate=True)) % 4:
            raise ValueError(f"{shuffle} is no place of a shuffle buffer")
    return record


_WHAT = {
    "sampler": "another sampler was used",
    "length": "the data had another length",
    "batched_by": "batches were made in another way",
    "reading": "the stream was read in another way",
}


def from_dict(state: Any, kind: Kind) -> Place:
    """The place, if it means the same here; else StateError."""
    if not isinstance(state, dict) or "feedline" not in state:
        raise StateError(f"this is no state of a feedline loader: {str(state)[:80]!r}")
    if state["feedline"] is True or state["feedline"] != VERSION:
        raise StateError(
            f"the state was saved in format {state['feedline']!r}, and this feedline reads format {VERSION}: "
            "use the version of feedline that saved it"
        )
    for name, what in _WHAT.items():
        then, now = state.get(name), getattr(kind, name)
        if then != now:
            raise StateError(f"the state cannot be continued here, because {what}: {then!r} then, {now!r} now")
    _check_ahead(state, kind)
    _check_content(state, kind)
    if kind.seed is not None and state.get("seed") != kind.seed:
        raise StateError(
            f"the state cannot be continued here, because the seed was {state.get('seed')!r} then and is {kind.seed!r} "
            "now: leave out seed to take over the state's"
        )
    try:
        return Place(
            epoch=_count(state["epoch"]),
            batches=_count(state["batches"]),
            samples=_count(state["samples"]),
            ahead=tuple(_count(number) for number in state.get("ahead", ())),
            sampler=_sampler_in(state),
            shards=_shards(state.get("shards", 0)),
            streams={str(int(shard)): _record(found) for shard, found in dict(state.get("streams", {})).items()},
            ranks=_ranks(*state.get("ranks", (1, 0))),
            datasets=tuple(None if found is None else _record(found) for found in state.get("datasets", ())),
        )
    except Exception as error:  # pickling what the user's objects have said may raise anything
        raise StateError(f"the state is damaged: {error!r}") from error


def _sampler_in(state: dict[str, Any]) -> Any:
    if "last" in state:
        return Tail(*map(_count, state["last"]))
    if "sampler_end" in state:
        return End(None if state["sampler_end"] is None else pickle.dumps(state["sampler_end"]))
    return pickle.dumps(state["sampler_state"]) if "sampler_state" in state else None


def _check_ahead(state: dict[str, Any], kind: Kind) -> None:
    """Batches delivered ahead are known by number, so they must be the same ones."""
    then = state.get("batch_size")
    if state.get("ahead") and then != kind.batch_size:
        raise StateError(
            f"the state cannot be continued here, because batches after its place had been delivered already "
            f"(in_order=False) and batch_size was {then!r} then and is {kind.batch_size!r} now: it must be the same"
        )


def _check_content(state: dict[str, Any], kind: Kind) -> None:
    then, now = state.get("fingerprint"), kind.fingerprint
    if then is not None and now is not None and then != now:
        raise StateError(
            "the state cannot be continued here, because the dataset's fingerprint is another, so its content or its "
            f"order has changed: {then!r} then, {now!r} now. Continue with the data of then, or begin anew"
        )


def seed_in(state: dict[str, Any]) -> int:
    """The seed a state was saved with."""
    try:
        return _count(state["seed"])
    except (KeyError, ValueError) as error:
        raise StateError(f"the state is damaged: it has no seed ({error!r})") from error


def epoch_in(state: dict[str, Any]) -> int:
    """The epoch that the sampler had been told by hand."""
    try:
        return _count(state["sampler_epoch"])
    except ValueError as error:
        raise StateError(f"the state is damaged: {error!r}") from error


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(f"{value!r} is no count")
    return value


def _ranks(count: Any, rank: Any) -> tuple[int, int]:
    if not _count(rank) < _count(count):
        raise ValueError(f"there is no rank {rank} of {count}")
    return count, rank


def _shards(value: Any) -> int:
    if _count(value) > MOST_SHARDS:
        raise ValueError(f"a stream is not read in {value} parts")
    return int(value)
