"""Which settings are tried, in which order, within a time limit.

Takes: a way to measure a setting, bounds, the step. Gives: trials.
Promises: no trial begins when the time is over, and none gets more than what is left; no setting that does not fit.
If speed grows with workers up to a limit, and there is enough time, `candidates.chosen` picks the smallest setting
that is fast enough (tests/diagnose/test_tune_search.py: on simulated machines, with noise).
Not its job: measuring (running), the choice (candidates), words (verdict).

One worker and none come first: they show what a batch costs, and whether the dataset computes or waits. Settings that
cannot be enough after that are not tried. Then each kind of workers is doubled until it is enough or gains nothing;
the range between the last that was too slow and the first that was not is halved. Where there is a GPU, all this is
done again with pinned memory, unless the step is kept busy without. Then come more batches ahead, more threads per
worker, and the finalists once more in turns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from feedline.diagnose.tune.candidates import Bounds, TrialFacts, chosen, cost, enough, facts_of, fits, most_workers
from feedline.diagnose.tune.trial import Trial
from feedline.observe.window import Setting
from feedline.supervise.pace import MOST_AHEAD

SHARE = 0.03
"""The largest share of the time for one trial: the longest searches have about thirty."""
LONGEST = 3.0
"""Seconds: a longer trial gains little (benchmarks/tuning.py: its windows agree within 3 % long before)."""
SHORTEST = 0.4
"""Seconds: two windows."""
GAIN = 1.05
"""What twice the workers must gain; otherwise there are enough of them."""
HOPELESS = 0.7
"""The share of the workers that a step needs, as estimated from one worker: fewer are not tried."""
BUSY = 0.9
"""Workers that work this share of their time gain nothing from more batches ahead."""
NEAR = 0.85
"""The share of what is enough: a smaller setting that reached it is tried once more."""
GPU_AHEAD = 32
"""The largest prefetch_factor that is tried for a GPU, if it fits into memory. Judgement: there was no GPU."""
ROUNDS, NOISY_ROUNDS = 2, 6
"""Rounds in which the finalists are measured again; more if their windows do not agree."""
NOISY = 0.06
"""A larger spread of the windows than a choice tolerates (observe.window.LITTLE_WAITING)."""

Measure = Callable[[Setting, float], Trial]
"""Measures a setting in at most that many seconds, plus its start."""


@dataclass
class Search:
    """One search."""

    measure: Measure
    remaining: Callable[[], float]
    """Seconds that are left."""
    bounds: Bounds
    step: float
    trials: dict[Setting, Trial] = field(default_factory=dict)
    facts: TrialFacts = field(default_factory=TrialFacts)
    finished: bool = True
    """Was there time for everything that should have been tried?"""
    skipped: int = 0
    """Settings that one worker's speed showed to be too slow."""

    def run(self) -> None:
        """Try what is worth trying."""
        self._budget = self.remaining()
        self._pinned = False
        if not self._begin():
            return
        self._try_workers()
        self._try_pinned()
        self._try_threads()
        self._try_prefetch()
        self._repeat()

    @property
    def best(self) -> Trial | None:
        """The choice among what has been tried."""
        return chosen(self.trials.values(), self.step, self.facts.computes)

    def _try(self, setting: Setting, again: bool = False) -> Trial | None:
        """Measure it, unless it has been measured, does not fit, or the time is over."""
        known = self.trials.get(setting)
        if known is not None and not again:
            return known
        if not fits(setting, self.bounds, self.facts):
            return None
        left = self.remaining()
        if left < SHORTEST + self._start_of(setting):
            self.finished = self.finished and again  # a finalist that is not measured again leaves no gap
            return None
        trial = self.measure(setting, min(left, max(SHORTEST, min(LONGEST, SHARE * self._budget))))
        self.trials[setting] = trial if known is None else known.plus(trial)
        return self.trials[setting]

    def _start_of(self, setting: Setting) -> float:
        """Seconds to the first batch, estimated from others of the same kind."""
        same = [trial for each, trial in self.trials.items() if each.kind == setting.kind and each.workers]
        return max((trial.first_batch for trial in same), default=0.0) if setting.workers else self.facts.work

    def _begin(self) -> bool:
        one = None
        for kind in self.bounds.kinds:
            one = self._try(Setting(1, kind=kind))
            if one is not None and not one.failed:
                break
        if one is None or one.failed:
            return False
        self.facts = facts_of(one, None)
        none = self._try(Setting(0, kind=one.setting.kind))
        self.facts = facts_of(one, none)
        return True

    def _kinds(self) -> list[str]:
        """The kinds that work, the cheaper first."""
        ones = {kind: self.trials.get(Setting(1, kind=kind)) for kind in self.bounds.kinds}
        working = [kind for kind, one in ones.items() if one is None or not one.failed]
        return sorted(working, key=lambda kind: cost(Setting(1, kind=kind), self.facts.computes))

    def _is_enough(self, trial: Trial) -> bool:
        return trial.batches_per_second >= enough(self.trials.values(), self.step)

    def _settled(self) -> bool:
        return self.best is not None and self.best.keeps_up

    # More workers

    def _try_workers(self) -> None:
        for kind in self._kinds():
            self._climb(kind)
            self._halve(kind)

    def _with(self, workers: int, kind: str) -> Setting:
        return Setting(workers, kind=kind, pinned=self._pinned)

    def _climb(self, kind: str) -> None:
        """Increase the workers until the step is kept busy or nothing is gained."""
        most = most_workers(self.bounds, self.facts, kind)
        if self._settled():  # only smaller settings matter now, and the largest of those decides for all
            most = min(most, self._largest_cheaper(kind))
            workers = most
        else:
            workers = self._first_guess(most)
        before, flat = 0.0, 0
        while workers >= 1:
            trial = self._try(self._with(workers, kind))
            if trial is None or trial.failed or workers >= most or trial.keeps_up:
                return
            rate = trial.batches_per_second
            flat = flat + 1 if rate < GAIN * before else 0
            if flat == 2 or (flat and trial.cpus_used >= BUSY * self.bounds.cpus):
                return
            before, workers = max(before, rate), min(most, 2 * workers)

    def _first_guess(self, most: int) -> int:
        """The first number to try, estimated from one worker."""
        needed = HOPELESS * self.facts.work / self.step if self.step else 0.0
        guess = max(1, min(most, int(needed)))
        self.skipped += guess - 1
        return guess

    def _largest_cheaper(self, kind: str) -> int:
        best = self.best
        assert best is not None
        workers = best.setting.workers * best.setting.threads
        while workers and not self._is_cheaper(self._with(workers, kind)):
            workers -= 1
        return workers

    def _is_cheaper(self, setting: Setting) -> bool:
        """Is it cheaper than the choice so far?"""
        computes = self.facts.computes
        return self.best is not None and cost(setting, computes) < cost(self.best.setting, computes)

    def _halve(self, kind: str) -> None:
        """Search between what is too slow and what is not."""
        while True:
            plain = {
                each.workers: trial for each, trial in self.trials.items() if each == self._with(each.workers, kind)
            }
            fast = [count for count, trial in plain.items() if count and self._is_enough(trial)]
            if not fast:
                return
            slow = [count for count, trial in plain.items() if count < min(fast)]
            low = max(slow, default=0)
            if min(fast) - low < 2:
                return
            middle = self._with((low + min(fast)) // 2, kind)
            if not self._is_cheaper(middle) or self._try(middle) is None:
                return

    # Other things than more workers

    def _try_pinned(self) -> None:
        """Pinned memory, from which copies to a GPU take less time, and then fewer or more workers may be right.

        As long as the step is not kept busy, that it gains nothing with the best number of workers does not say that it
        would gain nothing with another: more of them may have waited for slow copies.
        """
        best = self.best
        if best is None or not self.bounds.pins:
            return
        trial = self._try(best.setting._replace(pinned=True))
        if trial is None or trial.failed:
            return
        if best.keeps_up and trial.batches_per_second < GAIN * best.batches_per_second:
            return
        self._pinned = True
        self._try(self._with(0, best.setting.kind))
        self._try_workers()

    def _try_threads(self) -> None:
        """More threads in fewer processes; only if a library uses them."""
        if not self.facts.threaded or "process" not in self.bounds.kinds:
            return
        threads = 2
        while threads <= self.bounds.cpus:
            workers = max(1, int(self.bounds.cpus // threads))
            while workers and self._more_threads_do(Setting(workers, kind="process", threads=threads)):
                workers //= 2
            threads *= 2

    def _more_threads_do(self, setting: Setting) -> bool:
        """Is it fast enough, so that fewer workers may be? A setting that would not be chosen anyway is skipped."""
        if self._settled() and not self._is_cheaper(setting):
            return True
        trial = self._try(setting)
        return trial is not None and not trial.failed and self._is_enough(trial)

    def _try_prefetch(self) -> None:
        """More batches ahead, if workers had time for them: one worker fewer might do, or the fastest become faster."""
        best = self.best
        if best is None or not best.setting.workers:
            return
        setting, most = best.setting, GPU_AHEAD if self.bounds.gpu else MOST_AHEAD
        if best.keeps_up:
            setting = setting._replace(workers=setting.workers - 1)
        known = self.trials.get(setting)
        while known is not None and setting.workers and known.utilisation < BUSY and setting.prefetch < most:
            if known.batches_per_second < NEAR**2 * enough(self.trials.values(), self.step):
                return
            setting = setting._replace(prefetch=2 * setting.prefetch)
            further = self._try(setting)
            if further is None or further.batches_per_second < GAIN * known.batches_per_second:
                return
            known = further

    def _repeat(self) -> None:
        """Measure the choice, what was nearly chosen, and the fastest again, in turns: noise affects them equally."""
        for turn in range(NOISY_ROUNDS):
            finalists = self._finalists()
            if turn >= ROUNDS and all(self.trials[setting].spread <= NOISY for setting in finalists):
                return
            for setting in finalists:
                if self._try(setting, again=True) is None:
                    return
            for kind in self._kinds():  # what seemed too slow may be enough now, and then smaller settings may be
                self._halve(kind)

    def _finalists(self) -> list[Setting]:
        best = self.best
        if best is None:
            return []
        least = enough(self.trials.values(), self.step)
        measured = [trial for trial in self.trials.values() if trial.windows]
        price = cost(best.setting, self.facts.computes)
        cheaper = [trial for trial in measured if cost(trial.setting, self.facts.computes) < price]
        near = [trial for trial in cheaper if trial.batches_per_second >= NEAR * least]
        fastest = max(measured, key=lambda trial: trial.batches_per_second)
        others = [max(near, key=lambda trial: trial.batches_per_second)] if near else []
        return list(dict.fromkeys(trial.setting for trial in (best, *others, fastest)))
