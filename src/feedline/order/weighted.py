"""Draws in proportion to weights, for data whose classes are not equally frequent.

Takes: a weight for each index, or labels to make weights from. Gives: `WeightedRandomSampler`, `weights_from_labels`.
Promises: any number of weights; after set-up, a draw with replacement needs no memory that grows with their number.
Not its job: each class in each batch (stratified).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline.datasets import array_of, as_numbers, classes_of
from feedline.errors import OptionError, OptionTypeError
from feedline.errors.checks import check_flag, check_whole
from feedline.order.index_shuffle import order_key
from feedline.order.permutation import IntArray, Order
from feedline.order.sampler import Sampler
from feedline.order.weighted_draws import WeightedDraws, WeightTable


class WeightedRandomSampler(Sampler):
    """`num_samples` indices of [0, len(weights)), each drawn with a probability proportional to its weight.

    Weights need not sum to one; an index of weight 0 never comes. Without replacement, no index comes twice.

    >>> rare_and_common = WeightedRandomSampler([0.1, 0.9, 0.0], num_samples=1000, seed=7)
    >>> np.bincount(list(rare_and_common)).tolist()
    [108, 892]
    """

    def __init__(
        self,
        weights: Sequence[float] | npt.NDArray[Any],
        num_samples: int,
        replacement: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self.num_samples = check_whole("num_samples", num_samples, least=1)
        self.replacement = self.repeats = check_flag("replacement", replacement)
        self.weights = weights

    @property
    def weights(self) -> npt.NDArray[np.float64]:
        """The weights, read-only. Assign new ones (of any number), and the next epoch is drawn with them.

        >>> sampler = WeightedRandomSampler([1, 1, 1], num_samples=4, seed=7)
        >>> sampler.weights = sampler.weights * [0, 0, 1]
        >>> list(sampler)
        [2, 2, 2, 2]
        """
        # The view is made at each access: a pickled array would forget that it is read-only.
        found: npt.NDArray[np.float64] = self._weights.view()
        found.flags.writeable = False
        return found

    @weights.setter
    def weights(self, weights: Sequence[float] | npt.NDArray[Any]) -> None:
        array = _weight_array(weights)
        possible = int(np.count_nonzero(array))
        if not self.replacement and self.num_samples > possible:
            raise OptionError(
                f"num_samples={self.num_samples} is more than the {possible} weights that are not zero: "
                "without replacement each sample can be drawn only once; lower it or use replacement=True"
            )
        self._weights = array
        self._table = WeightTable(array) if self.replacement else None

    def __len__(self) -> int:
        return self.num_samples

    def order(self, seed: int, epoch: int) -> Order:
        key = order_key(seed, epoch)
        if self._table is not None:
            return WeightedDraws(self._table, self.num_samples, key)
        return _weighted_choice(self._weights, self.num_samples, key)


def weights_from_labels(labels: Any) -> npt.NDArray[np.float64]:
    """A weight for each sample: one over the size of its class, so that every class is drawn equally often.

    Labels may be an array, a tensor, or a list of anything hashable.

    >>> weights_from_labels(["common", "common", "rare", "common", "common"]).tolist()
    [0.25, 0.25, 1.0, 0.25, 0.25]
    """
    classes = classes_of(labels)
    return (1.0 / classes.sizes)[classes.codes]


def _weighted_choice(weights: npt.NDArray[np.float64], count: int, key: int) -> IntArray:
    """Draws without replacement: each index waits a random time, shorter for larger weights; the first are drawn."""
    possible = np.flatnonzero(weights)
    waits = np.random.Generator(np.random.SFC64(key)).standard_exponential(len(possible))
    with np.errstate(divide="ignore"):  # a wait of exactly 0 is possible, and correctly comes first
        arrivals = np.log(waits) - np.log(weights[possible])  # logarithms, because weights may differ widely
    first = np.argpartition(arrivals, count - 1)[:count]
    return possible[first[np.argsort(arrivals[first])]].astype(np.int64, copy=False)


def _weight_array(weights: object) -> npt.NDArray[np.float64]:
    given = as_numbers(array_of("weights", weights))
    if given.dtype.kind not in "biuf":
        raise OptionTypeError(f"weights must be a one-dimensional sequence of numbers, got {given.dtype}")
    array = given.astype(np.float64)  # a copy, which nobody else can change
    if array.ndim != 1:
        raise OptionError(f"weights must be one-dimensional, got shape {array.shape}")
    wrong = np.flatnonzero(~(np.isfinite(array) & (array >= 0)))
    if wrong.size:
        at = int(wrong[0])
        raise OptionError(f"weights must be finite and at least 0, but weights[{at}] is {array[at]}")
    if not array.any():
        raise OptionError(f"weights must have a positive sum, but none of the {array.size} is above 0")
    return array
