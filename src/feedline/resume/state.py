"""Where a run is, as plain data: it can be saved after any batch, and continued from exactly there.

Takes: numbers and short texts. Gives: `Place` and its dict, which `json` can write if it can write the states of the
dataset and the sampler; an error for a state that does not fit.
Promises: the format has a version; loading a state unpickles only what was pickled here, to have a copy; a state that
cannot be continued is refused with a message that names the difference.
Not its job: counting what was delivered (resume.passed), continuing from a place (plans, streams).
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

VERSION = 2
"""2: shuffles of 100,000 to 16,777,216 indices have another order than in 1."""
MOST_SHARDS = 1 << 16
"""A stream has one part per worker and rank; a state with more parts than this is damaged."""


class End(NamedTuple):
    """A sampler that has given all indices of an epoch; before an epoch's first batch, of the epoch before."""

    state: bytes | None = None
    """Its own state at that moment, pickled."""


class NoState(str):
    """Why a user's object cannot give its state."""


@dataclass(frozen=True)
class Tail:
    """The last indices before a place. They show whether a sampler that is asked again gives the same indices.

    >>> import numpy as np
    >>> Tail.of([7, 8, 9]) == Tail.of([np.int64(7), 8, 9]), Tail.of([7, 8, 9]) == Tail.of([7, 9, 8])
    (True, False)
    """

    LONGEST: ClassVar[int] = 8
    """Few, because they are read whenever a state is saved; even so, those of another shuffle differ."""

    count: int
    digest: int

    @classmethod
    def of(cls, indices: Sequence[Any]) -> Tail:
        """The tail of a list."""
        last = [_as_text(index) for index in indices[-cls.LONGEST :]]
        return cls(len(last), zlib.crc32("\n".join(last).encode(errors="replace")))


def _as_text(index: Any) -> str:
    try:
        return str(operator.index(index))
    except TypeError:
        return str(index)


@dataclass
class Place:
    """A place in a run: how much of an epoch has been delivered. It is a value, and nobody changes it; to have Python
    refuse that would take 15,000 instructions at the beginning of each epoch."""

    epoch: int = 0
    batches: int = 0
    """The number of the first batch that has not been delivered."""
    samples: int = 0
    """How many indices the batches before that one had, over all ranks; if the sampler makes whole batches, how many
    batches."""
    ahead: Sequence[int] = ()
    """Later batches that have been delivered already (in_order=False)."""
    sampler: Any = None
    """The sampler's own state, pickled, or `End`; a `Tail` if it has no state and can only be asked again."""
    shards: int = 0
    """For a stream: in how many parts it was read."""
    streams: dict[str, Any] = field(default_factory=dict)
    """For a stream: where each part is, by its number (reading.stream_source); a dataset's own state is pickled."""
    drawn: Any = None
    """What a front's order was drawn from; the front saves this itself."""
    ranks: tuple[int, int] = (1, 0)
    """For a stream that ranks divide: how many ranks there were, and which of them saved it."""
    datasets: Sequence[dict[str, Any] | None] = ()
    """For a stream between two epochs: how each part begins the next one (see reading.stream_source)."""
    no_state: str = ""
    """Why the sampler, which has a state, could not give it."""

    def is_of_others(self, ranks: tuple[int, int]) -> bool:
        """Is it in the middle of a stream, and was it saved by another rank or with another number of ranks?"""
        return self.ranks[0] > 1 and self.batches > 0 and self.ranks != ranks


@dataclass(frozen=True)
class Kind:
    """What must be the same when saving and loading, so that a place means the same; None if not known."""

    seed: int | None
    length: int | None
    sampler: str
    batched_by: str
    """What decides the batches: "batch_size", "batch_sampler" or "nobody"."""
    reading: str | None = None
    """For a stream: what decides which elements are in which batch."""
    batch_size: int | None = None
    """It may change, unless later batches were delivered already."""
    global_batch_size: int | None = None
    """The size of a batch of all ranks together, if the loader was given that; a state without it fits, too."""
    fingerprint: str | None = None
    """The fingerprint of the dataset's content, if it has one; compared if both sides have it."""


def to_dict(place: Place, kind: Kind) -> dict[str, Any]:
    """The state as a dict of JSON types, except for states of user objects."""
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
    if place.no_state:
        found["sampler_problem"] = place.no_state
    if place.shards:
        found["shards"] = place.shards
        found["streams"] = {shard: _said(record, "problem") for shard, record in place.streams.items()}
    if place.ranks[0] > 1:
        found["ranks"] = list(place.ranks)
    if place.datasets:
        found["datasets"] = [None if record is None else _said(record, "problem") for record in place.datasets]
    if kind.reading is not None:
        found["reading"] = kind.reading
    if kind.global_batch_size is not None:
        found["global_batch_size"] = kind.global_batch_size
    if kind.fingerprint is not None:
        found["fingerprint"] = kind.fingerprint
    return found


def _said(record: dict[str, Any], problem: str) -> dict[str, Any]:
    """The record with the states of user objects unpickled; or why that failed."""
    try:
        return {name: pickle.loads(value) if isinstance(value, bytes) else value for name, value in record.items()}
    except Exception as error:  # for example, its class exists in workers only
        why = f"the result of its state_dict() can be pickled, but not unpickled ({type(error).__name__}: {error})"
        kept = ("read", "own", "seen", "ended")
        return {name: value for name, value in record.items() if name in kept} | {problem: why}


