"""While the first batches are made, in a worker process: would threads do?

Takes: a job; tasks, one after the other. Gives: their outcomes as they are, with `Findings`: how often making batches
was seen to hold the GIL, and why threads must not share the dataset, if that has come out.
Promises: the batches are those of any other worker. All of it happens to the process's own copy of the dataset: what
reading opens or changes is seen there, and nothing is done to the user's.
Not its job: what follows (choice, choosing).
"""

from __future__ import annotations

from contextlib import nullcontext

from feedline.ambient import GLOBAL_SOURCES, Source
from feedline.gil import Looks, Rival
from feedline.messages import Empty, Findings, Outcome, Task, with_findings
from feedline.rng import task_seed
from feedline.workers.body import Body
from feedline.workers.carried import not_shared
from feedline.workers.draws import Draws, state_of
from feedline.workers.footprints import Footprint, changed, fetched_by_name, footprint
from feedline.workers.job import Job

LOOKING = 2
"""So many of the workers look on: one may be stuck with a slow sample."""
LOOKS = 32
"""Of each, and so many together decide: a share that is really a half is then seen as a third to two thirds."""
WARM = 0.1
"""Seconds: a first task that is shorter is not counted. Much of it goes into what is done once: imports, and pages
that a forked process touches for the first time."""
TASKS = 32
"""After these it is over, however few looks there have been: batches that small are made in no time by any kind."""


class Trial:
    """One worker process's."""

    def __init__(self, job: Job) -> None:
        self.over = False
        self._job = job
        self._rival = Rival()
        self._looked = 0
        self._tasks = 0
        self._before: Footprint | None = footprint(job)

    def run(self, body: Body, task: Task, empty: Empty) -> Outcome:
        """Do one task, and see how it goes."""
        value = task_seed(task.seed, task.epoch, task.batch)
        for source in GLOBAL_SOURCES:  # as the body does, if anybody draws at all
            source.seed(value)
        sources = self._job.dialect.sources
        seeded = [_seeded(source, value) for source in sources]
        draws = Draws() if task.piece_of < 0 else None  # a piece does not draw, or is none
        with nullcontext() if draws is None else draws.watched():
            self._rival.begin()
            try:
                outcome = body.run(task, empty)
            finally:
                self._rival.end()
        why = ""
        if draws is not None:
            drawn = [state != state_of(source) for source, state in zip(sources, seeded, strict=True)]
            why = self._drew(draws.past(), any(drawn))
        return with_findings(outcome, self._seen(self._rival.take(), why, _share(self._job, task, outcome)))

    def _seen(self, looks: Looks, why: str, share: float) -> Findings:
        self._tasks += 1
        if not share or (self._tasks == 1 and looks.seconds < WARM):
            looks, share = Looks(), 0.0
        self._looked += looks.looked
        is_last = self._looked >= LOOKS or self._tasks == TASKS
        if not why and (is_last or not self._tasks & (self._tasks - 1)):  # 1, 2, 4, …: a look takes 3 to 80 ms
            why = self._left()
        if why or is_last:
            self._rival.stop()
            self.over, self._before = True, None
        return Findings(looks, why, share)

    def _drew(self, past: str, from_framework: bool) -> str:
        if from_framework:
            return "samples draw from the framework's global generator, of which threads have only one"
        if past and (name := fetched_by_name(self._job, past)):
            return f"{name} draws from the global generator, of which threads that fetched it by name have only one"
        if past:
            return f"samples draw from {past}'s hidden generator past its functions, and threads have only one of it"
        return ""

    def _left(self) -> str:
        """What is there now that was not."""
        assert self._before is not None
        if path := not_shared(self._job.dataset):
            return f"reading samples opens {path}, which threads would share"
        if path := changed(self._before, footprint(self._job)):
            return f"reading samples changes {path}, which threads would do to one another"
        return ""


def _share(job: Job, task: Task, outcome: Outcome) -> float:
    """How much of a batch it was; nothing, if it was a piece that is of no use."""
    if task.piece_of < 0 or task.indices is None:
        return 1.0
    in_vain = outcome.notice is not None and outcome.notice.apart is not None
    return 0.0 if in_vain else min(1.0, len(task.indices) / job.batch_size)


def _seeded(source: Source, value: int) -> bytes:
    source.seed(value)
    return state_of(source)
