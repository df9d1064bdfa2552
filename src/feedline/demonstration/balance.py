"""Rare classes: the sampler that evens them out, and what a batch has of them with it and without.

Takes: the labels. Gives: the sampler for training, and counts. Promises: what is counted is the order that the loader
uses, not an expectation.
Not its job: loading (training).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from feedline import RandomSampler, WeightedRandomSampler, weights_from_labels
from feedline.demonstration.facts import Rarity
from feedline.demonstration.images import TIMES_RARER
from feedline.demonstration.shapes import CLASSES, RARE

BATCH, SEED = 64, 7
FEWEST_BATCHES = 4
"""With fewer there would be little before and after a stop in the middle."""


def balanced(labels: npt.NDArray[np.int64]) -> WeightedRandomSampler:
    """Each class equally often; whole batches only."""
    batches = max(FEWEST_BATCHES, len(labels) // BATCH)
    return WeightedRandomSampler(weights_from_labels(labels), num_samples=batches * BATCH, seed=SEED)


def rarity(labels: npt.NDArray[np.int64]) -> Rarity:
    """How often the first rare class comes in the first epoch, shuffled and balanced."""
    label = CLASSES.index(RARE[0])
    shuffled = _per_batch(labels, RandomSampler(labels, seed=SEED), label)
    weighted = _per_batch(labels, balanced(labels), label)
    return Rarity(
        name=RARE[0],
        times_rarer=TIMES_RARER,
        batch_size=BATCH,
        shuffled=float(shuffled.mean()),
        shuffled_none=float((shuffled == 0).mean()),
        weighted=float(weighted.mean()),
        weighted_none=float((weighted == 0).mean()),
    )


def drawn_in(labels: npt.NDArray[np.int64], epochs: int) -> set[int]:
    """The indices that training comes across in so many epochs."""
    sampler = balanced(labels)
    found: set[int] = set()
    for _ in range(epochs):  # each iteration by hand is the next epoch
        found.update(sampler)
    return found


def _per_batch(labels: npt.NDArray[np.int64], order: Iterable[int], label: int) -> npt.NDArray[np.int64]:
    """How many of that label each whole batch has."""
    drawn = labels[list(order)] == label
    whole = len(drawn) // BATCH * BATCH
    counts: npt.NDArray[np.int64] = drawn[:whole].reshape(-1, BATCH).sum(axis=1)
    return counts
