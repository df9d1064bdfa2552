"""The global generators around each task: seeded by every worker, and given back to the user where they are borrowed.

Takes: the moments at which a task begins and ends, and its 64-bit number. Gives: generators that a worker process owns,
and generators that are borrowed while a batch is made in the user's own thread.
Promises: a batch draws the same whoever makes it; the user's own random numbers continue as if nothing had been drawn,
also after an error or Ctrl-C.
Not its job: how each generator is seeded, saved and restored (global_generators), worker threads (redirection).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable
from threading import get_ident
from typing import Any, Protocol

from feedline.randomness.global_generators import (
    ALL,
    GLOBAL_SOURCES,
    GeneratorSource,
    borrow_all,
    restore_all,
    words_of_main_thread,
)
from feedline.randomness.redirection import SampleGenerators, VisitingGenerators, being_read


class TaskGenerators(Protocol):
    """Seeds the generators for each task."""

    def open(self) -> None: ...
    def enter(self, value: int) -> None: ...
    def draw(self) -> Any:
        """A number from each generator. It is another number if anything was drawn since the generators were seeded."""

    def leave(self) -> None: ...
    def close(self) -> None: ...


class OwnedGenerators:
    """For a worker process: the global generators are its own, so they are seeded and not restored."""

    def __init__(self, sources: Iterable[GeneratorSource] = GLOBAL_SOURCES) -> None:
        self._sources = tuple(sources)

    def open(self) -> None:
        pass

    def enter(self, value: int) -> None:
        words_of_main_thread.seed(value & 0xFFFFFFFF)
        for source in self._sources:
            source.seed(value, words_of_main_thread)

    def draw(self) -> Any:
        return [source.draw() for source in self._sources]

    def leave(self) -> None:
        pass

    def close(self) -> None:
        pass


class BorrowedGenerators:
    """For loading in the user's own loop: the user's random numbers continue as if nothing had been drawn.

    In the main thread the global generators are borrowed. Any other thread gets its own generators during a task
    (VisitingGenerators): borrowing would change the draws of the main thread and of other loops.
    """

    def __init__(self, sources: Iterable[GeneratorSource] = GLOBAL_SOURCES) -> None:
        self._sources = sources if sources is GLOBAL_SOURCES else tuple(sources)
        self._saved: list[Any] | None = None
        self._visiting: VisitingGenerators | None = None
        self._visits = False
        self._outer: SampleGenerators | None = None

    def open(self) -> None:
        pass

    def enter(self, value: int) -> None:
        outer = being_read.get()
        if outer is not None:  # this loader is read inside a sample of another loader
            self._outer = outer  # kept if the task is entered again, to be read in another way
            being_read.set(None)
        if get_ident() != _main:
            self._visit(value)
            return
        words_of_main_thread.seed(value & 0xFFFFFFFF)
        if self._saved is not None:  # it is seeded again, to be read in another way
            for source in self._sources:
                source.seed(value, words_of_main_thread)
            return
        self._visits, self._saved = False, []
        if self._sources is not GLOBAL_SOURCES or not borrow_all(value, self._saved):
            for source in self._sources:
                source.borrow(value, words_of_main_thread, self._saved)

    def _visit(self, value: int) -> None:
        if self._visiting is None:
            self._visiting = VisitingGenerators()
            self._visiting.open()
        self._visits = True
        self._visiting.enter(value)

    def draw(self) -> Any:
        if self._visits and self._visiting is not None:
            return self._visiting.draw()
        return [source.draw() for source in self._sources]

    def leave(self) -> None:
        """Put all back; once more, if Ctrl-C has come meanwhile."""
        saved = self._saved
        if saved is not None:
            if saved and saved[0] is ALL:
                restore_all(saved[1])
            else:  # Ctrl-C may have come before all were saved
                for source, state in zip(self._sources, saved, strict=False):
                    source.restore(state)
            self._saved = None
        elif self._visits and self._visiting is not None:
            self._visiting.leave()
        if self._outer is not None:
            being_read.set(self._outer)
            self._outer = None

    def close(self) -> None:
        if self._visiting is not None:  # it stays: another thread may be in the middle of a task, and is to leave it
            self._visiting.close()


_main = threading.main_thread().ident
"""The main thread; in a forked child, the thread that called fork."""


def _note_main() -> None:
    global _main
    _main = get_ident()


os.register_at_fork(after_in_child=_note_main)
