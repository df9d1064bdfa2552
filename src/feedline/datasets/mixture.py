"""Several datasets by name, as one.

Takes: map-style datasets by name. Gives: `Mixture`, which knows where each begins and which sample is from which.
Promises: the same as ConcatDataset; the order of the names is the order of the samples.
Not its job: how often each is drawn from (order/mixing).
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from feedline.datasets.joining import ConcatDataset
from feedline.datasets.reading import Empty, Indexable, IntArray
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_flag


class Mixture(ConcatDataset[Any]):
    """Datasets by name, one after the other as in ConcatDataset; a `MixtureSampler` draws from them in proportion.

    With `with_source=True` a sample becomes a pair: the sample, and the number of its source (its place in `names`).

    >>> mixture = Mixture({"web": ["w0", "w1", "w2"], "code": ["c0", "c1"]})
    >>> len(mixture), mixture[3], mixture.source_of(3), mixture.lengths
    (5, 'c0', 'code', {'web': 3, 'code': 2})
    >>> Mixture({"web": ["w0"], "code": ["c0"]}, with_source=True)[1]
    ('c0', 1)
    """

    names: tuple[str, ...]

    def __init__(self, sources: Mapping[str, Indexable[Any]], *, with_source: bool = False) -> None:
        if not isinstance(sources, Mapping):
            raise OptionTypeError(f"sources must be a dict of datasets by name; got {type(sources).__name__}")
        super().__init__(sources.values())
        self.names = tuple(sources)
        self.with_source = check_flag("with_source", with_source)
        for name, length in self.lengths.items():
            if not length:
                raise OptionError(f"sources[{name!r}] is empty, so nothing can be drawn from it: leave it out")

    @property
    def lengths(self) -> dict[str, int]:
        """How many samples each source has."""
        sizes = (end - start for start, end in pairwise([0, *self.cumulative_sizes]))
        return dict(zip(self.names, sizes, strict=True))

    def source_of(self, index: int) -> str:
        """The name of the source that a sample is from."""
        return self.names[self._locate(index)[0]]

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        return (sample, self._locate(index)[0]) if self.with_source else sample

    def __getitems__(self, indices: list[int]) -> list[Any]:
        samples = super().__getitems__(indices)
        if not self.with_source:
            return samples
        return [(sample, self._locate(index)[0]) for sample, index in zip(samples, indices, strict=True)]

    def __getbatch__(self, indices: IntArray, empty: Empty) -> Any:
        batch = super().__getbatch__(indices, empty)
        if batch is NotImplemented or not self.with_source:
            return batch
        return batch, self._locate_many(indices)[1]

    def describe(self, index: int) -> str:
        """The name of its source, and what the source says about it."""
        return ", ".join(filter(None, (f"source {self.source_of(index)!r}", super().describe(index))))
