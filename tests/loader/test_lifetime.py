"""Whatever way a loop is left, nothing is left behind."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from kinds import FORK, THREADS, every_kind, every_process, every_worker
from leaving import leftovers
from made_datasets import Numbers
from warm_host import Script, host

from feedline import DataLoader, Dataset
from feedline.messages.outcome import Outcome


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
        if kind:
            del now["segments"]  # memory for the next epoch, as much as was out: counted by the arena's own tests
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
@pytest.mark.parametrize("leave", ["close", "drop"])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_that_nobody_asked_for_go_with_the_loop(kind: dict[str, Any], leave: str, persistent: bool) -> None:
    gc.collect()
    gc.disable()  # memory that is large must not wait for it
    try:
        before = batches_there()
        loader = DataLoader(Images(), batch_size=4, prefetch_factor=4, persistent_workers=persistent, **kind)
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        if leave == "close":
            iterator.close()
        del iterator
        if "workers" not in kind:  # a thread has batches of its own, until it is asked for the next epoch
            assert batches_there() == before
        loader.close()
        for thread in threading.enumerate():  # one that was left behind, on a busy machine
            if thread.name.startswith("feedline-"):
                thread.join()
        assert batches_there() == before
    finally:
        gc.enable()


def batches_there() -> int:
    return sum(type(each) is Outcome and each.batch is not None for each in gc.get_objects())


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


SCRIPT = """
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
            time.sleep(6000)
        return index
if __name__ == "__main__":
    os.setsid()  # so that Ctrl-C reaches all of it and only it
{body}
"""
LONG = 600
"""Seconds: a limit that only keeps a test from hanging."""


class Running:
    """A user's script in a process of its own, and what it says."""

    def __init__(self, script: Script, stdout: int, stderr: int) -> None:
        self.script, self.pid = script, script.pid
        self.stdout, self.stderr = open(stdout), open(stderr)  # noqa: SIM115

    def interrupt(self) -> None:
        os.killpg(self.pid, signal.SIGINT)

    def rest(self) -> tuple[str, str]:
        """What it has said when it has ended, and all that it had started."""
        self.script.wait(LONG)
        return self.stdout.read(), self.stderr.read()


def written(tmp_path: Path, body: str, kind: dict[str, Any]) -> list[str]:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(kind=kind, body=textwrap.indent(textwrap.dedent(body), "    ")))
    return [str(path), str(tmp_path / "pids")]


@contextlib.contextmanager
def running(tmp_path: Path, body: str, kind: dict[str, Any]) -> Iterator[Running]:
    (stdout, out), (stderr, err) = os.pipe(), os.pipe()
    with host("feedline").start(written(tmp_path, body, kind), out, err) as script:
        os.close(out), os.close(err)
        one = Running(script, stdout, stderr)
        with one.stdout, one.stderr:
            yield one


def stuck_workers(tmp_path: Path, count: int) -> list[psutil.Process]:
    """Wait until that many workers are inside their long sample."""
    path = tmp_path / "pids"
    while True:
        pids = {int(line) for line in path.read_text().split()} if path.exists() else set()
        if len(pids) >= count:
            return [psutil.Process(pid) for pid in pids]
        threading.Event().wait(0.02)


def all_end(processes: list[psutil.Process]) -> bool:
    return not psutil.wait_procs(processes, timeout=LONG)[1]


LOOP = "for batch in DataLoader(Slow(sys.argv[1]), **KIND): pass"


@every_process
def test_workers_are_gone_when_the_parent_is_killed(kind: dict[str, Any], tmp_path: Path) -> None:
    with running(tmp_path, LOOP, kind) as one:
        workers = stuck_workers(tmp_path, 2)
        one.script.send_signal(signal.SIGKILL)
        assert len(workers) == 2
        assert all_end(workers)


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
    with running(tmp_path, LOOP, kind) as one:
        workers = stuck_workers(tmp_path, 1)
        one.interrupt()
        _, stderr = one.rest()
        assert stderr.count("Traceback (most recent call last)") == 1
        assert stderr.rstrip().endswith("KeyboardInterrupt")
        assert all_end(workers)


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
    with running(tmp_path, body, kind) as one:
        stuck_workers(tmp_path, 2)
        one.interrupt()
        stdout, stderr = one.rest()
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
    with running(tmp_path, body, {**kind, "num_workers": 4}) as one:
        assert one.stdout.readline() == "started\n"
        children = psutil.Process(one.pid).children(recursive=True)
        one.interrupt()
        _, stderr = one.rest()
        assert stderr.count("Traceback (most recent call last)") == 1
        assert all_end(children)


