"""Libraries that do not survive a fork: in a forked worker a call into one may wait forever, whatever the sample.

Takes: what is loaded in this process when workers are forked; where a worker is stuck. Gives: a sentence that names the
library, or none. Promises: a library is named only if a worker waits for a lock (how such a hang looks from outside)
and its stuck call is in that library; or, with "may", if the library had threads in this process.
Not its job: what the dataset itself holds (workers.carried).
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable

from feedline.errors.foreign import ask
from feedline.machine import loaded_torch
from feedline.supervise.watch import Standing

LIBRARIES = {
    "polars": "polars",
    "grpc": "gRPC",
    "pyarrow": "pyarrow",
    "cv2": "OpenCV",
    "jax": "JAX",
    "tensorflow": "TensorFlow",
    "torch": "torch",
    "sklearn": "scikit-learn",
    "numba": "numba",
    "xgboost": "XGBoost",
    "lightgbm": "LightGBM",
}
"""Module and name of libraries that have their own threads (pools, or those of OpenMP)."""
THREADS = {"polars": r"polars-\d", "gRPC": r"grpc|event_engine"}
"""The names of their threads, for libraries that name them."""
CUDA = "CUDA (torch)"
REMEDY = "multiprocessing_context='forkserver' starts workers that inherit nothing from this process."
_LOCK = ("futex", "0")
"""If a process waits for a lock, its `wchan` begins with "futex", or is "0" if the system does not say."""

_loaded: set[str] = set()
_had_threads: set[str] = set()
"""Libraries that were loaded, and libraries that had threads, at any time when workers were forked."""


def note_fork() -> None:
    """Workers are about to be forked."""
    _loaded.update(module for module in LIBRARIES if sys.modules.get(module) is not None)
    if "polars" in _loaded or "grpc" in _loaded or "torch" in _loaded:
        _had_threads.update(running())


def running() -> list[str]:
    """Libraries that are known to have threads in this process now."""
    names = _thread_names()
    found = [name for name, pattern in THREADS.items() if any(re.match(pattern, each) for each in names)]
    return [*found, CUDA] if loaded_torch.has_begun_cuda() else found


def hint(standings: Iterable[Standing], stacks: dict[int, str]) -> str:
    """The sentence about stuck forked workers; empty if nothing points to such a library."""
    waiting = [at for at in standings if at.task is not None and at.pid is not None and _waits_for_lock(at.pid)]
    for at in waiting:
        if name := _library_of(stacks.get(at.worker, "")):
            return (
                f"Worker {at.worker} waits inside {name}, which was loaded in this process before its workers were "
                "forked: a forked process does not get the threads of its parent, and a lock that one of them held "
                f"is held forever. So the sample is most likely not the cause. {REMEDY}"
            )
    if waiting and _had_threads:
        return (
            f"{' and '.join(sorted(_had_threads))} had threads in this process when its workers were forked, and a "
            "forked process does not get them; a worker that waits for a lock may be waiting for such a thread. "
            f"{REMEDY}"
        )
    return ""


def _library_of(stack: str) -> str:
    """The library that the innermost call is in; empty if it is in none of these."""
    innermost = re.search(r'File "([^"]+)"', stack)
    for module in _loaded if innermost is not None else ():
        file = ask(sys.modules.get(module), "__file__")
        if isinstance(file, str) and innermost is not None and innermost[1].startswith(os.path.dirname(file) + os.sep):
            return LIBRARIES[module]
    return ""


def _waits_for_lock(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat, open(f"/proc/{pid}/wchan", encoding="ascii") as where:
            return stat.read().rpartition(b")")[2].split()[0] == b"S" and where.read().startswith(_LOCK)
    except (OSError, IndexError, UnicodeDecodeError):
        return False


def _thread_names() -> list[str]:
    names: list[str] = []
    try:
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/comm", encoding="utf-8", errors="replace") as comm:
                names.append(comm.read())
    except OSError:  # the thread has just ended
        pass
    return names
