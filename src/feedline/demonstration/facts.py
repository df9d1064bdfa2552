"""What the demo has found out, as plain data.

Takes: nothing. Gives: `Facts`, for wording and for --json. Promises: nothing in them that JSON cannot write.
Not its job: finding out (balance, training), words (wording).
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Rarity:
    """How many of a batch are of a rare class, on average, and the share of batches that have none."""

    name: str
    times_rarer: int
    batch_size: int
    shuffled: float
    shuffled_none: float
    weighted: float
    weighted_none: float


@dataclass(frozen=True)
class Images:
    """What there is to learn from."""

    drawn_now: bool
    training: int
    validation: int
    classes: list[str]
    rare: list[str]
    damaged: list[int]
    """Indices of the training images whose files were cut short."""


@dataclass(frozen=True)
class Epoch:
    """How an epoch went."""

    number: int
    """From 1 on, as people count."""
    num_workers: int
    images_per_second: float
    waited: float
    """The share of the time that training waited for batches."""
    loss: float
    accuracy: float
    validation: float


@dataclass(frozen=True)
class Resumption:
    """A stop, and how it went on."""

    epoch: int
    batches: int
    before: int
    """How many of them came before the stop."""
    workers_before: int
    workers_after: int
    state: str
    exact: bool
    """Whether it went on as if nothing had happened."""
    different: list[int]
    """The batches that were not those of a loader that was never stopped, counted from 1."""


@dataclass(frozen=True)
class Unreadable:
    """A file that could not be read, and was left out."""

    index: int
    path: str
    error: str
    times: int


@dataclass(frozen=True)
class Trained:
    """What came of the training."""

    epochs: list[Epoch]
    resumption: Resumption
    unreadable: list[Unreadable]
    images: int
    steps: int
    seconds: float
    images_per_second: float
    waited: float
    accuracy: float
    rare_accuracy: float
    """Of the validation images; of those of the rare classes."""


@dataclass(frozen=True)
class Facts:
    """All of it."""

    folder: str
    report: str
    images: Images
    rarity: Rarity
    trained: Trained
    seconds: float
    problems: list[str] = field(default_factory=list)
