"""Check: does loading with a worker process really work here?

Takes: a plan, which is not used: one worker is enough. Gives: the finding "trial".
Promises: everything happens in a separate process, which is ended after `SECONDS`; whatever happens to it, this process
continues.
Not its job: speed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

from feedline.diagnose.findings import OK, PROBLEM, Finding
from feedline.diagnose.preflight_checks.process_limits import start_method
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan

SECONDS = 60
"""The limit: a trial takes 0.3 s, but longer on a very busy machine."""

SCRIPT = """
import sys
import numpy as np
from feedline import ArrayDataset, DataLoader

if __name__ == "__main__":
    data = np.arange(4 * 8192.0).reshape(4, 8192)  # 64 KiB a sample: a batch of it travels through shared memory
    setting = dict(num_workers=1, multiprocessing_context=sys.argv[1], timeout=45)
    loader = DataLoader(ArrayDataset(data), batch_size=2, **setting)
    if [float(batch[0].sum()) for batch in loader] != [float(data[:2].sum()), float(data[2:].sum())]:
        sys.exit("the batches are not what they should be")
"""


def check_by_trial(plan: WorkerPlan) -> Iterator[Finding]:
    """Load two batches with one worker process, started as workers will be."""
    method = start_method()
    begun = time.monotonic()
    code, said = _run(method)
    took = round(time.monotonic() - begun, 2)
    evidence = {"start_method": method, "exit_code": code, "seconds": took, "stderr": said[-2000:]}
    if code == 0:
        yield Finding("trial", OK, f"A worker process ({method}) was started and delivered its batches", evidence)
        return
    last = (said.strip() or "it said nothing").splitlines()[-1]
    yield Finding(
        "trial",
        PROBLEM,
        f"Loading with one worker process ({method}) failed: {last}",
        evidence,
        "This was tried in a process of its own, with data of its own. What it said is in the evidence (--json).",
        "see to the other findings first; meanwhile threads may work.",
        'DataLoader(…, workers="thread")',
    )


def _run(method: str) -> tuple[int | None, str]:
    """The exit code (None: it had to be ended) and its output."""
    # The same path as here: feedline may have been found through a changed sys.path.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        trial = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, method],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,
        )
    except OSError as error:
        return None, f"no process could be started: {error}"
    with trial:
        try:
            _, said = trial.communicate(timeout=SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(trial.pid, signal.SIGKILL)
            _, said = trial.communicate()
            return None, f"{said}\nnothing came within {SECONDS} s"
    return trial.returncode, said
