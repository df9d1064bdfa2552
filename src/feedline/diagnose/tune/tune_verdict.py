"""What the trials mean: the bottleneck, why this setting, and the whole outcome as plain data.

Takes: trials, the choice among them, facts. Gives: `Bottleneck`, a sentence, `TuneOutcome`.
Promises: pure and frozen; each rule is a few lines and names its threshold; `to_json` gives only what JSON can write.
Not its job: the choice (candidates), measuring (running), how it looks (page).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from feedline.diagnose.findings import as_plain
from feedline.diagnose.tune.candidates import TrialFacts
from feedline.diagnose.tune.trial import Trial
from feedline.observe.report.markup import number
from feedline.observe.report.report_verdict import percent
from feedline.observe.window import LITTLE_WAITING, Setting

STEP, COLLATE, TRANSFER, PYTHON, CPU, DISK, HANDING_OVER = (
    *("step", "collate", "transfer", "python", "cpu", "disk", "handing over"),
)
"""The names of bottlenecks, for scripts."""
MOST = 0.5
"""From this share of a time on, it is said to be the cause: the same as in a report's verdict."""
SCALES = 1.3
"""What several threads must gain over one; otherwise Python's lock is said to be held."""
FULL = 0.8
"""The share of the CPUs that counts as all of them: other programs need some."""
STARVED = 0.25
"""From this share of the workers' time without a CPU, speeds say more about other programs than about loading."""
FROM_STORAGE = 1 << 20
"""From this many bytes a second, reading is said to come from storage, not from a network or the system's cache."""


@dataclass(frozen=True)
class Bottleneck:
    """What limits the speed."""

    name: str
    """"step", "cpu", "python", "disk", "collate", "transfer" or "handing over"."""
    words: str
    remedy: str = ""


def bottleneck(trials: Sequence[Trial], best: Trial, facts: TrialFacts, cpus: float) -> Bottleneck:
    """The bottleneck of the chosen setting, or of the fastest if nothing is fast enough.

    >>> step = Trial(Setting(1), step=0.1)
    >>> bottleneck([step], step, TrialFacts(), 2).name
    'handing over'
    """
    if best.keeps_up:
        ready = f"Batches are ready when the step wants them: it waits {percent(best.waiting_share)} of the time."
        return Bottleneck(STEP, f"The step itself. {ready}", "nothing; a faster loader would not help.")
    spent, work = best.spending, best.spending.work
    waited = best.waited
    if waited and spent.transferring >= MOST * waited:
        share = percent(min(1.0, spent.transferring / waited))
        words = f"The transfer: {share} of the waiting is for batches on their way to pinned memory or the device."
        return Bottleneck(TRANSFER, words, "send less: images as uint8, float32 and not float64.")
    # If reading waits, one worker is no faster than none; that says nothing about several workers, if none were tried.
    least = 1 if facts.computes else 2
    if not best.setting.workers and any(trial.setting.workers >= least and trial.windows for trial in trials):
        words = "The main process: it makes a batch in less time than it takes to have one made by workers."
        return Bottleneck(CPU, words, "larger batches, if these are small; workers would only cost memory.")
    if best.setting.workers and waited and spent.delivering >= MOST * waited:
        share = percent(min(1.0, spent.delivering / waited))
        words = f"The transfer: {share} of the waiting is the main process unpacking batches that workers have made."
        return Bottleneck(TRANSFER, words, "batches of arrays need no unpacking; or larger batches.")
    if work and spent.sending >= MOST * work:
        words = f"The transfer: {percent(spent.sending / work)} of the workers' time is packing batches."
        return Bottleneck(TRANSFER, words, "let collate_fn return arrays or tensors, which are packed without a copy.")
    if work and spent.collating >= MOST * work:
        words = f"Collating: {percent(spent.collating / work)} of the work is making batches of samples."
        return Bottleneck(COLLATE, words, "a cheaper collate_fn; leave to the default what it can stack.")
    if best.setting.workers and best.utilisation < MOST:
        words = f"Handing over: the workers work only {percent(best.utilisation)} of their time, but the step waits."
        return Bottleneck(HANDING_OVER, words, "larger batches: these cost more to hand over than to make.")
    return _of_reading({trial.setting: trial for trial in trials}, best, facts, cpus)


