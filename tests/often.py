"""Runs the whole suite again and again beside busy processes, and on one CPU, and lists every test that was ever red.

    make test-often N=10 ONE_CPU=3

Takes: how many runs of each. Gives: a line a run, then each red test with how often it was red and its output; the exit
code says whether all were green. Promises: the busy processes end with it. Not its job: to set anything up.
A test of a thousand that fails once in a thousand runs is never seen by running it once.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parent.parent
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6): pass\n"
KEPT = 6000  # characters of a red test's output, from its end
Red = dict[str, list[str]]
"""The output of each time that a test was red, by the test's name."""


@contextmanager
def busy(count: int) -> Iterator[None]:
    """So many processes that want a core each."""
    processes = [subprocess.Popen([sys.executable, "-S", "-c", BUSY]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def run(folder: Path, cpus: set[int]) -> Red:
    """One run of the suite on these CPUs; what was red in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["make", "test-groups", f"RESULTS={folder}"]
    with open(folder / "log.txt", "w") as log:
        everywhere = os.sched_getaffinity(0)
        os.sched_setaffinity(0, cpus)
        try:
            code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT).returncode
        finally:
            os.sched_setaffinity(0, everywhere)
    red = {name: [output] for file in sorted(folder.glob("*.xml")) for name, output in failures(file)}
    if code and not red:  # a group that was ended, or could not begin, has no results
        red["make test-groups"] = [(folder / "log.txt").read_text()]
    return red


def failures(file: Path) -> Iterator[tuple[str, str]]:
    for case in ElementTree.parse(file).iter("testcase"):
        told = [*case.iterfind("failure"), *case.iterfind("error")]
        if told:
            yield f"{case.get('classname')}::{case.get('name')}", "\n".join(each.text or "" for each in told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=10, help="beside two busy processes")
    parser.add_argument("--one-cpu", type=int, default=1, help="runs on one CPU, with nothing beside")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "often", help="where logs and results are kept")
    asked = parser.parse_args()
    ever: Red = {}
    ways = [("beside two busy processes", 2, os.sched_getaffinity(0))] * asked.runs
    ways += [("on one CPU", 0, {min(os.sched_getaffinity(0))})] * asked.one_cpu
    green = 0
    for number, (how, others, cpus) in enumerate(ways, 1):
        began = time.monotonic()
        with busy(others):
            red = run(asked.into / f"run-{number:02}", cpus)
        green += not red
        result = f"RED: {', '.join(red)}" if red else "green"
        print(f"run {number} of {len(ways)}, {how}, {time.monotonic() - began:.0f} s: {result}", flush=True)
        for name, outputs in red.items():
            ever.setdefault(name, []).extend(outputs)
    for name, outputs in ever.items():
        print(f"\n{name}: red in {len(outputs)} of {len(ways)} runs\n{outputs[-1][-KEPT:]}")
    print(f"\n{green} of {len(ways)} runs were green; {len(ever)} tests were ever red. Logs: {asked.into}")
    return green < len(ways)


if __name__ == "__main__":
    sys.exit(main())
