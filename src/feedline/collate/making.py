"""One batch being made by a collator: where its memory comes from, whose arrays it is made of, what was counted.

Takes: `empty`, the samples' indices, a framework's `Arrays`. Gives: `Making`, which a collator writes its batch with.
Not its job: any way to collate (its neighbours), taking the count to the loader (workers).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from feedline.collate.default import field_name, sample_name
from feedline.datasets import Array, Empty
from feedline.errors import CollateError
from feedline.messages.outcome import Tally


class Arrays(Protocol):
    """What collators need to know of a framework's arrays. They themselves see NumPy arrays on the same bytes."""

    refusal: str
    """What to do about a tensor of a framework that is no array here."""

    def stack(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The framework's default collation."""

    def carry(self, value: Any) -> tuple[Array, Any] | None:
        """A value's bytes as a NumPy array, and its dtype in the framework's words; None if it is no array.

        The dtype is None, for any, if the value is a Python sequence with nothing in it ([], [[]]).
        """

    def common(self, dtypes: Sequence[Any]) -> Any:
        """The dtype that holds them all; TypeError if there is none."""

    def cast(self, array: Array, was: Any, dtype: Any) -> Array:
        """What `carry` gave, in another dtype."""

    def element(self, value: Any, dtype: Any) -> Any:
        """A single value of that dtype, as `carry` has it; ValueError if the dtype cannot hold it."""

    def wrap(self, array: Array, dtype: Any = None) -> Any:
        """The framework's array on the bytes of NumPy's; of NumPy's dtype unless one is named."""


class Making:
    """A batch under way. `own` copies what would otherwise share memory with the dataset."""

    def __init__(
        self,
        arrays: Arrays,
        empty: Empty = np.empty,
        names: Sequence[Any] | None = None,
        own: Callable[[Any], Any] = lambda tree: tree,
        tally: Tally | None = None,
    ) -> None:
        self.arrays = arrays
        self.empty = empty
        self.names = names
        self.own = own
        self.tally = Tally() if tally is None else tally

    def only(self, positions: Sequence[int]) -> Making:
        """The same batch without the samples at other positions."""
        names = None if self.names is None else [self.names[position] for position in positions]
        return Making(self.arrays, self.empty, names, self.own, self.tally)

    def differ(self, what: str, path: str, position: int, got: Any, wanted: Any, remedy: str) -> CollateError:
        """The error that samples do not fit together."""
        return CollateError(
            f"samples of one batch differ in {what}: {self.where(path, position)} has shape {got}, but that of the "
            f"first sample has shape {wanted}{remedy}"
        )

    def where(self, path: str, position: int) -> str:
        """A place in a sample, for messages."""
        return f"{field_name(path)} of {sample_name(self.names, position)}"
