"""The choice among trials: the smallest setting that is fast enough.

Takes: trials. Gives: the rate that is enough, and the trial to recommend.
Promises: pure. Fast enough means: it loses at most `LITTLE` against what the step allows or, if nothing gets that far,
against the fastest. Not its job: words (verdict).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from feedline.diagnose.tune.candidates import cost
from feedline.diagnose.tune.trial import Trial

LITTLE = 0.05
"""A share of waiting that is not worth a worker; as in a report's verdict (observe/report/report_verdict.py)."""


def enough(trials: Iterable[Trial], step: float) -> float:
    """Batches per second that are fast enough."""
    fastest = max((trial.batches_per_second for trial in trials), default=0.0)
    busy = (1 - LITTLE) / step if step else math.inf
    return busy if fastest >= busy else (1 - LITTLE) * fastest


def keeps_up(trial: Trial) -> bool:
    """Does it keep the step busy? Without a step the answer is no."""
    return trial.step > 0 and trial.batches_per_second >= (1 - LITTLE) / trial.step


def chosen(trials: Iterable[Trial], step: float, computes: bool) -> Trial | None:
    """The smallest setting that is fast enough; None if nothing could be measured."""
    measured = [trial for trial in trials if trial.windows and not trial.failed]
    least = enough(measured, step)
    fast = [trial for trial in measured if trial.batches_per_second >= least]
    return min(fast, key=lambda trial: cost(trial.setting, computes), default=None)
