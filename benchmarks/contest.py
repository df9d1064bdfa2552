"""Taking turns: each side of a case in its own process, one measurement at a time, in alternating order.

Takes: a Workload and how often to repeat.
Gives: a `Contest` for each case: every sample of every side, in the order they were taken.
Promises: while one side measures the others are idle; a side that fails or hangs is named and left out, and
the rest goes on.
Not its job: what a measurement is (harness and the workload files), a side's process and the order of turns
(feedline.diagnose.bench.turns, as in `feedline bench`), ratios (report).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from feedline.diagnose.bench.machine import wait_for_quiet
from feedline.diagnose.bench.turns import SideFailed, SideProcess, order
from harness import Case, Sample, Workload

HERE = Path(__file__).resolve().parent
PATIENCE = 180.0  # seconds for one measurement, set-up and warm-up included; the slowest takes about 20


@dataclass
class Contest:
    """What was measured in one case. A side that failed has a reason and possibly fewer samples.

    `noise` says for each sample how much of the machine something else used meanwhile.
    """

    workload: Workload
    case: Case
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    versions: dict[str, str | None] = field(default_factory=dict)
    noise: dict[str, list[float | None]] = field(default_factory=dict)


def _started(contest: Contest, side: str, scratch: Path) -> SideProcess:
    """The workload's own file, as the process that measures that side."""
    command = [sys.executable, str(HERE / f"{contest.workload.name}.py"), side, contest.case.name]
    return SideProcess(command, PATIENCE, _environment(scratch))


def _environment(scratch: Path) -> dict[str, str]:
    """The copy of feedline made for this run, and a temporary directory that is removed after it."""
    path = os.pathsep.join(filter(None, [str(scratch / "src"), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1"}


@dataclass(frozen=True)
class Terms:
    """How every contest of a run is held. `quiet` is how long to wait for a quiet machine before each turn."""

    scratch: Path
    quiet: float
    say: Callable[[str], None]


def hold(workload: Workload, case: Case, repeats: int, terms: Terms) -> Contest:
    """Let the sides of a case take turns `repeats` times."""
    sides = [side for side in workload.sides if side not in case.skips]
    contest = Contest(workload, case, {side: [] for side in sides}, dict(case.skips))
    contest.noise = {side: [] for side in sides}
    running: dict[str, SideProcess] = {}
    try:
        for turn in range(repeats):
            for side in order(sides, turn):
                if side in contest.failures:
                    continue
                terms.say(f"{workload.name} · {case.name} · {turn + 1}/{repeats} · {side}")
                wait_for_quiet(terms.quiet)
                _take_turn(contest, side, running, terms.scratch)
    finally:
        for process in running.values():
            process.close()
    return contest


def _take_turn(contest: Contest, side: str, running: dict[str, SideProcess], scratch: Path) -> None:
    if side not in running:
        running[side] = _started(contest, side, scratch)
    try:
        answer = running[side].measure()
        contest.samples[side].append(answer["sample"])
        contest.noise[side].append(answer["noise"])
        contest.versions[side] = answer["version"]
    except SideFailed as failure:
        contest.failures[side] = str(failure)
    if contest.workload.fresh or side in contest.failures:
        running.pop(side).close()