def _of_reading(trials: dict[Setting, Trial], best: Trial, facts: TrialFacts, cpus: float) -> Bottleneck:
    if not facts.computes:
        return _waiting(best, facts)
    gain = _gain_of_threads(trials)
    if gain is not None and gain < SCALES:
        words = (
            f"Python: reading a sample computes {percent(facts.cpu_share)} of its time and holds the interpreter's "
            f"lock, so threads gain nothing ({gain:.2g} times the speed of none)"
        )
        full = f", and the {number(cpus)} CPUs are in use" if best.cpus_used >= FULL * cpus else ""
        remedy = (
            "let NumPy, Pillow or torch do in one call what is a loop now; store samples nearer to their final form."
        )
        return Bottleneck(PYTHON, f"{words}{full}.", remedy)
    used = f"loading uses {best.cpus_used:.1f} of {number(cpus)}"
    words = f"The CPU: reading a sample computes {percent(facts.cpu_share)} of its time; {used}."
    remedy = "cheaper samples (smaller or decoded beforehand, a faster decoder), or more CPUs."
    return Bottleneck(CPU, words, remedy)


def _waiting(best: Trial, facts: TrialFacts) -> Bottleneck:
    spent, idle = best.spending, percent(1 - facts.cpu_share)
    storage = spent.read / spent.seconds if spent.seconds else 0.0
    if storage >= FROM_STORAGE:
        words = f"The disk: reading a sample waits {idle} of its time; {storage / 1e6:,.0f} MB/s come from storage."
        return Bottleneck(DISK, words, "faster storage, fewer and larger files, or more workers if it can take them.")
    words = f"Disk or network: reading a sample waits {idle} of its time, hardly for storage of this machine."
    remedy = "more requests at once (workers, or several within __getitems__), or a copy nearer by."
    return Bottleneck(DISK, words, remedy)


def _gain_of_threads(trials: dict[Setting, Trial]) -> float | None:
    """The speed of several threads relative to one, without the step: computed from the waiting."""
    none = next((trial for setting, trial in trials.items() if not setting.workers and trial.windows), None)
    several = [trial for each, trial in trials.items() if each.kind == "thread" and each.workers > 1 and trial.windows]
    if none is None or not several:
        return None
    # Not trials in which the step was slower, or other programs had the CPUs: neither says anything about the lock.
    made = [
        trial
        for trial in several
        if trial.spending.batches and not trial.keeps_up and trial.spending.queued_share < STARVED
    ]
    rates = [trial.batches_per_second for trial in made]
    alone = none.spending.work_per_batch
    return max(rates) * alone if rates and alone else None


def why(best: Trial, trials: Iterable[Trial], step: float) -> str:
    """Why this setting."""
    rate, fastest = best.batches_per_second, max(trial.batches_per_second for trial in trials)
    if best.keeps_up:
        return (
            f"The smallest setting that keeps a step of {number(1e3 * step)} ms busy: it waits "
            f"{percent(best.waiting_share)} of its time (up to {percent(LITTLE_WAITING)} counts as busy)."
        )
    near = "The fastest" if rate >= fastest else f"The smallest within {percent(LITTLE_WAITING)} of the fastest"
    if not step:
        return f"{near}: {number(rate)} batches a second."
    return (
        f"Nothing keeps a step of {number(1e3 * step)} ms busy. {near}: {number(rate)} batches a second where the step "
        f"could take {number(1 / step)}: it is too slow by {percent(1 - rate * step)}, and the step waits for that "
        "share of its time."
    )


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
        found = {**vars(self), "step_seconds": self.step, "bottleneck": vars(self.bottleneck)}
        found |= {"best": self.best.to_json(), "trials": [trial.to_json() for trial in self.trials]}
        del found["step"]
        plain: dict[str, Any] = as_plain(found)
        return plain
