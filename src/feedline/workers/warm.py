"""A clean process that has imported what workers need, once; workers are forked from it.

Takes: the modules to import. Gives: a way to start processes there. What `spawn` does for each worker — a new
interpreter, all imports again — is done once: as clean, because the server is a new interpreter with a single thread,
and eight workers that need torch start in the time of one.
Promises: one server per set of modules and process; it ends with its parent.
Not its job: the workers (processes). A dataset's own modules are imported by each worker.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from multiprocessing import forkserver

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
            yield
        finally:
            forkserver.connect_to_new_process = pythons


def _in_forked_child() -> None:
    # The servers are the parent's children, not ours; the lock may be held by a thread we do not have.
    global _lock
    _servers.clear()
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_forked_child)
