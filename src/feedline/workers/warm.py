"""A clean process that has imported what workers need, once; workers are forked from it.

Takes: the modules to import. Gives: a way to start processes there. What `spawn` does for each worker — a new
interpreter, all imports again — is done once: as clean, because the server is a new interpreter with a single thread,
and eight workers that need torch start in the time of one.
Promises: one server per set of modules and process; it ends with its parent, and at once if Ctrl-C comes while it is
still being started, which may take seconds.
Not its job: the workers (processes). A dataset's own modules are imported by each worker.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from multiprocessing import forkserver, resource_tracker

from feedline.supervise.shutdown import uninterrupted

_servers: dict[tuple[str, ...], forkserver.ForkServer] = {}
_lock = threading.Lock()


@contextlib.contextmanager
def processes_from(modules: tuple[str, ...]) -> Iterator[None]:
    """While this lasts, processes of the forkserver context come from our server and not from Python's own."""
    with _lock:
        server = _servers.get(modules)
        if server is None:
            server = _servers[modules] = forkserver.ForkServer()
            server.set_forkserver_preload(["feedline.workers.undisturbed", *modules])
        pythons = forkserver.connect_to_new_process
        forkserver.connect_to_new_process = server.connect_to_new_process
        try:
            with _ready(server):
                yield
        finally:
            forkserver.connect_to_new_process = pythons


def processes_from_pythons_own() -> contextlib.AbstractContextManager[None]:
    """The same from Python's own server, which others may use, too."""
    return _ready(forkserver._forkserver)


@contextlib.contextmanager
def ctrl_c_blocked() -> Iterator[None]:
    """Ctrl-C comes after this, and who is started meanwhile does not get it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _ready(server: forkserver.ForkServer) -> Iterator[None]:
    """Somebody starts processes there, which takes no time, unless the server has to be started before."""
    is_new = server._forkserver_pid is None  # type: ignore[attr-defined]
    resource_tracker.ensure_running()  # or the server's start runs it, and that unblocks SIGINT again
    with ctrl_c_blocked():
        server.ensure_running()
        if not is_new:
            yield
            return
    try:
        yield
    except BaseException:
        with uninterrupted():
            _end(server)
        raise


def _end(server: forkserver.ForkServer) -> None:
    """It imports what workers need, and would notice only then that nobody needs it any more."""
    if (pid := server._forkserver_pid) is not None:  # type: ignore[attr-defined]
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        server._stop()  # type: ignore[attr-defined]


def _in_forked_child() -> None:
    # The servers are the parent's children, not ours; the lock may be held by a thread we do not have.
    global _lock
    _servers.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_forked_child)
