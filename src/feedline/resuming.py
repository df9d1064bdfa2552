"""A loader's place: what `state_dict` says and `load_state_dict` takes, the same for every front.

Takes: the latest epoch's progress, a loaded state. Gives: the place the next iteration begins at.
Promises: saved at any moment — before, in and after an epoch, with batches under way — it goes on with the batch that
would have come next.
Not its job: the format (state), what a front's order depends on besides (fronts).
"""

from __future__ import annotations

from dataclasses import replace

from feedline.errors import StateError
from feedline.line.passed import Passed
from feedline.state import Place


class Progress:
    """Where a loader stands."""

    def __init__(self) -> None:
        self.epoch = 0
        """The epoch that comes next, or goes on."""
        self._loaded: Place | None = None
        self._latest: Passed | None = None

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

    def begin(self, shards: int, ranks: int) -> tuple[Place, Passed]:
        """Begin an iteration: the place for its plan (in this rank's samples), and what counts it."""
        place, self._loaded = self._loaded or Place(self.epoch, shards=shards), None
        self._latest = passed = Passed(place, ranks)
        self.epoch = place.epoch + 1
        if place.samples % ranks:
            raise StateError(
                f"the state stands at sample {place.samples} of its epoch, which {ranks} ranks cannot share evenly: "
                "continue with a number of ranks and a batch_size whose product is the same as before"
            )
        return replace(place, samples=place.samples // ranks), passed

    @property
    def place(self) -> Place:
        """Where to go on from."""
        if self._loaded is not None:
            return self._loaded
        if self._latest is not None and not self._latest.finished:
            return self._latest.place
        return Place(self.epoch)
