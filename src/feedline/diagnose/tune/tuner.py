"""`feedline.tune`: measures, chooses, and says why.

Takes: a dataset, a loader, or a factory of one; a step. Gives: a `TuneResult`.
Promises: it ends after about the given seconds, whatever the dataset does; it keeps within the container's limits.
Not its job: a single measurement (running), which are made (search), the words (verdict).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from feedline.arena.limits import room
from feedline.diagnose.consumer import clock
from feedline.diagnose.deadline import TooLong, patience, within
from feedline.diagnose.target import constructed
from feedline.diagnose.tune.candidates import Bounds, cost
from feedline.diagnose.tune.running import Runner
from feedline.diagnose.tune.search import Search
from feedline.diagnose.tune.trial import Trial
from feedline.diagnose.tune.tune_page import TuneResult
from feedline.diagnose.tune.tune_subject import TuneSubject, for_gpu, subject_of
from feedline.diagnose.tune.tune_verdict import FULL, STARVED, bottleneck, why
from feedline.diagnose.user_loader import TORCHS
from feedline.errors import FeedlineError, OptionError, OptionTypeError
from feedline.errors.checks import check_choice, check_flag, check_number, check_seconds, check_whole
from feedline.machine.cpus import look
from feedline.machine.loaded_torch import has_gpu
from feedline.observe.report.markup import number
from feedline.observe.report.report_verdict import percent
from feedline.observe.terminal import show_line
from feedline.observe.window import Setting
from feedline.options import LOCAL_KINDS

SECONDS = 60.0
NOISY = 0.1
"""A share of the median: windows that differ by more are mentioned."""


def tune(
    what: Any,
    *,
    step_ms: float | None = None,
    seconds: float = SECONDS,
    batch_size: int | None = None,
    shuffle: bool | None = None,
    max_workers: int | None = None,
    kinds: Sequence[str] = LOCAL_KINDS,
    busy_step: bool = False,
) -> TuneResult:
    """The smallest number of workers that keeps a training step busy, measured with the real dataset.

    If nothing keeps it busy: the smallest setting that is as fast as the fastest, and how much is missing.

    Args:
        what: a dataset, a loader (feedline's or torch's), or a function that makes one and needs no arguments.
        step_ms: milliseconds that a step takes, without loading. None: as many batches a second as possible.
        seconds: how long it may take. Slow samples need more.
        batch_size: for a dataset; 32 if left out. A loader has its own.
        shuffle: for a dataset; True if left out, as in training. A loader has its own order.
        max_workers: no more than this. By default what the CPUs, the memory and the dataset's waiting suggest.
        kinds: "process", "thread", or both.
        busy_step: let the step compute on a CPU. By default it waits, as for a GPU.

    >>> import numpy as np
    >>> found = tune(np.zeros((1000, 8), np.float32), step_ms=20, seconds=10, kinds=["thread"], max_workers=1)
    >>> found.best in found.trials, found.code.splitlines()[-1].startswith("loader = DataLoader(dataset, ")
    (True, True)
    """
    step = _step(step_ms)
    if not check_seconds("seconds", seconds, ""):
        raise OptionError("seconds must be more than 0: measuring takes time")
    if batch_size is not None:
        check_whole("batch_size", batch_size, least=1)
    if max_workers is not None:
        check_whole("max_workers", max_workers, least=1)
    if shuffle is not None:
        check_flag("shuffle", shuffle)
    check_flag("busy_step", busy_step)
    began = clock()
    subject = _subject(what, batch_size, shuffle, seconds)
    free = room()
    gpu = has_gpu()
    subject = for_gpu(subject) if gpu else subject
    memory = None if free is None else free.free
    bounds = Bounds(look().usable, memory, _kinds(kinds), max_workers, gpu, subject.pins)
    arrive = importlib.import_module("feedline.torch.arrival").on_gpu if gpu and subject.front == TORCHS else None
    runner = Runner(subject, step, busy_step, began + seconds, arrive)

    def measure(setting: Setting, length: float) -> Trial:
        show_line(f"{clock() - began:.0f} of {seconds:.0f} s: {setting}")
        return runner.measure(setting, length)

    search = Search(measure, lambda: began + seconds - clock(), bounds, step)
    try:
        search.run()
    finally:
        show_line("")
    return _tuning(search, subject, clock() - began)


def _subject(what: Any, batch_size: int | None, shuffle: bool | None, seconds: float) -> TuneSubject:
    """Made by user code, which may hang (a factory) or fail (a __len__)."""
    try:
        with within(patience(seconds, times=1)):
            made, _ = constructed(what)
            return subject_of(made, batch_size, shuffle)
    except TooLong as late:
        raise FeedlineError(f"the dataset could not be made: {late}") from None
    except FeedlineError:
        raise
    except Exception as error:
        raise FeedlineError(f"no loader could be made of it: {type(error).__name__}: {error}") from error


def _step(step_ms: float | None) -> float:
    if step_ms is None:
        return 0.0
    step = check_number("step_ms", step_ms) / 1e3
    if not 0 < step < 3600:
        raise OptionError(f"step_ms must be more than 0 and less than an hour; got {step_ms}")
    return step


def _kinds(kinds: Sequence[str]) -> tuple[str, ...]:
    if isinstance(kinds, str) or not isinstance(kinds, Sequence):
        raise OptionTypeError(f"kinds must be a list of kinds of workers, such as ['process']; got {kinds!r}")
    if not kinds:
        raise OptionError(f"kinds must name at least one of {', '.join(map(repr, LOCAL_KINDS))}")
    return tuple(dict.fromkeys(check_choice("kinds", kind, LOCAL_KINDS) for kind in kinds))


def _tuning(search: Search, subject: TuneSubject, seconds: float) -> TuneResult:
    best, facts = search.best, search.facts
    if best is None:
        reasons = [f"{setting}: {trial.failed}" for setting, trial in search.trials.items() if trial.failed]
        raise FeedlineError(
            "nothing could be measured" + (f" ({'; '.join(reasons)})" if reasons else ": give it more seconds")
        )
    trials = sorted(search.trials.values(), key=lambda trial: cost(trial.setting, facts.computes))
    return TuneResult(
        name=subject.name,
        step=search.step,
        trials=tuple(trials),
        best=best,
        keeps_up=best.keeps_up,
        why=why(best, trials, search.step),
        bottleneck=bottleneck(trials, best, facts, search.bounds.cpus),
        code=subject.code(best.setting),
        seconds=seconds,
        finished=search.finished,
        cpus=search.bounds.cpus,
        notes=tuple(_notes(search, best)),
    )


def _notes(search: Search, best: Trial) -> list[str]:
    notes, queued, cpus = [], best.spending.queued_share, search.bounds.cpus
    if search.skipped:
        notes.append("Fewer workers were not tried: one worker needs so long for a batch that they cannot be enough.")
    if queued > STARVED and best.cpus_used < FULL * cpus:
        # All threads of a worker may wait for a CPU at once, and their times are summed.
        summed = f"{queued:.1f} s for each second of work, all threads added up"
        waited = summed if queued > 1 else f"{percent(queued)} of the time"
        notes.append(
            f"Other programs use this machine: loading had {best.cpus_used:.1f} of {number(cpus)} CPUs, and its "
            f"workers waited for one {waited}. Tune again when it is quiet."
        )
    elif len(best.windows) < 2:
        notes.append(f"There was time to measure {best.setting} only once: how far to trust that is not known.")
    elif best.spread > NOISY:
        notes.append(
            f"The measurements of {best.setting} differ by {percent(best.spread)}: other programs use this machine, or "
            "samples differ much."
        )
    if search.bounds.pins:
        notes.append(
            "Each batch was copied to the GPU and waited for there: that is part of the waiting. The step itself was "
            "not run on it."
        )
    if not search.facts.threaded and search.facts.work:
        notes.append("The dataset computes in one thread at a time, so more threads per worker were not tried.")
    return notes
