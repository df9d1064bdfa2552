"""A server process that has imported what workers need; workers are forked from it.

Takes: the modules to import. Gives: a way to start processes from the server. `spawn` starts a new interpreter and
repeats all imports for each worker; the server does this once. It is as clean, because it is a new interpreter with a
single thread, and eight workers that need torch start in the time of one. `forkserver` works the same way, but Python's
own server has imported nothing, so each process would import torch again (2 workers, 3 epochs: 4.6 s; from here 1.6).
Promises: one server per set of modules and process; it ends with its parent (at_exit), and at once if Ctrl-C comes
while it is still being started, which may take seconds. Other threads that start processes meanwhile get them from
Python's own server; so do we where `multiprocessing` is not made as it is known to be.
Not its job: the workers (processes). A dataset's own modules are imported by each worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from multiprocessing import forkserver, resource_tracker
from multiprocessing.connection import wait

from feedline.supervise.shutdown import uninterrupted
from feedline.workers.at_exit import end_servers

_servers: dict[tuple[str, ...], forkserver.ForkServer] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def processes_from(modules: tuple[str, ...]) -> Iterator[None]:
    """While this lasts, this thread's processes of the forkserver context come from our server, not from Python's."""
    if not is_as_known():
        with uninterrupted():
            yield
        return
    with _lock:
        server = _servers.get(modules)
        if server is None:
            server = _servers[modules] = forkserver.ForkServer()
            server.set_forkserver_preload(["feedline.workers.undisturbed", *modules])
        with _started_by(server):
            yield


def preloaded_by_the_user() -> tuple[str, ...]:
    """What Python's own server was told to import (`multiprocessing.set_forkserver_preload`), for ours to do, too."""
    names = tuple(getattr(getattr(forkserver, "_forkserver", None), "_preload_modules", ()))
    return () if names == ("__main__",) else names  # nobody has told it anything


def is_as_known() -> bool:
    """Is Python's server made of what we use? Its class is public, how it is asked for a process is not."""
    parts = ("_forkserver_pid", "_forkserver_alive_fd", "_stop", "connect_to_new_process", "ensure_running")
    return hasattr(forkserver, "connect_to_new_process") and all(map(partial(hasattr, forkserver.ForkServer()), parts))


@contextlib.contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Delays Ctrl-C until the end of this context; processes started within it do not get Ctrl-C."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _started_by(server: forkserver.ForkServer) -> Iterator[None]:
    """Start processes from this server. Ctrl-C comes afterwards, or while a new server imports, which may take seconds.

    So the caller always knows of every process that was started.
    """
    pythons, before = forkserver.connect_to_new_process, server._forkserver_pid  # type: ignore[attr-defined]
    starting = threading.get_ident()
    end_servers(_servers)
    resource_tracker.ensure_running()  # else starting the server starts it, which unblocks SIGINT
    with uninterrupted() as let_through:
        try:
            with ctrl_c_blocked():
                server.ensure_running()
            is_new = server._forkserver_pid != before  # type: ignore[attr-defined]
            connect = _InterruptibleConnect(server, let_through) if is_new else server.connect_to_new_process

            def ours(fds: Sequence[int]) -> tuple[int, int]:
                return (connect if threading.get_ident() == starting else pythons)(fds)

            forkserver.connect_to_new_process = ours
            yield
        except BaseException:
            if server._forkserver_pid != before:  # type: ignore[attr-defined]
                _end(server)
            raise
        finally:
            forkserver.connect_to_new_process = pythons


class _InterruptibleConnect:
    """Asks a starting server for a process; Ctrl-C can interrupt it until the process exists."""

    def __init__(
        self,
        server: forkserver.ForkServer,
        let_through: Callable[[], contextlib.AbstractContextManager[None]],
    ) -> None:
        self._server = server
        self._let_through = let_through

    def __call__(self, fds: Sequence[int]) -> tuple[int, int]:
        ends: tuple[int, ...] = ()
        try:
            with self._let_through():
                reading, writing = ends = self._server.connect_to_new_process(fds)
                wait([reading])  # for its pid
        except BaseException:
            _end(self._server)
            if ends and wait([ends[0]], 0):
                _kill_if_there(ends[0])
            for end in ends:
                os.close(end)
            raise
        return reading, writing


def _kill_if_there(reading: int) -> None:
    """Kill the process whose pid can be read here, if there is one. It is still waiting for instructions."""
    with contextlib.suppress(EOFError, ProcessLookupError):
        os.kill(forkserver.read_signed(reading), signal.SIGKILL)


def _end(server: forkserver.ForkServer) -> None:
    """Kill the server: it would only notice after all its imports that it is no longer needed."""
    if (pid := server._forkserver_pid) is not None:  # type: ignore[attr-defined]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        server._stop()  # type: ignore[attr-defined]


def _in_forked_child() -> None:
    # The servers are the parent's children, not ours; a thread that exists only in the parent may hold the lock.
    global _lock
    _servers.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_forked_child)
