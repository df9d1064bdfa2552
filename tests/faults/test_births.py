"""Workers that never get to work: stuck at their birth, or dead before their first task."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

HEAD = """
    import os, sys, threading, warnings
    import numpy as np
    from feedline import DataLoader
    from feedline.supervise import policy
    warnings.showwarning = lambda message, *rest, **more: print("WARNING", message, flush=True)
    warnings.simplefilter("always")
"""


def run(folder: Path, body: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(textwrap.dedent(HEAD) + textwrap.dedent(body))
    return subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=100, env=os.environ)


def test_a_fork_that_hangs_is_replaced_by_another_start_method(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        def stuck():
            threading.Event().wait()  # as a library does that takes a lock which no thread of the child will free

        if __name__ == "__main__":
            policy.START_SECONDS = 3
            os.register_at_fork(after_in_child=stuck)
            loader = DataLoader(np.arange(20), 4, num_workers=2, multiprocessing_context="fork")
            print([batch.tolist() for batch in loader], flush=True)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("after its start and has been ended") >= 2  # a busy machine may need more than 3 s
    assert str([list(range(first, first + 4)) for first in range(0, 20, 4)]) in done.stdout


def test_workers_that_die_in_worker_init_fn_are_an_error(tmp_path: Path) -> None:
    done = run(
        tmp_path,
        """
        def init(number):
            os._exit(9)

        if __name__ == "__main__":
            loader = DataLoader(np.arange(20), 4, num_workers=1, worker_init_fn=init, multiprocessing_context="fork")
            list(loader)
        """,
    )
    assert done.returncode == 1
    assert done.stdout.count("WARNING") == 2
    assert "WorkerDied" in done.stderr
    assert "left with exit code 9 while setting up the dataset or in worker_init_fn" in done.stderr
    assert "look at worker_init_fn" in done.stderr
