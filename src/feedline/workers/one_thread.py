"""One thread per worker for linear algebra: N workers of N threads each would only get in each other's way.

Promises: OpenBLAS, MKL and OpenMP in a worker use one thread, whether they are loaded already (fork) or will be.
Not its job: torch's own pool (its front).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Iterator

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_SETTERS = {
    "openblas": ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads64_"),
    "mkl_rt": ("MKL_Set_Num_Threads",),
    "gomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "iomp": ("omp_set_num_threads",),
}


def use_one_thread() -> None:
    """In a worker: for libraries loaded already, and for those to come."""
    for variable in VARIABLES:
        os.environ.setdefault(variable, "1")
    for path, setters in _loaded_libraries():
        library = ctypes.CDLL(path)
        for name in setters:
            if hasattr(library, name):
                getattr(library, name)(1)


@contextlib.contextmanager
def environment_of_new_workers() -> Iterator[None]:
    """In the parent, while it starts workers: libraries read these when they load, and then need less memory."""
    added = [variable for variable in VARIABLES if variable not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for variable in added:
            os.environ.pop(variable, None)


def _loaded_libraries() -> Iterator[tuple[str, tuple[str, ...]]]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.rstrip("\n").partition("/")[2] for line in maps if "/" in line}
    except OSError:
        return
    for path in sorted(paths):
        file = os.path.basename(path)
        for part, setters in _SETTERS.items():
            if part in file and ".so" in file:
                yield "/" + path, setters
