"""One source of a mixture of streams, read pass after pass.

Takes: an iterable, its name and number. Gives: its elements; where it is, as plain data.
Promises: it is opened when it is first read, and again for each pass. An iterator with `state_dict` and
`load_state_dict` continues at its state. Any other is read again from the beginning of its pass, and compared with
what was read. What an element draws from `rng()` follows from its source, pass and number.
Not its job: which source is read when, and what its end means (mixture_stream).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from types import GeneratorType
from typing import Any

from feedline.datasets.checksum import seen
from feedline.errors import SourceError, StateError
from feedline.errors.foreign import ask
from feedline.machine.worker_info import count_reads
from feedline.randomness.rng import another_pass, enter_element_of

State = dict[str, Any]


class MixedSource:
    """Where the mixture is in one of its sources."""

    def __init__(self, name: str, number: int, source: Any) -> None:
        self.name = name
        self._number = number
        self._source = source
        self._elements: Iterator[Any] | None = None
        self._seen: int | None = 0
        self._is_over = False  # is it a generator that has raised?
        self.passes = 0
        """How often it has come to its end."""
        self.read = 0
        """How many elements of this pass were read, including those that raised."""
        self.samples = 0
        """How many elements it gave in all passes."""
        self.asked: bool | None = None
        """Has it read the number of workers when it was opened, to pick a share? None: it was not opened yet."""

    def take(self) -> Any:
        """Its next element; StopIteration at the end of the pass."""
        element = self._next(self._opened())
        self.samples += 1
        return element

    def begin_again(self) -> None:
        """The next element is the first of another pass."""
        self.passes += 1
        self.read, self._seen, self._elements = 0, 0, None

    def let_go(self) -> None:
        """Nothing more will be read of it."""
        self._elements = None

    def _opened(self) -> Iterator[Any]:
        if self._elements is None:
            before = count_reads()
            if self.passes:
                with another_pass(self._number, self.passes):
                    self._elements = iter(self._source)
            else:
                self._elements = iter(self._source)
            self.asked = count_reads() > before
            if _is_stateful(self._elements):
                self._seen = None  # it need not be compared
        return self._elements

    def _next(self, elements: Iterator[Any]) -> Any:
        if self._is_over:
            self._is_over = False
            raise SourceError(
                f"source {self.name!r} has failed, and its __iter__ is a generator, which Python ends at its first "
                "error: what came after that element is lost. Catch the error inside __iter__, or return an iterator "
                "that can go on"
            )
        enter_element_of(self._number, self.passes, self.read)
        before = 0 if self.read else count_reads()
        try:
            element = next(elements)
        except StopIteration:
            raise
        except Exception:
            self.read += 1
            self._is_over = isinstance(elements, GeneratorType)
            raise
        if not self.read:  # a generator's code runs only now
            self.asked = self.asked or count_reads() > before
        if self._seen is not None:  # every element: 1 to 15 µs each, only where there is no state
            self._seen = seen(element, self._seen)
        self.read += 1
        return element

    def state(self) -> State:
        """Where it is."""
        found: State = {"passes": self.passes, "read": self.read, "samples": self.samples, "seen": self._seen}
        if self._elements is not None and _is_stateful(self._elements):
            with suppress(Exception):  # then it is read again, as if it had no state
                found["state"] = self._elements.state_dict()  # type: ignore[attr-defined]
        return found

    def load(self, state: State, goes_on: bool) -> None:
        """Continue there; if it does not go on, only its counts matter."""
        self.passes, self.samples, self.read, self._seen = state["passes"], state["samples"], 0, 0
        self._elements = None
        if not goes_on:
            return
        if "state" in state:
            elements: Any = self._opened()
            if not _is_stateful(elements):
                raise StateError(
                    f"the state has the state of the iterator of source {self.name!r}, whose iterator has no "
                    "load_state_dict now: continue with the code that saved it"
                )
            elements.load_state_dict(state["state"])
            self.read, self._seen = state["read"], state["seen"]
            return
        self._read_again(state["read"])
        if None not in (self._seen, state["seen"]) and self._seen != state["seen"]:
            raise StateError(
                f"source {self.name!r} has no state, so it was read again, and gave other elements than before: some "
                "would be missing and others come twice. Make its order depend on nothing but a seed, or give the "
                "object that its __iter__ returns a state_dict() and a load_state_dict(state)"
            )

    def _read_again(self, count: int) -> None:
        while self.read < count:
            try:
                self._next(self._opened())
            except StopIteration:
                raise StateError(
                    f"source {self.name!r} has no state, so it was read again, and gave {self.read} elements, where "
                    f"there were {count} when the state was saved"
                ) from None
            except Exception:  # it failed then, too, and was reported
                self._is_over = False


def _is_stateful(elements: Any) -> bool:
    return callable(ask(elements, "state_dict")) and callable(ask(elements, "load_state_dict"))
