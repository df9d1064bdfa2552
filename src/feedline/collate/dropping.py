"""Samples that are missing or not usable are left out of their batch.

Takes: samples, some of them None. Gives: the batch of the others.
Promises: samples left out are counted; if nothing is left of a batch, feedline's loaders skip it, and elsewhere it
is an error.
Not its job: samples that raise (`on_error`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

from feedline.collate.collator import Collator
from feedline.collate.composing import stack, way
from feedline.collate.default import sample_name
from feedline.collate.making import Making
from feedline.errors import CollateError, add_note
from feedline.errors.checks import check_function
from feedline.errors.counting import counted


class NothingLeft(CollateError):
    """None of a batch's samples is valid."""


@dataclass(frozen=True)
class drop_invalid(Collator):
    """Leave out samples that are None, or for which `valid` returns False; collate the others by `inner`.

    A batch with no samples left is not delivered. `loader.stats().collate` counts both.

    >>> from feedline.collate import keep
    >>> drop_invalid()([1, None, 3])
    array([1, 3])
    >>> drop_invalid({"x": keep}, valid=lambda sample: sample["x"])([{"x": [1]}, {"x": []}])
    {'x': [[1]]}
    """

    inner: Any = stack
    _: KW_ONLY
    valid: Callable[[Any], Any] | None = None
    _inner: Collator = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_function("valid", self.valid)
        object.__setattr__(self, "_inner", way(self.inner, "collate"))

    def __hash__(self) -> int:
        return hash((type(self), self.valid))

    def is_whole(self) -> bool:
        """Always True: other fields would keep the samples that this one leaves out."""
        return True

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The batch of the samples that are left."""
        kept = [position for position, value in enumerate(values) if self._is_valid(value, making, position)]
        if len(kept) == len(values):
            return self._inner.into(values, making, path)
        making.tally.dropped += len(values) - len(kept)
        if not kept:
            making.tally.emptied = 1
            raise NothingLeft(
                f"none of the {counted(len(values), 'sample')} of this batch is valid, so no batch can be made"
            )
        return self._inner.into([values[position] for position in kept], making.only(kept), path)

    def _is_valid(self, value: Any, making: Making, position: int) -> bool:
        if value is None or self.valid is None:
            return value is not None
        try:
            return bool(self.valid(value))
        except Exception as error:
            add_note(error, f"feedline: raised by drop_invalid(valid=…) for {sample_name(making.names, position)}")
            raise
