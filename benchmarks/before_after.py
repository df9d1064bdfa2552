"""Two checkouts of feedline in turns: is anything slower than it was?

    python benchmarks/before_after.py BEFORE AFTER                  # four minutes on two quiet cores
    python benchmarks/before_after.py BEFORE AFTER --only text torch_text --repeats 12 --json out.json

Takes: the folders of two checkouts (those that `src` is in). Both run with this interpreter and its packages.
Gives: a Markdown table on stdout, and with --json every measurement. Exit code 1: a workload is slower beyond the
noise; 2: a workload could not be measured, and none is slower; 0: neither.
Promises: copies of both sources, compiled and made at the start, are what is measured. In each round the checkout
before is measured twice and the one after once, each in a process of its own, in another order than the round before:
what slows the machine down meets all alike, and what the checkout before differs from itself is the noise. What looks
slower is measured for as many rounds again and judged by all of them.
Not its job: the workloads (before_after_workloads), the verdict (before_after_verdict), other libraries (run, peers).

A round has new processes and all workloads of a front share them. Processes of the same code differ by some per cent
for as long as they live (where their memory lies), so one for all rounds would be steady and wrong; one for each
measurement would spend most of the time on importing torch. A first batch comes once in a process and has its own.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from before_after_verdict import BLIND, Verdict, judge, row, table, unmeasured, unseen
from before_after_workloads import CORE, TORCH, WORKLOADS, Workload
from feedline.diagnose.bench.comparison import noise_of
from feedline.diagnose.bench.machine import machine
from feedline.diagnose.bench.turns import SideFailed, SideProcess
from feedline.observe.terminal import show_line

HERE = Path(__file__).resolve().parent
SIDES = ("before", "after", "again")
"""Again: the checkout before, once more."""

REPEATS, FEWEST = 6, 3
"""Six rounds have every order of the three sides once. Quartiles need three."""

PATIENCE = 180.0  # seconds for one measurement, set-up and warm-up included; the slowest takes about 5


@dataclass
class Measured:
    """One workload: of each round the seconds of every side, and what something else used of the machine meanwhile."""

    workload: Workload
    seconds: dict[str, list[float]] = field(default_factory=lambda: {side: [] for side in SIDES})
    others: dict[str, list[float | None]] = field(default_factory=lambda: {side: [] for side in SIDES})
    failure: str = ""

    @property
    def verdict(self) -> Verdict | None:
        """None if a side has failed."""
        return None if self.failure else judge(*(self.seconds[side] for side in SIDES))


def main() -> int:
    chosen, started = _arguments(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="feedline-before-after-") as scratch:
        for side in SIDES:
            _copy_source(chosen.after if side == "after" else chosen.before, Path(scratch) / side)
        found = [Measured(WORKLOADS[name]) for name in chosen.only or WORKLOADS]
        measure(found, range(chosen.repeats), Path(scratch))
        measure(list(filter(is_slower, found)), range(chosen.repeats, 2 * chosen.repeats), Path(scratch))
    show_line("")
    checkouts = {"before": named(chosen.before), "after": named(chosen.after)}
    print(page(found, checkouts, chosen.repeats, time.monotonic() - started))
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(facts(found, checkouts, chosen.repeats), ensure_ascii=False) + "\n")
    return exit_code(found)


def is_slower(measured: Measured) -> bool:
    return measured.verdict is not None and measured.verdict.word == "slower"


def exit_code(found: list[Measured]) -> int:
    if any(map(is_slower, found)):
        return 1
    return 2 if any(each.failure for each in found) else 0


# --- measuring ---


def measure(found: list[Measured], rounds: range, scratch: Path) -> None:
    """All workloads in each round, so that a bad minute of the machine is one round of each and not all of one."""
    for turn in rounds:
        for front in (CORE, TORCH):
            with _processes(scratch) as processes:
                for each in found:
                    if each.workload.front == front and not each.failure:
                        show_line(f"round {turn + 1} of {rounds.stop} · {each.workload.title}")
                        _take_turns(each, turn, processes)


def order(turn: int) -> list[str]:
    """The sides, each of them equally often first, in the middle and last: all six orders in six rounds."""
    first = turn % len(SIDES)
    turned = [*SIDES[first:], *SIDES[:first]]
    return turned if turn // len(SIDES) % 2 == 0 else turned[::-1]


def _take_turns(measured: Measured, turn: int, processes: Processes) -> None:
    """A side that fails ends the workload for all: without its partner a measurement says nothing."""
    for side in order(turn):
        try:
            answer = processes.measure(measured.workload, side)
        except SideFailed as failure:
            measured.failure = f"{measured.workload.title}: {side}: {failure}"
            return
        measured.seconds[side].append(answer["seconds"])
        measured.others[side].append(answer["noise"])


class Processes:
    """One of each side, started when it is first asked."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._running: dict[str, SideProcess] = {}

    def measure(self, workload: Workload, side: str) -> dict[str, Any]:
        """Raises SideFailed; the next to ask that side gets a new process then."""
        if workload.fresh:
            self._end(side)
        if side not in self._running:
            self._running[side] = self._started(side)
        failed = True
        try:
            answer = self._running[side].measure(workload.name)
            failed = False
        finally:
            if workload.fresh or failed:
                self._end(side)
        return answer

    def close(self) -> None:
        for side in tuple(self._running):
            self._end(side)

    def _end(self, side: str) -> None:
        if side in self._running:
            self._running.pop(side).close()

    def _started(self, side: str) -> SideProcess:
        source = self._scratch / side
        path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "TMPDIR": str(self._scratch)}
        command = [sys.executable, str(HERE / "before_after_workloads.py"), str(source)]
        return SideProcess(command, PATIENCE, environment)


