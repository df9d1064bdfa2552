"""A script under the warm host meets what it would meet under an interpreter of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from warm_host import Host


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    host = Host("feedline")
    yield host
    host.stop()


UP = "import os\nos.write(1, b'up\\n')\nwhile True: pass"  # in one write: two of them share a pipe
SCRIPTS: dict[str, list[str]] = {
    "prints": ["-c", "import sys; print(sys.argv, __name__); print('oops', file=sys.stderr)", "a", "b"],
    "leaves": ["-c", "raise SystemExit(7)"],
    "leaves with a word": ["-c", "raise SystemExit('no such thing')"],
    "raises": ["-c", "1 / 0"],
    "warned": ["-W", "error", "-c", "import warnings; warnings.warn('x')"],
    "only warned": ["-c", "import warnings; warnings.warn('x')"],
    "killed": ["-c", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"],
    "interrupted": ["-c", "raise KeyboardInterrupt"],
    "at exit": ["-c", "import atexit; atexit.register(print, 'bye')"],
    "a thread at its end": ["-c", "import threading as t, time; t.Thread(target=lambda: print('still here')).start()"],
    "a module": ["-m", "feedline", "--help"],
    "where": ["-c", "import os, sys; print(os.getcwd(), os.environ['WORD'], sys.path[0])"],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_as_if_python_had_been_started(host: Host, name: str, tmp_path: Path) -> None:
    where: dict[str, Any] = {"cwd": tmp_path, "env": os.environ | {"WORD": "said"}}
    here = host.run(SCRIPTS[name], **where)
    alone = subprocess.run([sys.executable, *SCRIPTS[name]], capture_output=True, text=True, **where)
    assert (here.returncode, here.stdout) == (alone.returncode, alone.stdout)
    said, expected = here.stderr.splitlines(), alone.stderr.splitlines()
    # Python 3.13 keeps the text of -c, and shows the line below a warning.
    assert said[-1:] == expected[-1:] or (sys.version_info >= (3, 13) and said[-1:] == expected[-2:-1])


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_file_may_start_processes_that_import_it(host: Host, tmp_path: Path, method: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import multiprocessing, os\n"
        "def f(x): return x + 1\n"
        f"if __name__ == '__main__':\n    print(multiprocessing.get_context('{method}').Pool(1).map(f, [1, 2]))\n"
    )
    assert host.run([str(script)], check=True).stdout == "[2, 3]\n"


def test_scripts_know_nothing_of_one_another(host: Host) -> None:
    host.run(["-c", "import sys, os; sys.leftover = 1; os.environ['LEFTOVER'] = '1'"], check=True)
    host.run(["-c", "import sys, os; assert not hasattr(sys, 'leftover') and 'LEFTOVER' not in os.environ"], check=True)


def test_one_that_does_not_end_is_killed_and_named(host: Host) -> None:
    done = host.run(["-c", "print('here', flush=True)\nwhile True: pass"], timeout=1)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "here\n")
    assert "not ended after 1 s" in done.stderr


def test_a_failure_is_an_error_with_what_was_printed(host: Host) -> None:
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        host.run(["-c", "1 / 0"], check=True)


def test_several_at_once_and_killed_from_outside(host: Host) -> None:
    read, write = os.pipe()
    loop = ["-c", UP]
    with open(read) as said, host.start(loop, write, 2) as one, host.start(loop, write, 2) as other:
        os.close(write)
        assert [said.readline(), said.readline()] == ["up\n", "up\n"]
        one.send_signal(signal.SIGTERM)
        assert one.wait() == -signal.SIGTERM
        assert other.returncode is None
    assert other.returncode == -signal.SIGKILL


def test_what_runs_ends_with_the_host() -> None:
    host = Host()
    read, write = os.pipe()
    with open(read) as said:
        with host.start(["-c", UP], write, 2) as script:
            os.close(write)
            assert said.readline() == "up\n"
            leftover = os.fork()  # as a worker that a red test leaves behind: it has a copy of all that is open here
            if leftover == 0:
                signal.pause()
            host.stop()
            assert script.wait() == -signal.SIGKILL
            os.kill(leftover, signal.SIGKILL)
            os.waitpid(leftover, 0)
        assert said.read() == ""
