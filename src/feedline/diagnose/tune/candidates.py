"""The possible settings, what each costs the user, and the choice among those that were tried.

Takes: what the machine offers, what the user requests, trials. Gives: the largest number of workers worth trying;
whether a setting fits; the order from small to large; the speed that is enough, and the trial to recommend.
Promises: pure. The recommended setting is the smallest that is fast enough: it loses at most `LITTLE_WAITING` against
what the step allows or, if nothing gets that far, against the fastest.
Not its job: in which order they are tried (search), reading the machine's limits (tuner), words (verdict).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from feedline.diagnose.tune.trial import Trial
from feedline.observe.window import LITTLE_WAITING, Setting
from feedline.supervise.pace import HALF

MOST = 32
"""The most workers, whatever they wait for: with more, a loader in one process is rarely the right place to grow.
(max_workers overrides it.)"""
COMPUTES = 0.5
"""From this share of a worker's time on a CPU, the dataset is said to compute, and not to wait."""
SPARE = 2
"""How many more workers than CPUs are tried for a dataset that computes: some wait for their next task."""
COUNTS = 0.1
"""Below this share of waiting without workers, its CPU time says nothing."""
SEVERAL = 1.3
"""From this many busy CPUs without workers, a library is said to compute in several threads."""


@dataclass(frozen=True)
class Bounds:
    """The limits of a setting."""

    cpus: float
    memory: int | None = None
    """Bytes free; None: unknown."""
    kinds: tuple[str, ...] = ("process", "thread")
    max_workers: int | None = None
    """The user's limit."""
    gpu: bool = False
    """Is there a GPU, for which more batches may be worth having ahead…"""
    pins: bool = False
    """…and may batches be pinned for it?"""


@dataclass(frozen=True)
class TrialFacts:
    """What the trials with one worker and with none have shown."""

    work: float = 0.0
    """Seconds that a worker needs for one batch."""
    cpu_share: float = 1.0
    threaded: bool = False
    """Does a library compute in several threads, if it may?"""
    worker_memory: int = 0
    """Bytes of one worker process…"""
    batch_bytes: int = 0
    """…and of one batch."""

    @property
    def computes(self) -> bool:
        """Does it compute, or does it wait for a disk or a network?"""
        return self.cpu_share >= COMPUTES


def facts_of(one: Trial, none: Trial | None) -> TrialFacts:
    """From a trial with one worker and one without."""
    spent = one.spending
    ahead = one.setting.workers * one.setting.prefetch * one.batch_bytes
    # Without workers, loading computes only while the loop waits for it; if the loop hardly ever waits, the loop's own
    # work would be taken for loading.
    threaded = none is not None and none.waiting_share >= COUNTS and none.spending.cpu >= SEVERAL * none.waited > 0
    process = one.setting.kind == "process"
    memory = max(0, one.memory - ahead) if process else 0
    return TrialFacts(spent.work_per_batch, min(1.0, spent.cpu_share), threaded, memory, one.batch_bytes)


def most_workers(bounds: Bounds, facts: TrialFacts, kind: str) -> int:
    """The largest number of workers: more would not help, or not fit.

    >>> most_workers(Bounds(cpus=4), TrialFacts(cpu_share=1.0), "process")
    6
    >>> most_workers(Bounds(cpus=2), TrialFacts(cpu_share=0.1), "thread")
    22
    """
    if bounds.max_workers is not None:
        useful = bounds.max_workers
    else:
        useful = min(MOST, math.ceil(bounds.cpus / max(facts.cpu_share, 1e-3)) + SPARE)
    while useful > 1 and not fits(Setting(useful, kind=kind), bounds, facts):
        useful -= 1
    return max(1, useful)


def fits(setting: Setting, bounds: Bounds, facts: TrialFacts) -> bool:
    """Is there memory for it?"""
    own = facts.worker_memory if setting.kind == "process" else 0
    needed = setting.workers * (own + setting.prefetch * facts.batch_bytes)
    return bounds.memory is None or needed <= HALF * bounds.memory


def cost(setting: Setting, computes: bool) -> tuple[int, int, int, int, bool]:
    """The sort key of settings: fewest processes or threads, then least memory.

    A thread takes less memory than a process, and one process with two threads less than two processes. But a thread
    that computes competes with the training loop for Python's interpreter, and a consumer that only waits does not show
    that: then a process comes first.

    >>> settings = Setting(2), Setting(2, kind="thread"), Setting(3)
    >>> sorted(settings, key=lambda setting: cost(setting, computes=True)) == list(settings)
    True
    """
    dearer = ("process", "thread") if computes else ("thread", "process")
    place = dearer.index(setting.kind) if setting.workers else 0
    return setting.workers * setting.threads, place, setting.workers, setting.prefetch, setting.pinned


def grid(bounds: Bounds, facts: TrialFacts) -> list[Setting]:
    """All numbers and kinds of workers, from small to large: for an exhaustive search (benchmarks/tuning.py)."""
    counts = {kind: range(1, most_workers(bounds, facts, kind) + 1) for kind in bounds.kinds}
    found = [Setting(count, kind=kind) for kind in bounds.kinds for count in counts[kind]]
    return sorted([Setting(0, kind=bounds.kinds[0]), *found], key=lambda setting: cost(setting, facts.computes))


def enough(trials: Iterable[Trial], step: float) -> float:
    """Batches per second that are fast enough."""
    fastest = max((trial.batches_per_second for trial in trials), default=0.0)
    busy = (1 - LITTLE_WAITING) / step if step else math.inf
    return busy if fastest >= busy else (1 - LITTLE_WAITING) * fastest


def chosen(trials: Iterable[Trial], step: float, computes: bool) -> Trial | None:
    """The smallest setting that is fast enough; None if nothing could be measured."""
    measured = [trial for trial in trials if trial.windows and not trial.failed]
    least = enough(measured, step)
    fast = [trial for trial in measured if trial.batches_per_second >= least]
    return min(fast, key=lambda trial: cost(trial.setting, computes), default=None)
