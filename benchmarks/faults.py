"""The same faults under torch's loader and feedline's: what does the user get? Prints a Markdown table.

    python benchmarks/faults.py                           # under three minutes on two cores
    python benchmarks/faults.py --only crash --out faults.json

Takes: the faults below. Gives: a row each, made from what was observed; `--out` keeps the observations.
Promises: each side of each fault in a process group of its own, ended when its time is up. Needs Linux and torch.
Not its job: the faulty scripts themselves (fault_cases), the phrases (fault_words), speed (run).
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fault_cases import PIDS, SIZE
from fault_words import Seen, after_drawing, after_growing, after_interrupt, after_kill, after_leaving, told

HERE = Path(__file__).parent
SMALL_SHM = ["unshare", "-m", "sh", "-c", 'mount -t tmpfs -o size=16m tmpfs /dev/shm && exec "$@"', "sh"]
START = 60.0
"""Seconds for the imports, which are not what is measured."""
SIDES = ("torch", "feedline")


@dataclass(frozen=True)
class Fault:
    """One row. `both` are options for both loaders, `ours` those that only feedline has."""

    name: str
    case: str
    both: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    batches: int = 10
    samples: int = SIZE
    limit: float = 6
    alone: bool = False
    """One side after the other, because seconds are measured."""
    wrap: list[str] = field(default_factory=list)
    watch: Callable[[Script], None] | None = None
    phrase: Callable[[Seen], str] = told

    @property
    def title(self) -> str:
        parts = [_options(self.both)] if self.both else []
        parts += [f"feedline: {_options(self.ours)}"] if self.ours else []
        return self.name + (f" ({'; '.join(parts)})" if parts else "")


def _options(options: dict[str, Any]) -> str:
    return ", ".join(f"`{name}={value!r}`" for name, value in options.items())


class Script:
    """A side's script, running."""

    def __init__(self, fault: Fault, side: str, folder: Path) -> None:
        options = {"num_workers": 2, "multiprocessing_context": "fork", **fault.both}
        options |= fault.ours if side == "feedline" else {}
        command = [sys.executable, str(HERE / "fault_cases.py"), fault.case, side, json.dumps(options)]
        paths = os.pathsep.join(filter(None, [str(HERE.parent / "src"), os.environ.get("PYTHONPATH")]))
        self.fault, self.folder, self.seen = fault, folder, Seen(fault.batches, fault.samples, fault.limit)
        self._stderr = folder / "stderr"
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [*fault.wrap, *command],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": paths},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
        self._text = b""
        self._pidfd = os.pidfd_open(self.process.pid)

    def listen(self, seconds: float, until: str | None = None) -> bool:
        """Take in events until the script has ended, or that event has come; False if time ran out."""
        assert self.process.stdout is not None
        deadline, out = time.monotonic() + seconds, self.process.stdout.fileno()
        while until is None or not self.seen.of(until):
            ready, _, _ = select.select([out, self._pidfd], [], [], max(0.0, deadline - time.monotonic()))
            if out in ready and (data := os.read(out, 1 << 16)):
                self._text += data
                *whole, self._text = self._text.split(b"\n")
                self.seen.events += [json.loads(line) for line in whole if line.startswith(b"{")]
            elif self._pidfd in ready:
                self.seen.exitcode = self.process.wait()
                return True
            elif not ready:
                return False
        return True

    def stuck_workers(self) -> list[int]:
        """The workers, once each of them is inside its long sample."""
        pids: set[int] = set()
        path, deadline = self.folder / PIDS, time.monotonic() + START
        while len(pids) < 2 and time.monotonic() < deadline:
            pids = {int(pid) for pid in path.read_text().split()} if path.exists() else set()
            select.select([], [], [], 0.02)
        return sorted(pids)

    def end(self) -> None:
        """Leave nothing of it."""
        for pid in in_session(self.process.pid):
            os.kill(pid, signal.SIGKILL)
        self.process.wait()
        os.close(self._pidfd)
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.seen.stderr = self._stderr.read_text(errors="replace")