@contextmanager
def _processes(scratch: Path) -> Iterator[Processes]:
    processes = Processes(scratch)
    try:
        yield processes
    finally:
        processes.close()


def _copy_source(checkout: Path, to: Path) -> None:
    """One state of the source, compiled as an installed package is, whatever is edited meanwhile."""
    shutil.copytree(checkout / "src", to, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(to, quiet=1)


# --- telling ---


def page(found: list[Measured], checkouts: dict[str, str], repeats: int, seconds: float) -> str:
    rows, notes = [], []
    for each in found:
        if each.verdict is None:
            rows.append(unmeasured(each.workload.title))
            notes.append(each.failure)
        else:
            rows.append(row(each.workload.title, each.verdict, noise_of(*each.others.values())))
    blind = [each.workload.title for each in found if each.verdict and each.verdict.noise > BLIND]
    notes += [unseen(blind)] if blind else []
    heads = [f"{side}: {name}" for side, name in checkouts.items()]
    return "\n".join([*heads, "", table(rows), "", *notes, f"{repeats} rounds, {seconds:.0f} s"])


def facts(found: list[Measured], checkouts: dict[str, str], repeats: int) -> dict[str, Any]:
    """All there is to know, as JSON."""
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": machine(),
        "python": platform.python_version(),
        "checkouts": checkouts,
        "repeats": repeats,
        "workloads": [
            {
                "name": each.workload.name,
                "title": each.workload.title,
                "verdict": None if each.verdict is None else asdict(each.verdict),
                "failure": each.failure,
                "seconds": each.seconds,
                "others": each.others,
            }
            for each in found
        ],
    }


def named(checkout: Path) -> str:
    """The folder, and its commit if there is one."""
    command = ["git", "-C", str(checkout), "describe", "--always", "--dirty"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{checkout} ({answer.stdout.strip()})" if answer.returncode == 0 else str(checkout)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=_checkout, help="the folder of a checkout")
    parser.add_argument("after", type=_checkout, help="another, or the same to see that nothing differs")
    parser.add_argument("--only", nargs="+", choices=list(WORKLOADS), metavar="NAME", help=", ".join(WORKLOADS))
    parser.add_argument("--repeats", type=_rounds, default=REPEATS, help="rounds (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every measurement there")
    return parser.parse_args()


def _checkout(text: str) -> Path:
    folder = Path(text).resolve()
    if not (folder / "src" / "feedline").is_dir():
        raise argparse.ArgumentTypeError(f"{folder} is no checkout of feedline: it has no src/feedline")
    return folder


def _rounds(text: str) -> int:
    number = int(text)
    if number < FEWEST:
        raise argparse.ArgumentTypeError(f"at least {FEWEST}, so that there is a spread")
    return number


if __name__ == "__main__":
    sys.exit(main())
