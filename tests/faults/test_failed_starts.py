"""Workers that never get to work: stuck while they start, or dead before their first task."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from kinds import thorough
from scripts import run_script
from warm_host import host

UNBORN = """
    policy.START_SECONDS = 1
    said = warnings.showwarning

    def more_time(message, *rest, **more):
        said(message)
        if "after its start and has been ended" in str(message):
            more_time.count -= 1
            if more_time.count == 0: policy.START_SECONDS = 100  # those in their places import modules

    warnings.showwarning = more_time
    more_time.count = {workers}
"""
"""Forked workers have a second, and the first of another kind have as much as they need."""


def test_a_fork_that_hangs_is_replaced_by_another_start_method(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        textwrap.dedent(UNBORN.format(workers=2))
        + textwrap.dedent("""
        def stuck():
            threading.Event().wait()  # as a library does that takes a lock which no thread of the child will free

        if __name__ == "__main__":
            os.register_at_fork(after_in_child=stuck)
            loader = DataLoader(np.arange(20), 4, num_workers=2, multiprocessing_context="fork")
            print([batch.tolist() for batch in loader], flush=True)
        """),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("after its start and has been ended") >= 2  # more if the second is forked a second later
    assert str([list(range(first, first + 4)) for first in range(0, 20, 4)]) in done.stdout


def test_workers_that_die_in_worker_init_fn_are_an_error(tmp_path: Path) -> None:
    done = run_script(
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
    assert "ended with exit code 9 while setting up the dataset or in worker_init_fn" in done.stderr
    assert "look at worker_init_fn" in done.stderr


UNGUARDED = """
    from feedline import DataLoader, Dataset
    print("the script runs\\n", end="", flush=True)  # in one piece, beside other processes
    class Numbers(Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, index):
            return index
    for batch in DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context="{method}"):
        print("a batch")
"""


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=thorough)])
def test_a_script_without_a_guard_is_told_so_once(method: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(UNGUARDED.format(method=method)))
    done = host("feedline").run([str(script)], timeout=300)
    assert done.returncode == 1
    assert set(done.stdout.splitlines()) == {"the script runs"}
    assert len(done.stdout.splitlines()) <= 3  # once in each worker, of which nobody is replaced
    assert done.stderr.count("Traceback") == 1
    assert "if __name__ == '__main__':" in done.stderr
    assert "worker_init_fn" not in done.stderr


def test_a_hanging_fork_does_not_run_the_script_again(tmp_path: Path) -> None:
    done = run_script(
        tmp_path,
        textwrap.dedent(UNBORN.format(workers=1))
        + textwrap.dedent("""
        print("the script runs", flush=True)  # no `if __name__ == "__main__"`: under fork none is needed
        os.register_at_fork(after_in_child=lambda: threading.Event().wait())
        class Local:
            def __len__(self): return 8
            def __getitem__(self, i): return i
        print([batch.tolist() for batch in DataLoader(Local(), 4, num_workers=1, multiprocessing_context="fork")])
        """),
    )
    assert done.stdout.count("the script runs") == 1
    assert "[[0, 1, 2, 3], [4, 5, 6, 7]]" in done.stdout, done.stdout + done.stderr
