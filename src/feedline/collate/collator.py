"""What every way to collate is: a small object that can be called, compared and pickled.

Takes: samples. Gives: a batch.
Promises: when called, it works as a collate_fn in any loader. feedline's workers use its second method, `into`: the
batch is written straight into the slot, and errors name field and dataset index.
Not its job: any specific way to collate.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from feedline.collate.array_kinds import NUMPY
from feedline.collate.making import Arrays, Making
from feedline.errors import CollateError


class Collator(ABC):
    """Makes a batch from samples, or from one field of them."""

    arrays: ClassVar[Arrays | None] = None
    """Whose arrays it returns; None: the loader's, or NumPy's if there is no loader."""

    def __call__(self, samples: Sequence[Any]) -> Any:
        """The batch, as any collate_fn returns it."""
        return self.make(samples, Making(self.arrays or NUMPY))

    def make(self, samples: Sequence[Any], making: Making) -> Any:
        """The batch of whole samples."""
        if len(samples) == 0:
            raise CollateError("there are no samples to make a batch of")
        return self.into(samples, making, "")

    def is_whole(self) -> bool:
        """Does it take whole samples, and not one field of them?"""
        return False

    @abstractmethod
    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The batch of the values at one place of the samples, in memory of `making.empty`."""
