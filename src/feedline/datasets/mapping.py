"""A dataset whose samples are passed through a function.

Takes: a map-style dataset, a function of a sample. Gives: `MappedDataset`.
Promises: the function is called each time a sample is read, with a sample of its own; what it draws from
`feedline.rng()` belongs to that sample.
Not its job: keeping results (sources.samples).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from feedline.datasets.joining import Dataset, length_of
from feedline.datasets.reading import Indexable, described, position, read_samples, reads_many
from feedline.errors.checks import check_function
from feedline.randomness.rng import enter_one_of


class MappedDataset(Dataset[Any]):
    """Samples of a dataset, each passed through `function` whenever it is read.

    >>> doubled = MappedDataset([1, 2, 3], lambda sample: sample * 2)
    >>> len(doubled), doubled[1], doubled.__getitems__([0, 2])
    (3, 4, [2, 6])
    """

    def __init__(self, dataset: Indexable[Any], function: Callable[[Any], Any]) -> None:
        self._length = length_of(dataset, "dataset")
        self.dataset = dataset
        check_function("function", function)
        self.function = function

    def __len__(self) -> int:
        return self._length

    def _reads_many(self) -> bool:
        return reads_many(self.dataset)

    def __getitem__(self, index: int) -> Any:
        return self.function(self.dataset[position(index, self._length, "MappedDataset")])

    def __getitems__(self, indices: list[int]) -> list[Any]:
        samples = read_samples(self.dataset, [position(index, self._length, "MappedDataset") for index in indices])
        found = []
        for place, sample in enumerate(samples):
            enter_one_of(place, indices)
            found.append(self.function(sample))
        return found

    def describe(self, index: int) -> str:
        """What the dataset says about its sample."""
        return described(self.dataset, index)
