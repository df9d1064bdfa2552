"""One batch being made by a collator: where its memory comes from, whose arrays it uses, what was counted.

Takes: `empty`, the samples' indices, a framework's `Arrays`. Gives: `Making`, with which a collator writes its batch.
Not its job: any way to collate (the other files), sending the counts to the loader (workers).
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
    """What collators must know about a framework's arrays. Collators themselves see NumPy arrays on the same bytes."""

    refusal: str
    """The advice if a value is a tensor of a framework whose tensors are no arrays here."""

    def stack(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The framework's default collation."""

    def carry(self, value: Any) -> tuple[Array, Any] | None:
        """A value's bytes as a NumPy array, and its dtype in the framework's terms; None if it is no array.

        The dtype is None (any dtype) if the value is an empty Python sequence ([], [[]]).
        """

    def common(self, dtypes: Sequence[Any]) -> Any:
        """The dtype that can hold all of them; TypeError if there is none."""

    def cast(self, array: Array, was: Any, dtype: Any) -> Array:
        """An array from `carry`, in another dtype."""

    def element(self, value: Any, dtype: Any) -> Any:
        """A single value of that dtype, in the form that `carry` gives; ValueError if the dtype cannot hold it."""

    def wrap(self, array: Array, dtype: Any = None) -> Any:
        """The framework's array on the bytes of NumPy's; its dtype is NumPy's unless one is given."""


class Making:
    """A batch being made. `own` copies what would otherwise share memory with the dataset."""

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
        """The same batch, with only the samples at those positions."""
        names = None if self.names is None else [self.names[position] for position in positions]
        return Making(self.arrays, self.empty, names, self.own, self.tally)

    def differ(self, what: str, path: str, position: int, got: Any, wanted: Any, remedy: str) -> CollateError:
        """The error for samples that do not fit together."""
        return CollateError(
            f"samples of one batch differ in {what}: {self.where(path, position)} has shape {got}, but that of the "
            f"first sample has shape {wanted}{remedy}"
        )

    def where(self, path: str, position: int) -> str:
        """The name of a place in a sample, for messages."""
        return f"{field_name(path)} of {sample_name(self.names, position)}"
