"""`make bench-peers`: every side of every workload in turns, and what was measured as one JSON file.

Takes: sides and workloads. Gives: a file with every single value, the noise around it, versions and the machine;
`docs/make_pages.py --peers FILE` puts it into docs/peers.md.
Promises: while one side measures, the others' processes wait for a word; a side that cannot be installed, fails or is
silent for too long is in the file with the reason, and the rest goes on.
Not its job: what a side measures (measure), medians, the table and the picture (docs/measured_peers.py).
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from feedline import __version__
from feedline.diagnose.bench.machine import machine, wait_for_quiet
from feedline.diagnose.bench.turns import SideFailed, SideProcess, order
from feedline.observe.terminal import show_line
from peers.sides import SIDES, Side
from peers.workloads import WORKLOADS, Workload

BENCHMARKS = Path(__file__).resolve().parent.parent
PATIENCE = 120.0
"""Seconds for one measurement with set-up. The slowest (Streaming, to batch 5,000) took 25, and 90 on crowded cores."""
REPEATS, SECONDS = 3, 1.0


def main() -> int:
    """0 when every side could be measured, else 1."""
    chosen, started = _arguments(), time.monotonic()
    with tempfile.TemporaryDirectory(prefix="feedline-peers-") as scratch:
        _copy_source(Path(scratch) / "src")
        workloads = [_hold(each, chosen, Path(scratch)) for each in WORKLOADS.values() if _is_asked(each, chosen)]
    show_line("")
    facts = _facts(chosen, time.monotonic() - started)
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps({**facts, "workloads": workloads}, indent=1, ensure_ascii=False) + "\n")
    failures = [(each["title"], side, why) for each in workloads for side, why in each["failures"].items()]
    for title, side, why in failures:
        print(f"{title}, {side}: {why}", file=sys.stderr)
    print(f"{facts['seconds']} s; wrote {chosen.out}\n  python docs/make_pages.py --peers {chosen.out}")
    return 1 if failures else 0


def _hold(workload: Workload, chosen: argparse.Namespace, scratch: Path) -> dict[str, Any]:
    """All sides of a workload, in turns."""
    sides = {side.name: side for side in SIDES if workload.name not in side.absent}
    found: dict[str, Any] = {
        "name": workload.name,
        "title": workload.title,
        "resumes": workload.resumes,
        "values": {name: [] for name in sides},
        "noise": {name: [] for name in sides},
        "absent": {side.name: side.absent[workload.name] for side in SIDES if workload.name in side.absent},
        "failures": {},
    }
    running: dict[str, SideProcess] = {}
    try:
        for turn in range(chosen.repeats):
            for name in order(list(sides), turn):
                if name not in found["failures"]:
                    show_line(f"{workload.name} · {turn + 1}/{chosen.repeats} · {name}")
                    wait_for_quiet(chosen.wait_for_quiet)
                    _take_turn(found, sides[name], workload, running, chosen.seconds, scratch)
    finally:
        for process in running.values():
            process.close()
    return found


def _take_turn(
    found: dict[str, Any],
    side: Side,
    workload: Workload,
    running: dict[str, SideProcess],
    seconds: float,
    scratch: Path,
) -> None:
    if side.name not in running:
        command = [sys.executable, "-m", "peers.measure", side.module, workload.name, str(seconds)]
        running[side.name] = SideProcess(command, PATIENCE, _environment(scratch))
    try:
        answer = running[side.name].measure()
    except SideFailed as failure:
        found["failures"][side.name] = str(failure)
        running.pop(side.name).close()
    else:
        found["values"][side.name].append(answer["value"])
        found["noise"][side.name].append(answer["noise"])


def _environment(scratch: Path) -> dict[str, str]:
    """The copy of feedline made for this run, and a temporary folder that is removed after it."""
    path = os.pathsep.join((str(scratch / "src"), str(BENCHMARKS)))
    ours = {"PYTHONPATH": path, "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
    return {**os.environ, **ours}


def _copy_source(to: Path) -> None:
    """Measure one state of the source, compiled as an installed package is, whatever is edited meanwhile."""
    shutil.copytree(BENCHMARKS.parent / "src", to, ignore=shutil.ignore_patterns("__pycache__"))
    compileall.compile_dir(to, quiet=1)


def _facts(chosen: argparse.Namespace, seconds: float) -> dict[str, Any]:
    versions = {side.name: _version(side.package) for side in SIDES}
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "seconds": round(seconds),
        "quick": chosen.quick,
        "repeats": chosen.repeats,
        "machine": machine(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "sides": [
            {"name": side.name, "version": versions[side.name], "page": side.page, "how": side.how} for side in SIDES
        ],
    }


def _version(package: str) -> str:
    """What is installed, or that nothing is."""
    if package == "feedline":
        return __version__
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _is_asked(workload: Workload, chosen: argparse.Namespace) -> bool:
    return not chosen.only or workload.name in chosen.only


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one short turn each: a look, not a result")
    parser.add_argument("--only", action="append", choices=list(WORKLOADS), help="may be given again")
    parser.add_argument("--repeats", type=int, help=f"turns (default: {REPEATS})")
    parser.add_argument("--out", type=Path, default=BENCHMARKS / "results" / "peers.json", help="default: %(default)s")
    parser.add_argument("--wait-for-quiet", type=float, default=0, metavar="SECONDS", help="before each turn, at most")
    chosen = parser.parse_args()
    chosen.repeats = chosen.repeats or (1 if chosen.quick else REPEATS)
    chosen.seconds = 0.2 if chosen.quick else SECONDS
    return chosen


if __name__ == "__main__":
    sys.exit(main())
