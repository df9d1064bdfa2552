"""Taking turns: each side of a case in its own process, one measurement at a time, in alternating order.

Takes: a Workload and how often to repeat.
Gives: a `Contest` for each case: every sample of every side, in the order they were taken.
Promises: while one side measures the others are idle; a side that fails or hangs is named and left out, and
the rest goes on.
Not its job: what a measurement is (harness and the workload files), ratios (report).
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import Case, Sample, Workload
from noise import Noise, wait_for_quiet

HERE = Path(__file__).resolve().parent
PATIENCE = 180.0  # seconds for one measurement, set-up and warm-up included; the slowest takes about 20


class SideFailed(Exception):
    """A side's process ended, or was silent for too long; the text is the end of what it wrote to stderr."""


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


class SideProcess:
    """A process that measures one side of one case whenever told to."""

    def __init__(self, workload: Workload, case: Case, side: str, scratch: Path) -> None:
        self._stderr = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 (closed in close, with the process)
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / f"{workload.name}.py"), side, case.name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=_environment(scratch),
            start_new_session=True,  # so that close() also ends workers a crashed side left behind
        )

    def measure(self) -> dict[str, Any]:
        """One measurement, with the noise around it. Raises SideFailed."""
        noise = Noise(session=self._process.pid)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # it is gone already: the empty answer below says so
            self._process.stdin.write(b"go\n")
            self._process.stdin.flush()
        line = self._process.stdout.readline() if self._has_answered() else b""
        if not line:
            raise SideFailed(self._last_words())
        return {**json.loads(line), "noise": noise.share()}

    def _has_answered(self) -> bool:
        """Whether there is something to read, within PATIENCE and the life of the process.

        The end of its output would not tell of its death: workers it leaves behind keep that open.
        """
        assert self._process.stdout is not None
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            if select.select([self._process.stdout], [], [], 0.5)[0]:
                return True
            if self._process.poll() is not None:
                return False
        return False

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.stdout.close()
        self._stderr.close()

    def _last_words(self) -> str:
        self._stderr.seek(0)
        lines = [line.strip() for line in self._stderr.read().splitlines() if line.strip()]
        with contextlib.suppress(subprocess.TimeoutExpired):  # its output ends a moment before it does
            self._process.wait(1)
        state = self._process.returncode
        end = f"no answer in {PATIENCE:.0f} s" if state is None else f"exit code {state}"
        return f"{lines[-1]} ({end})" if lines else end


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
            for side in sides if turn % 2 == 0 else sides[::-1]:
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
        running[side] = SideProcess(contest.workload, contest.case, side, scratch)
    try:
        answer = running[side].measure()
        contest.samples[side].append(answer["sample"])
        contest.noise[side].append(answer["noise"])
        contest.versions[side] = answer["version"]
    except SideFailed as failure:
        contest.failures[side] = str(failure)
    if contest.workload.fresh or side in contest.failures:
        running.pop(side).close()
