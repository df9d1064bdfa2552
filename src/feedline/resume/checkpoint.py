"""A loader's place: what `state_dict` returns and `load_state_dict` takes, the same for every front.

Takes: the latest epoch's progress, a loaded state. Gives: the place at which the next iteration begins.
Promises: a state can be saved at any moment (before, in and after an epoch, while batches are being made); loading it
continues with the batch that would have come next.
Not its job: the format (state), what else a front's order depends on (fronts).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from feedline.errors import StateError
from feedline.errors.counting import counted
from feedline.order.rank_turns import ONE_RANK, Turns
from feedline.reading.stream_source import goes_on, next_epoch_record
from feedline.resume.passed import ALONE, Passed, Sharing
from feedline.resume.state import End, NoState, Place, Tail
from feedline.resume.stateful import is_stateful


class Progress:
    """Where a loader is."""

    def __init__(self) -> None:
        self.epoch = 0
        """The epoch that comes next, or that will be continued."""
        self._loaded: Place | None = None
        self._latest: Passed | None = None
        self._between = _Between()
        self._before: tuple[int, Place | None, Passed | None, _Between] = (0, None, None, self._between)

    @property
    def share_given(self) -> tuple[int, float] | None:
        """As in `Passed`, of the latest epoch."""
        return None if self._latest is None else self._latest.share_given

    @property
    def weight(self) -> float:
        """What to multiply the mean loss of the latest batch by, if it is a rank's share of a global batch; else 1."""
        share = self.share_given
        return 1.0 if share is None else share[0] / share[1]

    def set_epoch(self, epoch: int) -> None:
        """Continue from the beginning of that epoch; a loaded place in it is kept."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch must be a whole number of at least 0; got {epoch!r}")
        self._leave()
        self.epoch = epoch
        if self._loaded is not None and self._loaded.epoch != epoch:
            end = self._loaded.sampler if isinstance(self._loaded.sampler, End) else None
            self._between = _Between(self._loaded.datasets, sampler=end)
            self._loaded = None

    def load(self, place: Place) -> None:
        """The next iteration begins there."""
        self.epoch, self._loaded, self._latest, self._between = place.epoch, place, None, _Between()

    def batches_before(self, ranks: int, size: int | None) -> int:
        """How many batches of this size had been delivered to each rank before the place where `begin` will begin."""
        place = self._loaded
        if place is None:
            return 0
        whole = place.batches if size is None else -(-place.samples // (size * ranks))
        return whole + len(place.ahead)

    def begin(
        self,
        shards: int,
        sharing: Sharing = ALONE,
        keeps_datasets: bool = True,
        sampler: End | NoState | None = None,
        turns: Turns = ONE_RANK,
    ) -> tuple[Place, Passed]:
        """Begin an iteration: returns the place for its plan (in this rank's samples), and its counter.

        A stream's `shards` are those of all ranks. `keeps_datasets`: does each epoch read the datasets in the state in
        which the last epoch left them? Otherwise (new workers for each epoch) it begins with the dataset as it is in
        the main process. `sampler`: the state of a foreign sampler now, before it is asked for this epoch.
        """
        self._before = self.epoch, self._loaded, self._latest, self._between
        self._leave()
        place = self._loaded or Place(self.epoch, datasets=self._between.datasets, sampler=self._between.sampler)
        has_it = self._between.here if self._loaded is None and len(place.datasets) == shards else frozenset()
        if shards and not place.shards:
            place = _shared_out(place, shards)
            if self._loaded is None:  # a part without a state has lost nothing here
                place = replace(place, datasets=[each for each in place.datasets if each and "state" in each])
        try:
            _check_ranks(place, sharing)
            _check_ahead(place, turns)
        except StateError:
            self.take_back()
            raise
        if sharing.ranks > 1 and isinstance(place.sampler, Tail):
            place = replace(place, sampler=None)  # those indices were of another rank, or of all ranks
        is_so = self._between.is_over and place.sampler is None and isinstance(sampler, End)
        begun = replace(place, sampler=sampler) if is_so else place
        self._loaded, self._latest = None, Passed(begun, sharing, keeps_datasets, turns=turns)
        self.epoch = place.epoch + 1
        if not place.streams and sharing.ranks == 1:
            return place, self._latest
        streams = {
            shard: {**record, "there": True} if int(shard) in has_it else record
            for shard, record in place.streams.items()
        }
        return replace(place, samples=-(-place.samples // sharing.ranks), streams=streams), self._latest

    def take_back(self) -> None:
        """The iteration could not begin: restore everything as it was before."""
        self.epoch, self._loaded, self._latest, self._between = self._before

    def place(self, sampler: Callable[[], End | NoState | None]) -> Place:
        """The place to continue from; between two epochs it includes the present state of a foreign sampler."""
        if self._loaded is not None:
            return self._loaded
        if self._latest is not None and not self._latest.finished:
            return self._latest.place
        between = _Between.after(self._latest, self._between)
        said = between.sampler or (sampler() if between.is_over else None)
        no_state, said = (said, None) if isinstance(said, NoState) else ("", said)
        return Place(self.epoch, datasets=between.datasets, sampler=said, no_state=no_state)

    def _leave(self) -> None:
        self._between = _Between.after(self._latest, self._between)
        self._latest = None


class _Between(NamedTuple):
    """What is kept of an epoch that is over."""

    datasets: Sequence[dict[str, Any] | None] = ()
    """How each part begins the next epoch."""
    here: frozenset[int] = frozenset()
    """Parts that were read in this process or its workers: their datasets need no state loaded for the next epoch."""
    sampler: End | None = None
    """The sampler's loaded state, if the sampler in this process has not been given it."""
    is_over: bool = False
    """Has an epoch ended in this process?"""

    @classmethod
    def after(cls, latest: Passed | None, before: _Between) -> _Between:
        if latest is None:
            return before
        if not latest.finished:
            return cls()
        end = latest.unused_sampler_end
        if not latest.keeps_datasets:
            return cls(sampler=end, is_over=True)
        return cls(latest.datasets(), frozenset(latest.opened), end, is_over=True)


def _shared_out(place: Place, shards: int) -> Place:
    """The beginning of a stream's epoch in this many parts, each with its dataset's state at the end of the last epoch.

    If the number of parts has changed, these states are used only if all are equal: then they hold, for example, only
    the number of the epoch. States that differ may say how far each part went.
    """
    datasets = place.datasets
    if len(datasets) != shards:
        plain = [each and {name: value for name, value in each.items() if name != "count"} for each in datasets]
        first = plain[0] if plain else None
        if first is not None and "complete" in first and all(each == first for each in plain):
            total = sum(each.get("count", 0) for each in datasets if each)
            datasets = [{**first, "total": total}] * shards
    if len(datasets) != shards:
        return replace(place, shards=shards)
    streams = {str(shard): record for shard, record in enumerate(datasets) if record and "state" in record}
    problems = [record for record in datasets if record and "problem" in record]
    return replace(place, shards=shards, streams=streams, datasets=problems)


def _check_ranks(place: Place, sharing: Sharing) -> None:
    is_end = sharing.total is not None and place.samples >= sharing.total
    if is_end or not place.samples % sharing.ranks:
        return
    what = "batch" if sharing.whole_batches else "sample"
    remedy = "that divides it" if sharing.whole_batches else "and a batch_size whose product is the same as before"
    raise StateError(
        f"the state is at {what} {place.samples} of its epoch, and {sharing.ranks} ranks cannot divide that number "
        f"evenly: continue with a number of ranks {remedy}"
    )


def _check_ahead(place: Place, turns: Turns) -> None:
    if place.ahead and place.is_of_others(turns[:2]):
        raise StateError(
            "the state cannot be continued here, because some batches had been delivered out of order "
            f"(in_order=False), and it does not say which ones the other ranks had: continue with {place.ranks[0]} "
            "ranks, each from the state that it saved itself"
        )


def after(place: Place, length: Callable[[], int]) -> Place:
    """The beginning of the next epoch, after an epoch that is over even if its sampler and parts are not at their end.

    If all batches of the epoch were delivered, such a sampler or part is after its last element.
    """
    try:
        is_over = place.batches >= length()
    except TypeError:
        is_over = False
    said = End(place.sampler) if is_over and isinstance(place.sampler, bytes) else place.sampler
    sampler = said if isinstance(said, End) else None
    datasets = [_after(place, shard, is_over) for shard in range(place.shards)]
    return Place(place.epoch + 1, datasets=datasets if any(datasets) else (), sampler=sampler)


def _after(place: Place, shard: int, is_over: bool) -> dict[str, Any] | None:
    """How a part begins the next epoch."""
    record = place.streams.get(str(shard), {})
    alone = record.get("own", True)
    # With a shuffle buffer, or a state only every few batches, the latest state may be older than the last element.
    is_last = record.get("next", 0) >= (place.batches if alone else place.batches - place.shards + 1)
    if "ended" in record or (is_over and is_last and "shuffle" not in record):
        return next_epoch_record(record) or None
    if "dataset" not in record and record.get("of") != "dataset":
        return None
    return {
        "problem": "Lightning ends an epoch by counting batches, and then the state at the end of the data is not known"
    }


def lacking(state: Mapping[str, Any], dataset: Any) -> Iterator[str]:
    """Warnings about what is missing in a state.

    >>> part = {"read": 12, "problem": "Mine.state_dict() failed: TypeError"}
    >>> print(next(lacking({"streams": {"0": part}}, None))[:97])
    the loader's state lacks that of its IterableDataset, because Mine.state_dict() failed: TypeError
    """
    parts = [*state.get("streams", {}).values(), *filter(None, state.get("datasets", ()))]
    for problem in sorted({part["problem"] for part in parts if "problem" in part}):
        yield (
            f"the loader's state lacks that of its IterableDataset, because {problem}. A loader that continues from "
            "it begins with the IterableDataset as it is then, reads the epoch again and skips what was delivered. "
            f"{REMEDY}"
        )
    if "sampler_problem" in state:
        yield (
            f"the loader's state lacks that of its sampler, because {state['sampler_problem']}. A loader that "
            f"continues from it asks the sampler again for the epoch's indices, which must be the same. {REMEDY}"
        )
    if "reading" not in state and is_stateful(dataset):
        yield (
            f"the loader's state lacks that of its dataset: {type(dataset).__name__} has a state_dict(), but is read "
            "by indices, and each worker has its own copy. Let a sample depend only on its index and feedline.rng(), "
            "and let the sampler keep any other state"
        )


def read_again(place: Place, dataset: Any) -> str | None:
    """The warning if a stream has no state of its own, so that its elements are read again.

    >>> print(read_again(Place(batches=3, shards=1, streams={"0": {"read": 12}}), [])[:65])
    to continue with batch 3, 12 elements of the IterableDataset list
    """
    if not place.datasets and not place.streams:  # no stream, or its first epoch
        return None
    name = type(dataset).__name__
    problem = next((each["problem"] for each in place.datasets if each and "problem" in each), None)
    if problem is not None:
        return f"the epoch begins with the IterableDataset {name} as it is, because {problem}"
    if any(record and "state" in record for record in place.datasets):
        return (
            f"{len(place.datasets)} workers had read the IterableDataset {name} when the state was saved, and its "
            f"states belong to their parts. There are {place.shards} workers now, so the epoch begins without these "
            "states: continue with as many workers as before"
        )
    if _begins_apart(place) and not type(dataset).__module__.startswith(
        "feedline."
    ):  # in our own datasets the epoch decides the order
        return (
            f"nothing had been delivered of {counted(place.shards - len(place.streams), 'part')} of the "
            f"IterableDataset {name}, so these parts begin with the dataset as it is now, and the other parts where "
            f"their iterators were. Its order must be that of epoch {place.epoch} (the first is 0): if it counts "
            "epochs itself, set its count to that number"
        )
    parts = [part for part in place.streams.values() if "read" in part and "of" not in part]
    elements = sum(part["read"] for part in parts)
    if not elements:
        return None
    why = next((f"{part['problem']}. {REMEDY}" for part in parts if "problem" in part), "") or (
        "it cannot save its position: define state_dict() and load_state_dict(state) on the dataset, or on what its "
        "__iter__ returns"
    )
    epoch = (
        f". Its order must be that of epoch {place.epoch} (the first is 0): if it counts epochs itself, set its count "
        "to that number"
    )
    return (
        f"to continue with batch {place.batches}, {counted(elements, 'element')} of the IterableDataset {name} "
        f"{'is' if elements == 1 else 'are'} read again and skipped (those of the {counted(place.batches, 'batch')} "
        f"before), because {why}{epoch if place.epoch else ''}"
    )


def _begins_apart(place: Place) -> bool:
    """In an epoch after the first: do some parts continue from an iterator's state, while others have no state?"""
    said = any(goes_on(part) and not {"dataset", "complete"} & part.keys() for part in place.streams.values())
    return said and place.epoch > 0 and place.ranks[0] == 1 and len(place.streams) < place.shards


REMEDY = "Make state_dict() callable without arguments, and let it return something that can be pickled"
