"""What the cells of check.py cost with one checkout of feedline: instructions by callgrind, or CPU time.

Takes: a folder with the package, names of cells, a meter. Gives: `costs`: for each cell thousandths of what the
calibration costs in the same process. `torch_costs`: the same with torch's own loader.
Promises: the same source gives nearly the same numbers on a busy machine, too; instructions are counted in the parent
only, in all its threads. What the kernel does, and waiting for memory, is not in them: before_after measures seconds.
Not its job: what is run (check_cells), what follows (check_verdict).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from check_cells import CALIBRATION, CELLS, CORE, THEIRS, TORCH

HERE = Path(__file__).resolve().parent
PATIENCE = 1200.0
"""Seconds. Importing torch under callgrind takes 40, and 80 on a busy machine."""


class Unmeasured(Exception):
    """The process that should have measured failed; the text ends with what it said."""


def usual_meter() -> str:
    """Instructions where valgrind is installed (apt-get install valgrind)."""
    return "instructions" if shutil.which("valgrind") else "cpu"


def costs(folder: Path, names: Sequence[str], meter: str) -> dict[str, float]:
    """Of the feedline in that folder. A process for each front; both at a time if it is instructions that count."""
    return _together(folder, names, meter, {front: front for front in (CORE, TORCH)})


def torch_costs(folder: Path, names: Sequence[str], meter: str) -> dict[str, float]:
    """Of torch's own loader, for the cells of torch's front."""
    return _together(folder, [name for name in names if CELLS[name].front == TORCH], meter, {TORCH: THEIRS})


def _together(folder: Path, names: Sequence[str], meter: str, whose: Mapping[str, str]) -> dict[str, float]:
    fronts = {front: [name for name in names if CELLS[name].front == front] for front in whose}
    asked = [(folder, whose[front], some, meter) for front, some in fronts.items() if some]
    with ThreadPoolExecutor(2 if meter == "instructions" else 1) as pool:
        found = {name: cost for each in pool.map(lambda given: _counted(*given), asked) for name, cost in each.items()}
    return {name: found[name] for name in names}


def _counted(folder: Path, whose: str, names: Sequence[str], meter: str) -> dict[str, float]:
    command = [sys.executable, str(HERE / "check_cells.py"), str(folder), whose, meter, *names]
    with tempfile.TemporaryDirectory(prefix="feedline-check-") as scratch:
        if meter == "cpu":
            _, answer = _answer(command, folder)
            return {name: 1000 * cost for name, cost in json.loads(answer).items()}
        options = ["-q", "--tool=callgrind", "--dump-before=getpriority", f"--callgrind-out-file={scratch}/%p"]
        process, answer = _answer(["valgrind", *options, *command], folder)
        totals = [total(Path(scratch) / f"{process}.{1 + part}") for part in range(2 + 2 * len(names))]
        return per_piece(json.loads(answer), totals)


def _answer(command: Sequence[str], folder: Path) -> tuple[int, str]:
    """The number of the process, and the last line it wrote."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, env=environment, **pipes) as process:  # type: ignore[call-overload]
        try:
            answer, errors = process.communicate(timeout=PATIENCE)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise Unmeasured(f"{folder}: {errors.strip()[-2000:]}")
    return process.pid, answer.splitlines()[-1]


def total(file: Path) -> int:
    """Of a file that callgrind wrote."""
    found = re.search(r"^totals: (\d+)$", file.read_text(), re.MULTILINE)
    if found is None:
        raise Unmeasured(f"{file} has no total")
    return int(found[1])


def per_piece(pieces: dict[str, int], totals: Sequence[int]) -> dict[str, float]:
    """Counts as callgrind gives them: start, calibration, then for each cell its set-up and itself.

    >>> per_piece({"calibration": 1, "texts": 60, "text": 50}, [99, 1000, 99, 120, 99, 50])
    {'texts': 2.0, 'text': 1.0}
    """
    unit, names = totals[1], [name for name in pieces if name != CALIBRATION]
    return {name: 1000 * count / pieces[name] / unit for name, count in zip(names, totals[3::2], strict=True)}