@every_process
def test_leaving_the_interpreter_with_a_loop_under_way(kind: dict[str, Any], tmp_path: Path) -> None:
    body = """
        iterator = iter(DataLoader(Slow(sys.argv[1]), **KIND))
        print(next(iterator).item())
    """
    command = [sys.executable, *written(tmp_path, body, kind)]  # not the host's: it does not go to Python's very end
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONG)
    assert (done.stdout, done.stderr, done.returncode) == ("0\n", "", 0)


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
                threading.Event().wait(6000)
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
    with running(tmp_path, body, FORK) as one:
        stdout, stderr = one.rest()
    assert "is a forked copy" in stdout
    assert stdout.endswith("\n1\n")
    assert stderr == ""


@pytest.mark.parametrize("leave", ["next(iterator)", "iterator.close()", "loader.close()"])
def test_what_a_forked_copy_does_is_nothing_to_workers_that_are_kept(leave: str, tmp_path: Path) -> None:
    body = f"""
        loader = DataLoader(list(range(100)), 1, persistent_workers=True, **KIND)
        iterator = iter(loader)
        next(iterator)
        child = os.fork()
        if not child:
            try:
                {leave}
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        print(sum(batch.item() for batch in iterator), flush=True)
        print(len(list(loader)), flush=True)
        loader.close()
    """
    with running(tmp_path, body, FORK) as one:
        stdout, stderr = one.rest()
    assert (stdout, stderr) == (f"{sum(range(100))}\n100\n", "")


KEPT = """
import sys
import holder
import numpy as np
import feedline
from feedline.arena import segment, slots

holder.kept += feedline.DataLoader(np.zeros((60, 300, 300)), 1)
sys.lasting = holder, {lasting}  # what Python empties last, in the order it came; so ours go before what holds batches
"""


@pytest.mark.parametrize("lasting", ["segment", "slots", "(segment, slots)"])
def test_batches_kept_until_the_interpreter_ends_leave_it_in_silence(lasting: str, tmp_path: Path) -> None:
    (tmp_path / "holder.py").write_text("kept = []")
    (tmp_path / "script.py").write_text(KEPT.format(lasting=lasting))
    done = subprocess.run([sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


class Trainer:
    """Refers to its loader, which refers to it: as people write them."""

    def __init__(self, **options: Any) -> None:
        self.loader = DataLoader(Numbers(), collate_fn=self.collate, **options)
        self.iterator = iter(self.loader)

    def collate(self, samples: list[Any]) -> Any:
        return samples


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("kind", [{}, FORK])
def test_a_job_that_refers_to_its_loader_does_not_keep_it(kind: dict[str, Any], persistent: bool) -> None:
    trainer = Trainer(persistent_workers=persistent and bool(kind), **kind)
    next(trainer.iterator)
    gone = weakref.ref(trainer)
    del trainer
    gc.collect()
    assert gone() is None
    assert not [child for child in psutil.Process().children() if "feedline" in child.name()]


class Gated(Numbers):
    def __init__(self, gates: list[Any]) -> None:
        super().__init__(400)
        self.gates = gates

    def __getitem__(self, index: int) -> int:
        if index:
            self.gates[min(index, 3)].acquire()
        return index


@pytest.mark.parametrize("kind", [THREADS, FORK])
def test_tasks_of_an_iteration_that_was_left_are_not_done(kind: dict[str, Any]) -> None:
    gates = [multiprocessing.get_context("fork").Semaphore(0) for _ in range(4)]
    with DataLoader(Gated(gates), persistent_workers=True, prefetch_factor=50, timeout=600, **kind) as loader:
        next(iter(loader))  # 100 tasks more are out, of which the first two wait at their gates
        again = iter(loader)
        for gate in gates[1:3] * 2:  # lets those two go, and samples 1 and 2 of the new iteration
            gate.release()
        assert [next(again).item(), next(again).item()] == [0, 1]
        for gate in gates * 200:
            gate.release()
