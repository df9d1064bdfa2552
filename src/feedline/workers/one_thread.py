"""A worker uses one thread for linear algebra: N workers with N threads each would compete for the CPUs.

Promises: OpenBLAS, MKL and OpenMP in a worker use one thread, whether they are loaded already (fork) or later; or as
many as `threads_per_worker` says. torch does the same.
Not its job: libraries that are loaded later and do not read the environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator

from feedline.errors.checks import check_function, check_whole
from feedline.machine import loaded_torch
from feedline.machine.library_loads import library_loads
from feedline.machine.worker_info import of_this_thread

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")

_SETTERS = {
    "openblas": ("openblas_set_num_threads", "openblas_set_num_threads64_", "scipy_openblas_set_num_threads64_"),
    "mkl_rt": ("MKL_Set_Num_Threads",),
    "gomp": ("omp_set_num_threads",),
    "libomp": ("omp_set_num_threads",),
    "iomp": ("omp_set_num_threads",),
}
_PARALLEL = ("openblas_get_parallel", "openblas_get_parallel64_", "scipy_openblas_get_parallel64_")
_OWN_THREADS = 1  # 0: no threads at all, 2: those of OpenMP
_NUMBER = "blas_cpu_number"
"""OpenBLAS's own variable, no part of what it promises. Where it cannot be seen, OpenBLAS is told the long way."""


def use_one_thread() -> None:
    """Called in a worker: sets libraries that are loaded already, and the environment for later ones."""
    for variable in VARIABLES:
        os.environ.setdefault(variable, "1")
    for library, setters in look_for_libraries():
        _tell(library, setters, 1)
    # OpenMP's number holds for the thread that says it, and torch's for those to come, too.
    loaded_torch.set_num_threads(1)


class threads_per_worker:
    """A `worker_init_fn`: each worker process has `count` threads for linear algebra (OpenBLAS, MKL, OpenMP, torch).

    Without it a worker has one. More threads help if few workers compute large matrix products or torch operations on
    large tensors: `feedline.tune` measures whether they do. `then` is called afterwards, as your own worker_init_fn.
    Worker threads share the main process's libraries, which are left alone: there only `then` is called.

    OpenMP (torch's on a CPU) does not survive a fork: a forked worker waits forever in its first parallel operation if
    the main process has run one before. In that case use `multiprocessing_context="forkserver"`.

    >>> from feedline import DataLoader, threads_per_worker
    >>> loader = DataLoader(range(4), num_workers=1, worker_init_fn=threads_per_worker(2))
    >>> threads_per_worker(2)
    threads_per_worker(2)
    """

    def __init__(self, count: int, then: Callable[[int], None] | None = None) -> None:
        self.count = check_whole("count", count, least=1)
        self.then = check_function("then", then)

    def __call__(self, worker: int) -> None:
        if of_this_thread() is None:
            self._tell_all()
        if self.then is not None:
            self.then(worker)

    def _tell_all(self) -> None:
        os.environ.update(dict.fromkeys(VARIABLES, str(self.count)))
        for library, setters in look_for_libraries():
            _tell(library, setters, self.count)
        loaded_torch.set_num_threads(self.count)

    def __repr__(self) -> str:
        then = "" if self.then is None else f", then={getattr(self.then, '__qualname__', self.then)}"
        return f"threads_per_worker({self.count}{then})"


@contextlib.contextmanager
def environment_of_new_workers() -> Iterator[None]:
    """Used in the parent while it starts workers: libraries read these variables when they load, and save memory."""
    added = [variable for variable in VARIABLES if variable not in os.environ]
    os.environ.update(dict.fromkeys(added, "1"))
    try:
        yield
    finally:
        for variable in added:
            os.environ.pop(variable, None)


def _tell(library: ctypes.CDLL, setters: tuple[str, ...], count: int) -> None:
    if count == 1 and _quietly_one(library):
        return
    for name in setters:
        if hasattr(library, name):
            getattr(library, name)(count)


def _quietly_one(library: ctypes.CDLL) -> bool:
    """Make an OpenBLAS that has its own threads work without them. False if the library is not such an OpenBLAS.

    After a fork it has no threads, but setting any number, even 1, makes it start one per CPU. Each of them spins for
    50 ms: with 8 workers on two cores that is most of the time to the first batch (benchmarks/first_batch.py).
    """
    kind = next((name for name in _PARALLEL if hasattr(library, name)), None)
    if kind is None or getattr(library, kind)() != _OWN_THREADS:
        return False
    try:
        ctypes.c_int.in_dll(library, _NUMBER).value = 1
    except ValueError:  # it is not to be seen
        return False
    return True


def look_for_libraries() -> list[tuple[ctypes.CDLL, tuple[str, ...]]]:
    """The libraries that are loaded, and the functions that set their threads.

    They are looked for again only if a library has been loaded since. A forked worker knows what its parent has found:
    looking would take 1.5 ms of the 7 until it is ready (benchmarks/first_batch.py).
    """
    global _found
    loads = library_loads()
    if not loads or loads != _found[0]:
        _found = loads, list(_searched())
    return _found[1]


_found: tuple[int, list[tuple[ctypes.CDLL, tuple[str, ...]]]] = (0, [])
"""How many libraries had been loaded then, and those that were found."""


def _searched() -> Iterator[tuple[ctypes.CDLL, tuple[str, ...]]]:
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            paths = {line.rstrip("\n").partition("/")[2] for line in maps if "/" in line}
    except OSError:
        return
    for path in sorted(paths):
        file = os.path.basename(path)
        for part, setters in _SETTERS.items():
            if part in file and ".so" in file:
                yield ctypes.CDLL("/" + path), setters
