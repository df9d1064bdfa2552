"""Runs scripts, each in a process of its own, without starting an interpreter and importing torch for each of them.

Takes: the modules to import once, then command lines as Python takes them (`script.py …`, `-c code`, `-m module …`,
after any number of `-W filter`). Gives: what `subprocess` gives. Promises: a script has its own `__main__`, `sys.argv`,
environment, folder, warning filters and standard streams; whatever was started here ends with the host.
Not its job: scripts that measure memory or imports, that count on the interpreter's very end, or whose environment is
read when a library is imported. They need an interpreter of their own.

The host imports the modules and forks for each script. It computes nothing itself, so it has one thread.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any


class Script:
    """A running script, as far as tests need `subprocess.Popen`."""

    def __init__(self, said: socket.socket) -> None:
        self._said = said  # by the host: the number of the process, and how it ended
        self.pid = int(said.recv(20))
        self.returncode: int | None = None

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            self._said.settimeout(timeout)
            try:
                self.returncode = int(self._said.recv(20) or -signal.SIGKILL)
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"script {self.pid}", timeout or 0) from None
        return self.returncode


class Host:
    """A process that has imported some modules and forks for every script."""

    def __init__(self, *modules: str) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [sys.executable, __file__, str(theirs.fileno()), *modules]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}  # a process of one thread may fork
        with theirs:
            self._process = subprocess.Popen(command, env=environment, pass_fds=[theirs.fileno()])

    @contextmanager
    def start(
        self, arguments: Sequence[str], stdout: int, stderr: int, cwd: Any = None, env: dict[str, str] | None = None
    ) -> Iterator[Script]:
        """Starts a script that writes to these descriptors, and kills it at the end if it still runs."""
        asked = {"arguments": [*arguments], "cwd": os.fspath(cwd or os.getcwd()), "env": dict(env or os.environ)}
        mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with mine:
            with theirs:
                socket.send_fds(self._control, [json.dumps(asked).encode()], [stdout, stderr, theirs.fileno()])
            script = Script(mine)
            try:
                yield script
            finally:
                script.send_signal(signal.SIGKILL)
                script.wait()

    def run(
        self,
        arguments: Sequence[str],
        timeout: float = 100,
        cwd: Any = None,
        env: dict[str, str] | None = None,
        check: bool = False,
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run([sys.executable, *arguments], capture_output=True, text=True, …)`."""
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            with self.start(arguments, out.fileno(), err.fileno(), cwd, env) as script:
                try:
                    script.wait(timeout)
                except subprocess.TimeoutExpired:
                    script.send_signal(signal.SIGKILL)
                    script.wait()
                    late = f"\nIt was killed: it had not ended after {timeout} s."
                else:
                    late = ""
            said = [(file.seek(0), file.read())[1] for file in (out, err)]
        assert script.returncode is not None
        done = subprocess.CompletedProcess([*arguments], script.returncode, said[0], said[1] + late)
        assert not (check and done.returncode), done.stdout + done.stderr
        return done

    def stop(self) -> None:
        # Not only closed: workers that a red test has left behind hold a copy of it.
        self._control.shutdown(socket.SHUT_RDWR)
        self._control.close()
        self._process.wait()


_hosts: dict[tuple[str, ...], Host] = {}


def host(*modules: str) -> Host:
    """The host with these modules that all tests of this process share. It is started when it is first asked for."""
    if modules not in _hosts:
        _hosts[modules] = Host(*modules)
    return _hosts[modules]


def stop_hosts() -> None:
    while _hosts:
        _hosts.popitem()[1].stop()


def descriptors() -> set[int]:
    """Those that the shared hosts keep open."""
    return {each._control.fileno() for each in _hosts.values()}


def serve(control: socket.socket) -> None:
    """In the host: forks for each request, says who was started and how it ended. Ends with the tests' process."""
    waiting = selectors.DefaultSelector()
    waiting.register(control, selectors.EVENT_READ)
    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for key, _ in waiting.select():
            if key.fd in running:
                pid, said = running.pop(key.fd)
                waiting.unregister(key.fd)
                os.close(key.fd)
                _, status = os.waitpid(pid, 0)
                with said, suppress(BrokenPipeError):
                    said.send(str(os.waitstatus_to_exitcode(status)).encode())
                continue
            message, descriptors, _, _ = socket.recv_fds(control, 1 << 20, 3)
            if not message:
                for pid, _ in running.values():
                    os.kill(pid, signal.SIGKILL)
                return
            pid = os.fork()
            if pid == 0:
                os.dup2(descriptors[0], 1)
                os.dup2(descriptors[1], 2)
                for descriptor in [*descriptors, *running, control.fileno(), waiting.fileno()]:
                    os.close(descriptor)
                become(**json.loads(message))
            said = socket.socket(fileno=descriptors.pop())
            said.send(str(pid).encode())
            for descriptor in descriptors:
                os.close(descriptor)
            alive = os.pidfd_open(pid)
            running[alive] = (pid, said)
            waiting.register(alive, selectors.EVENT_READ)


def become(arguments: list[str], cwd: str, env: dict[str, str]) -> None:
    """In the child: go on as if Python had been started so, and end as Python does."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    while arguments[0] == "-W":
        sys.warnoptions.append(arguments[1])
        del arguments[:2]
    warnings._processoptions(sys.warnoptions)  # type: ignore[attr-defined]
    code: Any = 0
    try:
        run(arguments)
    except SystemExit as left:
        code = left.code
    except BaseException:
        sys.excepthook(*sys.exc_info())  # type: ignore[arg-type]
        code = 1
        if isinstance(sys.exc_info()[1], KeyboardInterrupt):
            code = -signal.SIGINT
    if isinstance(code, str):
        print(code, file=sys.stderr)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    if code == -signal.SIGINT:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(code if isinstance(code, int) else int(code is not None))


def run(arguments: list[str]) -> None:
    first, *rest = arguments
    if first == "-m":
        sys.argv, sys.path[0] = rest, os.getcwd()
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv, sys.path[0] = ["-c", *rest[1:]], ""
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.abspath(first))
        runpy.run_path(first, run_name="__main__")


if __name__ == "__main__":
    for module in sys.argv[2:]:
        importlib.import_module(module)
    with socket.socket(fileno=int(sys.argv[1])) as control:
        os.set_inheritable(control.fileno(), False)
        serve(control)
