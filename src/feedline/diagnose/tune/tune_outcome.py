"""The outcome of tuning: plain data.

Takes: trials and the verdict on them. Gives: `TuneOutcome`.
Promises: frozen; `to_json` gives only what JSON can write. Not its job: how it looks (picture, page).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from feedline.diagnose.findings import as_plain
from feedline.diagnose.tune.trial import Trial
from feedline.diagnose.tune.tune_verdict import Bottleneck


@dataclass(frozen=True)
class TuneOutcome:
    """What was tried, and what follows from it."""

    name: str
    """The dataset's class."""
    step: float
    """Seconds of the consumer's step; 0: as many batches as possible were requested."""
    trials: tuple[Trial, ...]
    """Every setting that was tried, from small to large."""
    best: Trial
    """The recommended trial."""
    keeps_up: bool
    """Does it keep the step busy?"""
    why: str
    bottleneck: Bottleneck
    code: str
    """Lines to paste."""
    seconds: float
    """How long it took."""
    finished: bool
    """Was there time for everything that should have been tried?"""
    cpus: float
    """The CPUs that could be used."""
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As strings, numbers, lists and dicts."""
        found = {
            "name": self.name,
            "step_seconds": self.step,
            "best": self.best.to_json(),
            "keeps_up": self.keeps_up,
            "why": self.why,
            "bottleneck": vars(self.bottleneck),
            "code": self.code,
            "seconds": self.seconds,
            "finished": self.finished,
            "cpus": self.cpus,
            "notes": self.notes,
            "trials": [trial.to_json() for trial in self.trials],
        }
        plain_: dict[str, Any] = as_plain(found)
        return plain_