def in_session(leader: int) -> list[int]:
    """The processes that a script has started and that still run, itself among them."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, session = path.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(session) == leader and state not in "ZX":
            found.append(int(path.parent.name))
    return found


def gone_within(pids: Callable[[], list[int]], seconds: float) -> float | None:
    began = time.monotonic()
    while pids():
        if time.monotonic() - began > seconds:
            return None
        select.select([], [], [], 0.01)
    return time.monotonic() - began


def kill_parent(script: Script) -> None:
    workers = script.stuck_workers()
    script.process.kill()
    script.process.wait()
    script.seen.facts["gone"] = gone_within(
        lambda: [pid for pid in workers if pid in in_session(script.process.pid)], script.fault.limit
    )


def interrupt(script: Script) -> None:
    workers = script.stuck_workers()
    os.killpg(script.process.pid, signal.SIGINT)
    gone = gone_within(lambda: [pid for pid in workers if pid in in_session(script.process.pid)], script.fault.limit)
    script.listen(script.fault.limit)
    script.seen.facts.update(gone=gone, remain=len(in_session(script.process.pid)))


def observe(fault: Fault, side: str) -> Seen:
    """Run one side's script."""
    with tempfile.TemporaryDirectory(prefix="feedline-faults-") as folder:
        script = Script(fault, side, Path(folder))
        try:
            if not script.listen(START, until="begin"):
                raise TimeoutError(f"{fault.case} under {side} did not begin")
            if fault.watch is not None:
                fault.watch(script)
            else:
                script.listen(fault.limit)
        finally:
            script.end()
    return script.seen


FAULTS = [
    Fault("endless loop in one sample", "endless_loop", ours={"stall_warning": 2}),
    Fault("the same", "endless_loop", both={"timeout": 2}, limit=15),
    Fault("C code that holds the GIL", "hold_gil", both={"timeout": 2}, limit=15),
    Fault("a worker is killed (SIGKILL) once", "kill_once", limit=12),
    Fault("segmentation fault at one sample, every time", "crash", limit=12),
    Fault("`os._exit(3)` at one sample, once", "leave_once", limit=12),
    Fault("exception of a class that cannot be pickled", "local_exception"),
    Fault("exception with a constructor of its own", "odd_exception"),
    Fault("`collate_fn` returns what cannot be pickled", "bad_collate"),
    Fault("corrupted sample raises", "corrupt"),
    Fault("the same", "corrupt", ours={"on_error": "skip"}),
    Fault("/dev/shm of 16 MB, batches of 20 MB", "large_batches", wrap=SMALL_SHM, limit=15),
    Fault("`ulimit -n 64`, 40 batches of 16 tensors kept", "few_descriptors", batches=40, samples=160),
    Fault(
        "parent killed (`kill -9`), workers in a 40 s sample",
        "long_sample",
        watch=kill_parent,
        phrase=after_kill,
        alone=True,
    ),
    Fault("Ctrl-C, workers in a 40 s sample", "long_sample", watch=interrupt, phrase=after_interrupt, alone=True),
    Fault("leaving the loop early, 50 times", "leave_early", limit=40, phrase=after_leaving, alone=True),
    Fault("`np.random` in `__getitem__`, forked workers", "draw_global", limit=20, phrase=after_drawing),
    Fault("a NumPy `Generator` kept in the dataset", "draw_own", limit=20, phrase=after_drawing),
    Fault("a lock held by another thread at the fork", "held_lock", ours={"stall_warning": 2}),
    Fault("a cache that never stops growing", "leak", limit=20, phrase=after_growing),
]


def main() -> int:
    chosen = _arguments()
    rows = []
    for fault in FAULTS:
        if not chosen.only or fault.case in chosen.only:
            rows.append(row_of(fault))
            print(f"{fault.title}: {rows[-1]['torch']} | {rows[-1]['feedline']}", file=sys.stderr, flush=True)
    print(table(rows))
    if chosen.out:
        chosen.out.write_text(json.dumps(rows, indent=1))
    return 0


def row_of(fault: Fault) -> dict[str, Any]:
    """Both sides, at the same time unless it is about time."""
    with ThreadPoolExecutor(1 if fault.alone else 2) as pool:
        cells = list(pool.map(lambda side: _cell(fault, side), SIDES))
    row: dict[str, Any] = {"fault": fault.title}
    for side, (phrase, seen) in zip(SIDES, cells, strict=True):
        row[side], row[f"{side} saw"] = phrase, seen
    return row


def _cell(fault: Fault, side: str) -> tuple[str, dict[str, Any]]:
    if fault.wrap and not _may(fault.wrap):
        return "not tried: mounting is not allowed here", {}
    seen = observe(fault, side)
    return fault.phrase(seen), vars(seen)


def _may(wrap: list[str]) -> bool:
    return shutil.which(wrap[0]) is not None and not subprocess.run([*wrap, "true"], capture_output=True).returncode


def table(rows: list[dict[str, Any]]) -> str:
    version = next((row["torch saw"]["events"][0]["torch"] for row in rows if row["torch saw"]), "")
    lines = [f"| fault | torch {version.partition('+')[0]} | feedline |", "|---|---|---|"]
    lines += [f"| {row['fault']} | {row['torch']} | {row['feedline']} |" for row in rows]
    return "\n".join(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", choices=sorted({fault.case for fault in FAULTS}))
    parser.add_argument("--out", type=Path, help="a JSON file for everything that was observed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
