"""Ctrl-C while workers that are not forked are being started: over at once, whoever is still importing what.

Nothing is left when the script has ended: neither the process that workers come from nor Python's own helper.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kinds import thorough

from feedline.workers import warm

LONG = 100
SITE = """
    import os, signal, sys
    if any("forkserver" in word for word in sys.orig_argv) and "{where}" in ("server", "birth"):
        if "{where}" == "server":
            with open({told!r}, "w") as told:  # waits until somebody reads
                told.write("here")
        while True:
            signal.pause()
"""
"""Python imports this when it starts: so the server never gets as far as its first worker."""
SLOW = """
    import os, signal, sys
    from feedline import Dataset
    if "{where}" == "worker" and os.getpid() != int(os.environ["PARENT"]):
        with open({told!r}, "w") as told:
            told.write("here")
        while True:
            signal.pause()
    class Numbers(Dataset):
        def __len__(self):
            return 8
        def __getitem__(self, index):
            if "{where}" == "sample":
                with open({told!r}, "w") as told:
                    told.write("here")
                while True:
                    signal.pause()
            return index
"""
"""The dataset's module: so no worker gets as far as its first task, or its first batch."""
SCRIPT = """
    import os, signal, sys
    os.environ["PYTHONPATH"] = os.pathsep.join([{folder!r}, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ["PARENT"] = str(os.getpid())
    sys.path.insert(0, {folder!r})
    if __name__ == "__main__":
        import feedline, slow
        from feedline.workers import at_exit
        at_exit.ENDING_SECONDS = 60  # on a busy machine Python's helper may not even have begun within half a second
        if "{where}" == "birth":  # while the server's process is made, and nobody knows its number yet
            from multiprocessing import util
            make = util.spawnv_passfds
            def make_and_interrupt(path, arguments, fds):
                number = make(path, arguments, fds)
                if any("forkserver" in os.fsdecode(word) for word in arguments):
                    os.killpg(0, signal.SIGINT)
                return number
            util.spawnv_passfds = make_and_interrupt
        for batch in feedline.DataLoader(slow.Numbers(), 4, num_workers=1, multiprocessing_context="{method}"):
            pass
        if "{where}" == "tracked":
            from multiprocessing.shared_memory import SharedMemory
            class Kept(SharedMemory):
                def __del__(self):  # when the interpreter takes its modules apart
                    self.close()
                    self.unlink()
            kept = Kept(create=True, size=1)
"""


class Script:
    """The script in a session of its own, as a terminal has one."""

    def __init__(self, where: str, method: str, folder: Path) -> None:
        self.told = folder / "told"
        os.mkfifo(self.told)
        values = {"where": where, "told": str(self.told), "method": method, "folder": str(folder)}
        for name, text in (("sitecustomize", SITE), ("slow", SLOW), ("script", SCRIPT)):
            (folder / f"{name}.py").write_text(textwrap.dedent(text).format(**values))
        self._output = tempfile.TemporaryFile("w+")  # noqa: SIM115
        command = [sys.executable, str(folder / "script.py")]
        self._process = subprocess.Popen(command, stdout=self._output, stderr=self._output, start_new_session=True)

    def interrupt(self) -> None:
        """Once somebody has said that he is where he should be."""
        assert self.told.read_text() == "here"
        os.killpg(self._process.pid, signal.SIGINT)

    def ended(self) -> tuple[int, list[str], str]:
        """Its exit code, who is left of its session at that very moment, and what was said."""
        try:
            code = self._process.wait(LONG)
        except subprocess.TimeoutExpired:
            pytest.fail("it waits for the one that is being started")
        left = [command for _, command in self._others()]
        self._output.seek(0)
        return code, left, self._output.read()

    def _others(self) -> Iterator[tuple[int, str]]:
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                # Behind the name: state, parent, group, session. Who has ended is there until its parent has noted it.
                state, _, _, session = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == self._process.pid and state not in "ZX":
                    yield int(name), Path("/proc", name, "cmdline").read_text().replace("\0", " ")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._output.close()
        for number, _ in self._others():
            with contextlib.suppress(ProcessLookupError):
                os.kill(number, signal.SIGKILL)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    with contextlib.ExitStack() as scripts:

        def started(where: str, method: str) -> Script:
            return scripts.enter_context(contextlib.closing(Script(where, method, tmp_path)))

        yield started


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
@pytest.mark.parametrize("where", ["server", "sample", "birth", pytest.param("worker", marks=thorough)])
def test_ctrl_c_while_workers_are_started_ends_all_at_once(where: str, method: str, start: Any) -> None:
    script = start(where, method)
    if where != "birth":  # there it interrupts itself
        script.interrupt()
    code, left, said = script.ended()
    assert left == []
    assert said.count("Traceback") == 1
    assert said.rstrip().endswith("KeyboardInterrupt")
    assert code == -signal.SIGINT


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_script_that_comes_to_its_end_leaves_nothing_either(method: str, start: Any) -> None:
    assert start("nowhere", method).ended() == (0, [], "")


def test_pythons_helper_stays_for_what_it_tracks(start: Any) -> None:
    code, _, said = start("tracked", "spawn").ended()
    assert (code, said) == (0, "")


def test_a_worker_that_was_just_made_for_who_is_interrupted_is_ended() -> None:
    class Server:
        _forkserver_pid = None

        def connect_to_new_process(self, fds: Any) -> tuple[int, int]:
            number, told = os.pipe()
            order, given = os.pipe()
            warm.forkserver.write_signed(told, made.pid)
            os.close(told)
            os.close(order)
            ends.extend((number, given))
            return number, given

    @contextlib.contextmanager
    def interrupted() -> Iterator[None]:
        yield
        raise KeyboardInterrupt

    ends: list[int] = []
    with subprocess.Popen(["sleep", str(LONG)]) as made:
        try:
            with pytest.raises(KeyboardInterrupt):
                warm._InterruptibleConnect(Server(), interrupted)([])  # type: ignore[arg-type]
            assert made.wait(LONG) == -signal.SIGKILL
        finally:
            made.kill()
    for end in ends:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.close(end)
