"""The result of a benchmark: plain data.

Takes: what the sides measured. Gives: `Comparison`, made of one `Contest` for each workload and number of workers, made
of one `Measured` for each side.
Promises: frozen; `to_json` gives only what JSON can write; the same arithmetic as the repository's benchmarks.
Not its job: measuring (holding), words (page), bars (picture).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from feedline.diagnose.bench.bench_subject import FEEDLINE, TORCH
from feedline.diagnose.bench.comparing import Compared, compared, is_noisy, noise_of

SAME = 0.02
"""Ratios this close to 1 are no difference: a loader compared with itself differs as much (README, "Measured")."""


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
        return {
            "date": self.date,
            "versions": dict(self.versions),
            "machine": dict(self.machine),
            "seconds": self.seconds,
            "repeats": self.repeats,
            "contests": [contest.to_json() for contest in self.contests],
        }
