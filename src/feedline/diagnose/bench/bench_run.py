"""The benchmark: one contest after the other; in each, two processes take turns.

Takes: names of workloads or datasets, numbers of workers, how long and how often. Gives: a `Comparison`.
Promises: while one side measures, the other's processes are stopped; both are measured in the same way; a side that
fails or hangs is named and left out, and the other continues; it always ends, whatever the dataset does.
Not its job: what a process measures (side), words (page).
"""

from __future__ import annotations

import contextlib
import datetime
import importlib.util
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from feedline.diagnose.bench.bench_subject import FEEDLINE, SIDES, TORCH
from feedline.diagnose.bench.comparison import Comparison, Contest, Measured
from feedline.diagnose.bench.machine import machine
from feedline.diagnose.bench.side import EPOCHS, WARM_UP, WINDOW
from feedline.diagnose.bench.turns import SideFailed, SideProcess, order
from feedline.diagnose.bench.workloads import Workload, workload
from feedline.errors import OptionError
from feedline.errors.checks import check_seconds, check_whole

SECONDS, REPEATS, TIMEOUT = 0.5, 5, 60.0
"""The first two are those of the repository's benchmarks; a minute is enough for five runs of our slowest workload."""
WARMING = 2.0
"""If an epoch takes more than this many seconds of warm-up, it is long, and windows of it are measured: torch's
in-memory epoch takes about ten."""


@dataclass(frozen=True)
class Terms:
    """How every contest is run."""

    seconds: float = SECONDS
    repeats: int = REPEATS
    timeout: float = TIMEOUT
    """Seconds for one answer; when this time has passed since a contest began, no further turn begins."""
    say: Callable[[str], None] = lambda _: None

    def __post_init__(self) -> None:
        check_whole("repeats", self.repeats, least=1)
        for name in ("seconds", "timeout"):
            if not check_seconds(name, getattr(self, name), ""):
                raise OptionError(f"{name} must be more than 0: measuring takes time")


def bench(words: Sequence[str], num_workers: Sequence[int] = (), terms: Terms = Terms(), **own: Any) -> Comparison:
    """Run all contests: each workload or dataset with each number of workers (by default its own).

    `own` has options for the user's datasets: batch_size, shuffle, collate.
    """
    if importlib.util.find_spec("torch") is None:
        raise OptionError("it compares with torch's loader, and torch is not installed; pip install 'feedline[torch]'")
    for number in num_workers:
        check_whole("num_workers", number, least=0)
    if own.get("batch_size") is not None:
        check_whole("batch_size", own["batch_size"], least=1)
    chosen = [_with(workload(word), own) for word in words]
    for each in chosen:
        if each.package and importlib.util.find_spec(each.package) is None:
            raise OptionError(f"the workload {each.name} needs Pillow; pip install 'feedline[images]'")
    before, versions = machine(), {"python": platform.python_version(), "numpy": np.__version__}
    contests = []
    for each in chosen:
        for count in num_workers or (each.wanted.num_workers,):
            wanted = replace(each.wanted, num_workers=count)
            contests.append(_RunningContest(replace(each, wanted=wanted), terms, versions).run())
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    return Comparison(tuple(contests), versions, before, date, terms.seconds, terms.repeats)


def _with(chosen: Workload, own: dict[str, Any]) -> Workload:
    given = {name: value for name, value in own.items() if value not in (None, False)}
    if given and chosen.summary:
        names = ", ".join(given)
        raise OptionError(f"{names}: the workload {chosen.name} has its own; give it with a dataset of yours")
    return replace(chosen, wanted=replace(chosen.wanted, **given))


class _RunningContest:
    """One contest while it is run."""

    def __init__(self, chosen: Workload, terms: Terms, versions: dict[str, str]) -> None:
        self._chosen, self._terms, self._versions = chosen, terms, versions
        self._running: dict[str, SideProcess] = {}
        self._facts: dict[str, Any] = {}
        self._notes: list[str] = []
        self._measured = {side: Measured() for side in SIDES}

    def run(self) -> Contest:
        """The contest, from starting the first process to ending the last."""
        until, wanted = time.monotonic() + self._terms.timeout, self._chosen.wanted
        with contextlib.ExitStack() as ends:
            for side in SIDES:
                command = [sys.executable, "-m", "feedline.diagnose.bench.side", side, json.dumps(asdict(wanted))]
                self._running[side] = process = SideProcess(command, self._terms.timeout)
                ends.callback(process.close)
            ends.push(self._hurry)
            self._introduce()
            way = self._warm_up()
            for turn in range(self._terms.repeats):
                if not self._left():
                    break
                if turn and time.monotonic() > until:
                    self._notes.append(f"{turn} of {self._terms.repeats} repeats: the time was up")
                    break
                self._take_turns(turn, way)
        facts = {"num_workers": wanted.num_workers, "metric": "", "about": "", "notes": (), **self._facts}
        notes, about = (*facts["notes"], *self._notes), self._chosen.summary or facts["about"]
        sides = self._measured[FEEDLINE], self._measured[TORCH]
        return Contest(self._chosen.name, facts["num_workers"], facts["metric"], *sides, about, notes)

    def _hurry(self, kind: type[BaseException] | None, *_: object) -> None:
        """After Ctrl-C, do not wait for the end of a measurement."""
        if kind is KeyboardInterrupt:
            for process in self._running.values():
                process.hurry()

    def _introduce(self) -> None:
        """Wait until both have imported what they need and made their dataset, before anything is measured."""
        self._say("starting")
        for side in SIDES:
            with self._failing(side):
                answer = self._checked(self._running[side].answer())
                self._versions[side] = answer.pop("version")
                self._facts = answer

    def _warm_up(self) -> str:
        """Returns how both are measured: by epochs, if one epoch of each was short enough for the warm-up."""
        whole, batches = [], {}
        for side in self._left():
            self._say(f"warming up · {side}")
            with self._failing(side):
                answer = self._checked(self._running[side].measure(f"{WARM_UP} {max(WARMING, self._terms.seconds)}"))
                whole.append(answer["whole"])
                batches[side] = answer["batches"]
        if len(set(batches.values())) > 1 and None not in batches.values():
            told = " and ".join(f"{count:,} with {side}" for side, count in batches.items())
            self._notes.append(f"an epoch has {told} batches: one of them reads elements twice, or leaves some out")
        return EPOCHS if all(whole) else WINDOW

    def _take_turns(self, turn: int, way: str) -> None:
        for side in order(self._left(), turn):
            self._say(f"{turn + 1}/{self._terms.repeats} · {side}")
            with self._failing(side):
                answer = self._checked(self._running[side].measure(f"{way} {self._terms.seconds}"))
                so_far = self._measured[side]
                values, noise = (*so_far.values, answer["value"]), (*so_far.noise, answer["noise"])
                self._measured[side] = replace(so_far, values=values, noise=noise)

    def _left(self) -> list[str]:
        return [side for side in SIDES if not self._measured[side].failure]

    def _checked(self, answer: dict[str, Any]) -> dict[str, Any]:
        if "refused" in answer:
            raise OptionError(answer["refused"])
        if "failed" in answer:
            raise SideFailed(answer["failed"])
        return answer

    @contextlib.contextmanager
    def _failing(self, side: str) -> Any:
        """A side that fails is left out, and its reason is kept."""
        try:
            yield
        except SideFailed as failure:
            self._measured[side] = replace(self._measured[side], failure=str(failure))

    def _say(self, what: str) -> None:
        self._terms.say(f"{self._chosen.name} · {what}")
