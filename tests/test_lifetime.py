"""Whatever way a loop is left, nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from kinds import every_kind, every_process, every_worker
from leaving import leftovers

from feedline import DataLoader, Dataset


class Images(Dataset[Any]):
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        return np.full((100, 300), index, np.float32), index


@every_kind
@pytest.mark.parametrize("persistent", [False, True])
def test_breaking_out_of_the_loop_again_and_again(kind: dict[str, Any], persistent: bool) -> None:
    loader = DataLoader(Images(), batch_size=4, persistent_workers=persistent and bool(kind), **kind)
    before = None
    for _ in range(5):
        for _batch in loader:
            break
        del _batch
        gc.collect()
        now = leftovers()
        if persistent:
            del now["segments"]  # slots on their way from the iteration before: counted by the arena's own tests
        assert before is None or {k: len(v) for k, v in now.items()} == {k: len(v) for k, v in before.items()}
        before = now
    loader.close()


@every_worker
def test_an_exception_in_the_users_loop(kind: dict[str, Any]) -> None:
    with contextlib.suppress(ZeroDivisionError):
        for _ in DataLoader(Images(), batch_size=4, **kind):
            1 / 0


@every_worker
def test_garbage_collection_of_the_iterator_or_the_loader_releases_everything(kind: dict[str, Any]) -> None:
    before = leftovers()
    iterator = iter(DataLoader(Images(), batch_size=4, **kind))
    next(iterator)
    assert leftovers() != before
    del iterator
    gc.collect()
    assert leftovers() == before
    loader = DataLoader(Images(), batch_size=4, persistent_workers=True, **kind)
    next(iter(loader))
    gone = weakref.ref(loader)
    del loader
    gc.collect()
    assert gone() is None
    assert leftovers() == before


@every_worker
def test_the_loop_keeps_a_loader_that_nobody_else_holds(kind: dict[str, Any]) -> None:
    assert sum(1 for _ in DataLoader(Images(), batch_size=10, persistent_workers=True, **kind)) == 10


@every_kind
def test_close_and_use_again(kind: dict[str, Any]) -> None:
    with DataLoader(Images(), batch_size=50, persistent_workers=bool(kind), **kind) as loader:
        first = next(iter(loader))
    images, labels = first
    loader.close()
    assert (images[:, 0, 0] == labels).all()  # what the user holds stays valid
    assert len(list(loader)) == 2
    loader.close()
    loader.close()


@every_worker
def test_an_iterator_of_a_closed_loader_does_not_look_complete(kind: dict[str, Any]) -> None:
    loader = DataLoader(Images(), batch_size=4, **kind)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(RuntimeError, match="closed before its end"):
        next(iterator)


def run_script(tmp_path: Path, body: str, kind: dict[str, Any]) -> subprocess.Popen[str]:
    """A user's script in a process of its own, in its own session so that Ctrl-C reaches all of it and only it."""
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import os, sys, time, threading
        import numpy as np
        from feedline import DataLoader, Dataset
        KIND = {kind!r}
        class Slow(Dataset):
            def __init__(self, path): self.path = path
            def __len__(self): return 1000
            def __getitem__(self, index):
                if index >= 4:
                    with open(self.path, "a") as f: print(os.getpid(), file=f, flush=True)
                    {stuck}
                return index
        if __name__ == "__main__":
        {body}
        """).format(kind=kind, stuck="time.sleep(40)", body=textwrap.indent(textwrap.dedent(body), "    "))
    )
    return subprocess.Popen(
        [sys.executable, str(script), str(tmp_path / "pids")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def stuck_workers(tmp_path: Path, count: int) -> list[psutil.Process]:
    """Wait until that many workers are inside their long sample."""
    path = tmp_path / "pids"
    while True:
        pids = {int(line) for line in path.read_text().split()} if path.exists() else set()
        if len(pids) >= count:
            return [psutil.Process(pid) for pid in pids]
        threading.Event().wait(0.02)


@every_process
def test_workers_are_gone_when_the_parent_is_killed(kind: dict[str, Any], tmp_path: Path) -> None:
    script = run_script(tmp_path, "for batch in DataLoader(Slow(sys.argv[1]), **KIND): pass", kind)
    workers = stuck_workers(tmp_path, 2)
    script.kill()
    gone, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive
    assert len(gone) == 2
    script.communicate(timeout=30)


@every_process
def test_workers_started_in_a_thread_outlive_the_thread(kind: dict[str, Any]) -> None:
    loader = DataLoader(Images(), batch_size=50, persistent_workers=True, **kind)
    thread = threading.Thread(target=lambda: next(iter(loader)))
    thread.start()
    thread.join()
    assert len(list(loader)) == 2
    loader.close()


@every_worker
def test_ctrl_c_leaves_one_traceback_and_nothing_behind(kind: dict[str, Any], tmp_path: Path) -> None:
    script = run_script(tmp_path, "for batch in DataLoader(Slow(sys.argv[1]), **KIND): pass", kind)
    workers = stuck_workers(tmp_path, 1)
    os.killpg(script.pid, signal.SIGINT)
    _, stderr = script.communicate(timeout=60)
    assert stderr.count("Traceback (most recent call last)") == 1
    assert stderr.rstrip().endswith("KeyboardInterrupt")
    _, alive = psutil.wait_procs(workers, timeout=30)
    assert not alive


@every_process
def test_ctrl_c_caught_and_the_loader_used_again(kind: dict[str, Any], tmp_path: Path) -> None:
    body = """
        loader = DataLoader(Slow(sys.argv[1]), persistent_workers=True, **KIND)
        try:
            for batch in loader: pass
        except KeyboardInterrupt:
            print("caught", flush=True)
        print([b.item() for b, _ in zip(loader, range(3))], flush=True)
        loader.close()
    """
    script = run_script(tmp_path, body, kind)
    stuck_workers(tmp_path, 2)
    os.killpg(script.pid, signal.SIGINT)
    stdout, stderr = script.communicate(timeout=60)
    assert stdout.split("\n")[:2] == ["caught", "[0, 1, 2]"]
    assert stderr == ""


@every_process
def test_ctrl_c_while_workers_start(kind: dict[str, Any], tmp_path: Path) -> None:
    body = """
        loader = DataLoader(Slow(sys.argv[1]), **KIND)
        iterator = iter(loader)
        print("started", flush=True)
        for batch in iterator: pass
    """
    script = run_script(tmp_path, body, {**kind, "num_workers": 4})
    assert script.stdout is not None
    assert script.stdout.readline() == "started\n"
    children = psutil.Process(script.pid).children(recursive=True)
    os.killpg(script.pid, signal.SIGINT)
    _, stderr = script.communicate(timeout=60)
    assert stderr.count("Traceback (most recent call last)") == 1
    _, alive = psutil.wait_procs(children, timeout=30)
    assert not alive


@every_process
def test_leaving_the_interpreter_with_a_loop_under_way(kind: dict[str, Any], tmp_path: Path) -> None:
    body = """
        iterator = iter(DataLoader(Slow(sys.argv[1]), **KIND))
        print(next(iterator).item())
    """
    script = run_script(tmp_path, body, kind)
    stdout, stderr = script.communicate(timeout=60)
    assert (stdout, stderr, script.returncode) == ("0\n", "", 0)


class Cleaning(Dataset[Any]):
    """Has something to clean up when its worker leaves."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> int:
        try:
            if index >= 2:
                Path(f"{self.path}-entered-{os.getpid()}").touch()
                threading.Event().wait(600)
        finally:
            if index >= 2:
                Path(f"{self.path}-cleaned-{os.getpid()}").touch()
        return index


@every_process
def test_a_worker_told_to_leave_runs_its_finally_blocks(kind: dict[str, Any], tmp_path: Path) -> None:
    loader = DataLoader(Cleaning(str(tmp_path / "x")), **kind)
    iterator = iter(loader)
    next(iterator)
    while len(list(tmp_path.glob("x-entered-*"))) < 2:
        threading.Event().wait(0.01)
    loader.close()
    assert len(list(tmp_path.glob("x-cleaned-*"))) == 2


def test_a_forked_copy_of_an_iteration_is_refused(tmp_path: Path) -> None:
    body = """
        iterator = iter(DataLoader(Slow(sys.argv[1]), **KIND))
        next(iterator)
        child = os.fork()
        if not child:
            try:
                next(iterator)
            except RuntimeError as error:
                print(error, flush=True)
            os._exit(0)
        os.waitpid(child, 0)
        print(next(iterator).item(), flush=True)
    """
    script = run_script(tmp_path, body, {"num_workers": 2, "multiprocessing_context": "fork"})
    stdout, stderr = script.communicate(timeout=60)
    assert "is a forked copy" in stdout
    assert stdout.endswith("\n1\n")
    assert stderr == ""
