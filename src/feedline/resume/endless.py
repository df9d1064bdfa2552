"""Endless loading, in epochs of a length that the user chooses.

Takes: a loader and a number of batches. Gives: `Forever`, which gives exactly that many batches each time it is
iterated, continues where it was the next time, and starts the data again (in another order) whenever they end.
Promises: it can be resumed like its loader. Not its job: different data on each rank (DistributedSampler).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from feedline.errors import FeedlineError, StateError
from feedline.errors.checks import check_whole
from feedline.observe.epoch_bar import WithProgress
from feedline.observe.epoch_stats import EpochStats
from feedline.observe.stepping import StepBlock
from feedline.resume.under_lightning import asking_loop, epoch_is_over, is_ahead

AHEAD = (
    "Lightning has already taken the next batch of forever(…) when it saves a step, because another loader of this "
    "training has no length: that batch will be missing after resuming. Give that other loader's dataset a __len__, "
    "or use its forever(…), too"
)


class Forever:
    """Virtual epochs of `batches_per_epoch` batches; see `DataLoader.forever`."""

    def __init__(self, loader: Any, batches_per_epoch: int, begin: Callable[[], Iterator[Any]] | None = None) -> None:
        self.loader = loader
        self._begin = begin or partial(iter, loader)
        self.batches_per_epoch = check_whole("batches_per_epoch", batches_per_epoch, least=1)
        self._batches: Iterator[Any] | None = None
        self._given = 0
        self._goes_on = False

    def __len__(self) -> int:
        return self.batches_per_epoch

    def __iter__(self) -> Iterator[Any]:
        """One virtual epoch; after `load_state_dict` the rest of a virtual epoch."""
        if not self._goes_on:
            self._given = 0
        self._goes_on = False
        return _Virtual(self)

    def progress(self, name: str | None = None) -> WithProgress[Any]:
        """One virtual epoch with a progress bar; see `DataLoader.progress`."""
        return WithProgress(self, lambda: self._given if self._goes_on else 0, name)

    def _flow_now(self) -> EpochStats | None:
        return self.loader._flow_now()  # type: ignore[no-any-return]

    def step(self) -> StepBlock:
        """Measures the training step, as the loader's."""
        return self.loader._step()  # type: ignore[no-any-return]

    def following(self) -> Any:
        """The next batch; starts the data again if they have ended."""
        for _ in range(2):  # the rest of this pass over the data, and one more pass
            if self._batches is None:
                self.loader.set_epoch(self.loader.epoch)  # also calls the sampler's set_epoch, if it has one
                self._batches = self._begin()
            try:
                batch = next(self._batches)
            except StopIteration:
                self._batches = None
                continue
            self._given += 1
            return batch
        raise FeedlineError("the loader has no batches, so forever(…) has nothing to repeat")

    @property
    def samples_given(self) -> int | None:
        """How many samples the latest batch has, if the loader knows."""
        return getattr(self._batches, "samples_given", None)

    @property
    def weight(self) -> float:
        """As the loader's: what to multiply the mean loss of the latest batch by."""
        return float(getattr(self.loader, "weight", 1.0))

    @property
    def _share_given(self) -> Any:
        return getattr(self.loader, "_share_given", None)

    @property
    def is_over(self) -> bool:
        """Has this virtual epoch given all its batches?"""
        return self._given >= self.batches_per_epoch

    def end_told(self) -> None:
        """The user has seen the end of this virtual epoch: a state saved from now on is the beginning of the next."""
        self._given = 0

    def state_dict(self) -> dict[str, Any]:
        """The loader's own state, and how many batches this virtual epoch has given."""
        if is_ahead(asking_loop()):
            warnings.warn(AHEAD, stacklevel=2)
        return {"given": self._given, "loader": self.loader.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from that state."""
        if not isinstance(state, dict) or "given" not in state or "loader" not in state:
            raise StateError(
                "this is not a state of loader.forever(…); load a loader's own state with loader.load_state_dict(state)"
            )
        given = state["given"]
        if isinstance(given, bool) or not isinstance(given, int) or given < 0:
            raise StateError(f"the state is damaged: {given!r} is not a number of batches")
        self.loader.load_state_dict(state["loader"])
        self._given, self._goes_on, self._batches = 0 if epoch_is_over(asking_loop()) else given, True, None


class _Virtual(Iterator[Any]):
    def __init__(self, forever: Forever) -> None:
        self._forever = forever
        self._is_over = False

    @property
    def samples_given(self) -> int | None:
        return self._forever.samples_given

    def __next__(self) -> Any:
        if self._is_over or self._forever.is_over:
            if not self._is_over:
                self._is_over = True
                self._forever.end_told()
            raise StopIteration
        return self._forever.following()
