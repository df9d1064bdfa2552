"""Epochs with a progress bar: `for batch in loader.progress():`.

Takes: a loader of any front. Gives: its batches, and a bar with samples per second and the share of time waited.
Promises: the same batches, errors and end as `for batch in loader`, and it can go on after an error in the same way.
The bar is drawn before a batch is taken: if Ctrl-C interrupts the drawing, no batch is lost. A bar that fails is not
shown any more, and the loop goes on. Not its job: what a bar looks like (bars).
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar

from feedline.errors.foreign import ask
from feedline.machine.finalizers import undisturbed
from feedline.messages.progress import clock
from feedline.observe.bars import Bar, Counts, bar_for

B = TypeVar("B", covariant=True)
EVERY = 100_000_000
"""Nanoseconds between two drawings: tqdm and rich draw as often."""


class WithProgress(Generic[B]):
    """What `loader.progress()` returns: each loop over it is one epoch of the loader."""

    def __init__(self, loader: Any, before: Callable[[], int], name: str | None = None) -> None:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name of a progress bar must be a text; got {name!r}")
        self._loader = loader
        self._before = before
        self._name = name

    def __len__(self) -> int:
        return len(self._loader)

    @property
    def _share_given(self) -> Any:
        """As the loader's: `accumulate` asks whatever it is given."""
        return getattr(self._loader, "_share_given", None)

    def __iter__(self) -> ShownEpoch[B]:
        """Begin an epoch, and show it."""
        began = clock()
        epoch, before = ask(self._loader, "epoch"), self._before()
        batches = iter(self._loader)
        named = f"epoch {epoch}" if isinstance(epoch, int) else "batches"
        name = named if self._name is None else " ".join(self._name.split())
        known = ask(self._loader, "_flow_now", _nothing)
        return ShownEpoch(batches, Counts(name, before, _length(self._loader), known=known), began)


class ShownEpoch(Iterator[B]):
    """The batches of one epoch, shown by a bar."""

    def __init__(self, batches: Iterator[B], counts: Counts, began: int) -> None:
        self._batches = batches
        self._counts = counts
        self._began = began
        self._counts.waited = (clock() - began) / 1e9  # workers were started
        self._screen = _Screen(counts)
        self._is_over = False
        self._due = 0
        # After `break`, and when an error in the loop has been dealt with.
        self._end = weakref.finalize(self, _end, self._screen)
        self._end.atexit = False  # a traceback may have been printed: nothing is drawn over it

    def __next__(self) -> B:
        began = clock()
        if began >= self._due and not self._is_over:
            self._counts.seconds = (began - self._began) / 1e9
            self._screen.show()
            self._due = clock() + EVERY
        try:
            batch = next(self._batches)
        except StopIteration:
            self._leave(began, over=True)
            raise
        except BaseException:
            self._leave(began)
            raise
        counts, now = self._counts, clock()
        counts.waited += (now - began) / 1e9
        counts.seconds = (now - self._began) / 1e9
        counts.done += 1
        samples = ask(self._batches, "samples_given")
        counts.samples = None if counts.samples is None or samples is None else counts.samples + samples
        return batch

    @property
    def samples_given(self) -> int | None:
        """How many samples the latest batch has, if the loader knows."""
        return ask(self._batches, "samples_given")  # type: ignore[no-any-return]

    def close(self) -> None:
        """Leave the epoch."""
        self._is_over = True
        self._screen.close()
        close = ask(self._batches, "close")
        if close is not None:
            close()

    def _leave(self, began: int, over: bool = False) -> None:
        """The epoch is over, or an error ends it unless the user goes on: then there is another bar."""
        if self._is_over:
            return
        self._is_over = over
        now = clock()
        self._counts.waited += (now - began) / 1e9
        self._counts.seconds = (now - self._began) / 1e9
        self._due = 0
        self._screen.close()


class _Screen:
    """The bar that is shown now, if there is one. It does not refer to the epoch, which may end by being dropped."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._bar: Bar | None = None
        self._works = True
        self._process = os.getpid()

    def show(self) -> None:
        if not self._works:
            return
        try:
            if self._bar is None:
                self._bar = bar_for(self._counts)
            self._bar.show(self._counts)
        except Exception:  # stderr was closed, or a library has changed: no reason to end the training
            self._works = False

    def close(self) -> None:
        bar, self._bar = self._bar, None
        if bar is not None and os.getpid() == self._process:  # a forked worker has a copy
            with suppress(Exception):
                bar.close(self._counts)


def _nothing() -> None:
    """A loader that measures no steps."""


@undisturbed
def _end(screen: _Screen) -> None:
    screen.close()


def _length(loader: Any) -> int | None:
    try:
        return len(loader)
    except Exception:  # a stream
        return None
