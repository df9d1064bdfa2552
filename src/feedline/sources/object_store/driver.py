"""obstore, once per process: what is open here, and what to do after a fork.

Takes: a place and how to open it. Gives: what is open for it in this process, opened on first use.
Promises: what was opened before a fork is neither used nor closed after it. obstore's threads do not survive a fork,
and any call would then wait forever (measured: obstore 0.12), so a forked process loads a copy of its library, whose
threads are its own: 20 ms and some 10 MB. Where it cannot, that is an error, and never a hang.
Not its job: requests (store).
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any, NamedTuple

from feedline.errors import SourceError
from feedline.errors.missing_packages import extra

LIBRARY = "obstore._obstore"


class Library(NamedTuple):
    """obstore as it is in this process."""

    functions: Any
    stores: Any


class Opened(NamedTuple):
    """A place, open in this process."""

    functions: Any
    """obstore's, such as `get`."""
    first: Any
    """obstore's store until something has been read: it gives up soon, since a wrong host will not become right."""
    later: Any
    """…and from then on: patient with a server that is busy."""
    pool: ThreadPoolExecutor
    proven: threading.Event


class _Here:
    """What this process has open. Not an attribute of places: these are pickled, and looked through before a fork."""

    def __init__(self, forked: bool) -> None:
        self.lock = threading.Lock()
        self.opened: weakref.WeakKeyDictionary[Any, Opened] = weakref.WeakKeyDictionary()
        self.forked_with_library = forked
        self.library: Library | None = None


_here = _Here(forked=False)
_left_behind: list[list[Opened]] = []
"""What was open before a fork. Dropping it would run obstore's code here, on a poller that the parent shares and on
locks that a thread of the parent's may have held: so it is kept, and never touched."""


def _after_fork() -> None:
    global _here
    _left_behind.append(list(_here.opened.values()))
    _here = _Here(forked=LIBRARY in sys.modules)


os.register_at_fork(after_in_child=_after_fork)


def opened(place: Any, make: Callable[[Library], Opened]) -> Opened:
    """What is open for a place in this process; `make` opens it with obstore's library."""
    here = _here
    found = here.opened.get(place)
    if found is not None:
        return found
    with here.lock:
        if place not in here.opened:
            if here.library is None:
                here.library = _second_copy() if here.forked_with_library else _library()
            here.opened[place] = make(here.library)
        return here.opened[place]


def close(place: Any) -> None:
    """End what is open for a place in this process."""
    found = _here.opened.pop(place, None)
    if found is not None:
        found.pool.shutdown(cancel_futures=True)


def _library() -> Library:
    return Library(*(extra(name, "object-store", "object storage") for name in ("obstore", "obstore.store")))


def _second_copy() -> Library:
    """The library again, from a file of its own: the loader gives the same file only once to a process."""
    original = sys.modules[LIBRARY].__file__
    try:
        with open(str(original), "rb") as file:
            descriptor = os.memfd_create("obstore")
            try:
                left = os.fstat(file.fileno()).st_size
                while left:
                    left -= os.sendfile(descriptor, file.fileno(), None, left)
                return _load(f"/proc/self/fd/{descriptor}")
            finally:
                os.close(descriptor)
    except (OSError, ImportError, AttributeError) as error:
        raise SourceError(
            "object storage was used before this process was forked, and obstore cannot be loaded again here "
            f"({error}); start workers with multiprocessing_context='spawn', or workers='thread'"
        ) from error


def _load(path: str) -> Library:
    loader = ExtensionFileLoader("_obstore", path)
    spec = spec_from_file_location("_obstore", path, loader=loader)
    assert spec is not None
    before = {name: module for name, module in sys.modules.items() if name.startswith("obstore")}
    module = module_from_spec(spec)
    loader.exec_module(module)
    sys.modules.update(before)  # the copy is ours alone: whoever imports obstore gets what they had
    return Library(module, module._store)
