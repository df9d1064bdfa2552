"""Two lists of measurements, compared. Only arithmetic.

Takes: what two sides measured, in the order of their turns, and the noise during each.
Gives: `Compared`: medians, how many times better, the spread; the noise of the noisier side.
Promises: a ratio means "times better", whether more or less is better; the spread is that of consecutive pairs, so a
machine that slows down half-way does not widen it.
Not its job: words (page), measuring (holding).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from feedline.diagnose.bench.machine_noise import BUSY


@dataclass(frozen=True)
class Compared:
    """Ours against theirs; None if nothing was measured."""

    ours: float | None
    theirs: float | None
    ratio: float | None
    lowest: float | None
    highest: float | None


def compared(ours: Sequence[float], theirs: Sequence[float], more: bool = True) -> Compared:
    """The medians, their ratio, and the lowest and highest ratio of a pair; `more`: is more better?

    >>> compared([10, 12, 11], [5, 4, 5.5])
    Compared(ours=11, theirs=5, ratio=2.2, lowest=2.0, highest=3.0)
    >>> compared([2.0], [6.0], more=False).ratio
    3.0
    >>> compared([2.0], [])
    Compared(ours=2.0, theirs=None, ratio=None, lowest=None, highest=None)
    """
    pairs = [_ratio(one, other, more) for one, other in zip(ours, theirs, strict=False)]
    middle, their_middle = _median(ours), _median(theirs)
    ratio = None if middle is None or their_middle is None else _ratio(middle, their_middle, more)
    return Compared(middle, their_middle, ratio, min(pairs, default=None), max(pairs, default=None))


def _ratio(ours: float, theirs: float, more: bool) -> float:
    return ours / theirs if more else theirs / ours


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def noise_of(*sides: Sequence[float | None]) -> float | None:
    """The noise of the noisier side; None if it is unknown.

    >>> noise_of([0.01, 0.5, 0.02], [0.0, None]), noise_of([None])
    (0.02, None)
    """
    known = [[share for share in side if share is not None] for side in sides]
    return max((statistics.median(shares) for shares in known if shares), default=None)


def is_noisy(noise: float | None) -> bool:
    """Is a ratio in doubt?

    >>> is_noisy(0.3), is_noisy(0.05), is_noisy(None)
    (True, False, False)
    """
    return noise is not None and noise > BUSY
