"""What every way to collate is: a small object that may be called, compared, pickled.

Takes: samples. Gives: a batch.
Promises: called, it works as a collate_fn in any loader. feedline's workers take its second way, `into`: the batch is
written straight into the slot, and errors name field and dataset index.
Not its job: any particular way.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

from feedline.collate.array_kinds import NUMPY
from feedline.collate.making import Arrays, Making
from feedline.errors import CollateError


class Collator(ABC):
    """Makes a batch of samples, or of one field of them."""

    arrays: ClassVar[Arrays | None] = None
    """Whose arrays it gives; None for those of the loader, and NumPy's if there is no loader."""

    def __call__(self, samples: Sequence[Any]) -> Any:
        """The batch, as of any collate_fn."""
        return self.make(samples, Making(self.arrays or NUMPY))

    def make(self, samples: Sequence[Any], making: Making) -> Any:
        """The batch of whole samples."""
        if len(samples) == 0:
            raise CollateError("there are no samples to make a batch of")
        return self.into(samples, making, "")

    def is_whole(self) -> bool:
        """Is it about whole samples, and not for one field of them?"""
        return False

    @abstractmethod
    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The batch of the values at one place of the samples, in memory of `making.empty`."""
