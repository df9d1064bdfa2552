"""A loader's place: what `state_dict` says and `load_state_dict` takes, the same for every front.

Takes: the latest epoch's progress, a loaded state. Gives: the place the next iteration begins at.
Promises: saved at any moment — before, in and after an epoch, with batches under way — it goes on with the batch that
would have come next.
Not its job: the format (state), what a front's order depends on besides (fronts).
"""

from __future__ import annotations

from dataclasses import replace

from feedline.counting import counted
from feedline.errors import StateError
from feedline.line.passed import ALONE, Passed, Sharing
from feedline.line.turns import ONE_RANK, Turns
from feedline.state import Place, Tail


class Progress:
    """Where a loader stands."""

    def __init__(self) -> None:
        self.epoch = 0
        """The epoch that comes next, or goes on."""
        self._loaded: Place | None = None
        self._latest: Passed | None = None
        self._before: tuple[int, Place | None, Passed | None] = (0, None, None)

    def set_epoch(self, epoch: int) -> None:
        """From the beginning of that epoch on; a loaded place in it is kept."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch must be a whole number of at least 0; got {epoch!r}")
        self.epoch = epoch
        self._latest = None
        if self._loaded is not None and self._loaded.epoch != epoch:
            self._loaded = None

    def load(self, place: Place) -> None:
        """The next iteration begins there."""
        self.epoch, self._loaded, self._latest = place.epoch, place, None

    def begin(self, shards: int, sharing: Sharing = ALONE, turns: Turns = ONE_RANK) -> tuple[Place, Passed]:
        """Begin an iteration: the place for its plan (in this rank's samples), and what counts it.

        A stream's `shards` are those of all ranks.
        """
        place = self._loaded or Place(self.epoch, shards=shards)
        place = replace(place, shards=place.shards or shards)
        _check_ranks(place, sharing)
        _check_ahead(place, turns)
        if sharing.ranks > 1 and isinstance(place.sampler, Tail):
            place = replace(place, sampler=None)  # the indices before it were another rank's, or all ranks'
        self._before = self.epoch, self._loaded, self._latest
        self._loaded, self._latest = None, Passed(place, sharing, turns)
        self.epoch = place.epoch + 1
        return replace(place, samples=-(-place.samples // sharing.ranks)), self._latest

    def take_back(self) -> None:
        """The iteration could not be begun after all: all is as it was before."""
        self.epoch, self._loaded, self._latest = self._before

    @property
    def place(self) -> Place:
        """Where to go on from."""
        if self._loaded is not None:
            return self._loaded
        if self._latest is not None and not self._latest.finished:
            return self._latest.place
        return Place(self.epoch)


def _check_ranks(place: Place, sharing: Sharing) -> None:
    is_end = sharing.total is not None and place.samples >= sharing.total
    if is_end or not place.samples % sharing.ranks:
        return
    what = "batch" if sharing.whole_batches else "sample"
    remedy = "that divides it" if sharing.whole_batches else "and a batch_size whose product is the same as before"
    raise StateError(
        f"the state stands at {what} {place.samples} of its epoch, which {sharing.ranks} ranks cannot share evenly: "
        f"continue with a number of ranks {remedy}"
    )


def _check_ahead(place: Place, turns: Turns) -> None:
    if place.ahead and place.is_of_others(turns[:2]):
        raise StateError(
            "the state cannot be continued here, because batches after its place had been delivered already "
            f"(in_order=False) and those of the other ranks are not known: continue with {place.ranks[0]} ranks, each "
            "from the state that it has saved itself"
        )


def read_again(place: Place, name: str) -> str | None:
    """What to tell the user if a stream cannot say where it stands, so that its elements are read again.

    >>> print(read_again(Place(batches=3, shards=1, streams={"0": {"read": 12}}), "Mine")[:62])
    to go on with batch 3, 12 elements of the IterableDataset Mine
    """
    elements = sum(part["read"] for part in place.streams.values() if "read" in part and "of" not in part)
    if not elements:
        return None
    return (
        f"to go on with batch {place.batches}, {counted(elements, 'element')} of the IterableDataset {name} "
        f"{'is' if elements == 1 else 'are'} read again and passed over (those of the "
        f"{counted(place.batches, 'batch')} before), because it cannot say where it stands: define "
        "state_dict() and load_state_dict(state) on the dataset, or on what its __iter__ returns"
    )