_SAID = ("state", "dataset", "unread")


def _record(found: Any) -> dict[str, Any]:
    """The reverse of `_said`, with checks of our own fields."""
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
        raise ValueError(f"{sorted(record)} is not a position in a stream")
    if "shuffle" in record:
        shuffle = record["shuffle"] = dict(record["shuffle"])
        _count(shuffle["drawn"])
        if sum(_count(times) for reads, times in shuffle["batches"] if _count(reads) >= 0) > _count(record["next"]):
            raise ValueError(f"{shuffle['batches']} are more batches than were delivered")
        if _count(shuffle["seq"]) > record["next"] or len(base64.b64decode(shuffle["kept"], validate=True)) % 4:
            raise ValueError(f"{shuffle} is not a position in a shuffle buffer")
    return record


_WHAT = {
    "sampler": "another sampler was used",
    "length": "the data had another length",
    "batched_by": "batches were made in another way",
    "reading": "the stream was read in another way",
}


def from_dict(state: Any, kind: Kind) -> Place:
    """The place, if it means the same here; otherwise raises StateError."""
    if not isinstance(state, dict) or "feedline" not in state:
        raise StateError(f"this is not the state of a feedline loader: {str(state)[:80]!r}")
    if state["feedline"] is True or state["feedline"] != VERSION:
        raise StateError(
            f"the state was saved in format {state['feedline']!r}, and this feedline reads format {VERSION}: "
            "use the version of feedline that saved it"
        )
    _check_global(state, kind)
    for name, what in _WHAT.items():
        then, now = state.get(name), getattr(kind, name)
        if then != now:
            raise StateError(
                f"the state cannot be continued here, because {what} when it was saved: {then!r}, and now {now!r}"
            )
    _check_ahead(state, kind)
    _check_content(state, kind)
    if kind.seed is not None and state.get("seed") != kind.seed:
        raise StateError(
            f"the state cannot be continued here, because the seed was {state.get('seed')!r} when it was saved and is "
            f"{kind.seed!r} now: leave out seed=, and the loader takes the state's seed"
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
    except Exception as error:  # pickling states of user objects may raise anything
        raise StateError(f"the state is damaged: {error!r}") from error


def _sampler_in(state: dict[str, Any]) -> Any:
    if "last" in state:
        return Tail(*map(_count, state["last"]))
    if "sampler_end" in state:
        return End(None if state["sampler_end"] is None else pickle.dumps(state["sampler_end"]))
    return pickle.dumps(state["sampler_state"]) if "sampler_state" in state else None


def _check_ahead(state: dict[str, Any], kind: Kind) -> None:
    """Batches delivered early are stored as numbers, so those numbers must mean the same batches."""
    then = state.get("batch_size")
    if state.get("ahead") and then != kind.batch_size:
        raise StateError(
            "the state cannot be continued here, because some batches had been delivered out of order "
            f"(in_order=False), and batch_size was {then!r} and is {kind.batch_size!r} now: it must be the same"
        )


def _check_global(state: dict[str, Any], kind: Kind) -> None:
    then, now = state.get("global_batch_size"), kind.global_batch_size
    if then is None or then == now:
        return
    if now is None:
        raise StateError(
            f"the state was saved with global_batch_size={then}, and this loader has none: its ranks would not share "
            f"the batches out. Set global_batch_size={then}"
        )
    raise StateError(
        f"the state was saved with global_batch_size={then}, and now it is {now}: the batches would be others. If only "
        f"the number of ranks has changed, keep global_batch_size={then}; to change it on purpose, set "
        "state['global_batch_size'] to the new number"
    )


def _check_content(state: dict[str, Any], kind: Kind) -> None:
    then, now = state.get("fingerprint"), kind.fingerprint
    if then is not None and now is not None and then != now:
        raise StateError(
            "the state cannot be continued here, because the dataset's fingerprint has changed, and so its content "
            f"or its order: it was {then!r} and is {now!r} now. Continue with the same data as before, or start "
            "without the state"
        )


def seed_in(state: dict[str, Any]) -> int:
    """The seed a state was saved with."""
    try:
        return _count(state["seed"])
    except (KeyError, ValueError) as error:
        raise StateError(f"the state is damaged: it has no seed ({error!r})") from error


def epoch_in(state: dict[str, Any]) -> int:
    """The epoch that the user had set on the sampler."""
    try:
        return _count(state["sampler_epoch"])
    except ValueError as error:
        raise StateError(f"the state is damaged: {error!r}") from error


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 64:
        raise ValueError(f"{value!r} is not a count")
    return value


def _ranks(count: Any, rank: Any) -> tuple[int, int]:
    if not _count(rank) < _count(count):
        raise ValueError(f"there is no rank {rank} of {count}")
    return count, rank


def _shards(value: Any) -> int:
    if _count(value) > MOST_SHARDS:
        raise ValueError(f"a stream is not read in {value} parts")
    return int(value)
