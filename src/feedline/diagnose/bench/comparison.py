"""The result of a benchmark: plain data, and its arithmetic.

Takes: what the sides measured, in the order of their turns, and the noise during each. Gives: `Comparison`, made of one
`Contest` for each workload and number of workers, made of one `Measured` for each side; `Compared`: medians, how many
times better, the spread; the noise of the noisier side.
Promises: frozen; `to_json` gives only what JSON can write. A ratio means "times better", whether more or less is
better; the spread is that of consecutive pairs, so a machine that slows down half-way does not widen it. The
repository's benchmarks use the same arithmetic.
Not its job: measuring (bench_run), words and bars (page).
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from feedline.diagnose.bench.bench_subject import FEEDLINE, TORCH
from feedline.diagnose.bench.machine import BUSY

SAME = 0.02
"""Ratios this close to 1 are no difference: a loader compared with itself differs as much (docs/benchmarking.md)."""


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
    pairs = [one / other if more else other / one for one, other in zip(ours, theirs, strict=False)]
    middle, their_middle = (statistics.median(values) if values else None for values in (ours, theirs))
    ratio = None
    if middle is not None and their_middle is not None:
        ratio = middle / their_middle if more else their_middle / middle
    return Compared(middle, their_middle, ratio, min(pairs, default=None), max(pairs, default=None))


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


@dataclass(frozen=True)
class Measured:
    """One side of a contest: a speed for each of its turns, and the noise during it."""

    values: tuple[float, ...] = ()
    noise: tuple[float | None, ...] = ()
    failure: str = ""
    """Why it could not be measured, or not to the end."""


@dataclass(frozen=True)
class Contest:
    """One workload with one number of workers, with both loaders.

    >>> contest = Contest("mine", 2, "samples/s", Measured((300.0, 310.0)), Measured((100.0, 100.0)))
    >>> contest.compared.ratio, contest.faster, contest.noisy
    (3.05, 'feedline', False)
    """

    name: str
    num_workers: int | None
    """None if no side got far enough to report it."""
    metric: str
    feedline: Measured
    torch: Measured
    about: str = ""
    notes: tuple[str, ...] = ()

    @cached_property
    def compared(self) -> Compared:
        """feedline against torch."""
        return compared(self.feedline.values, self.torch.values)

    @property
    def noise(self) -> float | None:
        """The share of the machine that other programs used, for the noisier side."""
        return noise_of(self.feedline.noise, self.torch.noise)

    @property
    def noisy(self) -> bool:
        """Is the ratio uncertain because of the noise?"""
        return is_noisy(self.noise)

    @property
    def faster(self) -> str | None:
        """The side that is faster in every pair of turns, by more than a loader differs from itself; else None.

        >>> Contest("mine", 0, "samples/s", Measured((99.0, 104.0)), Measured((100.0, 100.0))).faster
        """
        found = self.compared
        if found.ratio is None or found.lowest is None or found.highest is None:
            return None
        if found.lowest > 1 and found.ratio > 1 + SAME:
            return FEEDLINE
        return TORCH if found.highest < 1 and found.ratio < 1 - SAME else None

    @property
    def failed(self) -> bool:
        """Could a side not be measured?"""
        return bool(self.feedline.failure or self.torch.failure)

    def to_json(self) -> dict[str, Any]:
        """All fields, with the values derived from them."""
        return {**asdict(self), **asdict(self.compared), "noisy": self.noisy, "faster": self.faster}


@dataclass(frozen=True)
class Comparison:
    """All contests of a run, and the facts needed to compare with them."""

    contests: tuple[Contest, ...]
    versions: Mapping[str, str] = field(default_factory=dict, hash=False)
    machine: Mapping[str, Any] = field(default_factory=dict, hash=False)
    date: str = ""
    seconds: float = 0
    """The minimum seconds of one measurement."""
    repeats: int = 0

    @property
    def failed(self) -> bool:
        """Could a side not be measured?"""
        return any(contest.failed for contest in self.contests)

    def to_json(self) -> dict[str, Any]:
        """As a dict of strings, numbers, lists and dicts."""
        return {**vars(self), "contests": [contest.to_json() for contest in self.contests]}
