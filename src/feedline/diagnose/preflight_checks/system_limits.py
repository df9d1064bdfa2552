"""Checks: are enough open files, temporary files and processes allowed? Is it safe to fork this process now?

Takes: a plan. Gives: findings "open-files", "temporary-files", "process-limit", "start-methods" and "fork-hazards".
Promises: leaves no file behind; imports and initialises nothing.
Not its job: what a dataset carries into a fork (workers/carried, and the doctor).
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator

from feedline.diagnose.findings import NOTE, OK, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.remedies import OPEN_FILES, TEMPORARY_FILES, more_processes
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.machine.cgroups import folders, number_of, numbers_of
from feedline.supervise import watchdog

PER_WORKER, PER_LOADER = 6, 12
"""Descriptors. Measured: 3 per worker and 9 more for a map-style dataset, 6 and 4 for a stream.
tests/diagnose/test_preflight.py checks that these are enough."""
COMMON = 1024
"""The soft limit of most systems."""
HELPERS = 2
"""Processes besides the workers: multiprocessing's resource tracker, and the server that workers are forked from."""
THREADS_OF_A_LIBRARY = 32
"""Threads that a process with torch and OpenBLAS may start; each counts as a process here."""
KNOWN_HAZARDS = {
    "jax": "JAX runs threads of its own and says itself that a fork may deadlock.",
    "tensorflow": "TensorFlow's runtime does not work in a forked process.",
    "polars": "Once polars has computed something, a call in a forked process waits for its threads for ever.",
    "grpc": "Channels of gRPC do not work in a forked process unless its fork support is on.",
}


def check_open_files(plan: WorkerPlan) -> Iterator[Finding]:
    """`ulimit -n`, compared with what the plan's workers need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
    wanted = PER_LOADER + PER_WORKER * plan.num_workers
    evidence = {"soft": soft, "hard": hard, "open": open_now, "needed": wanted}
    title = (
        f"Open files: {_count(soft)} allowed ({_count(hard)} at most), {open_now} open; {plan.workers} take {wanted}"
    )
    if soft != resource.RLIM_INFINITY and open_now + wanted > soft:
        words = "Each worker takes a few descriptors, whatever is in a batch: so many are not available."
        yield Finding("open-files", PROBLEM, title, evidence, words, "raise the limit.", OPEN_FILES)
    elif soft != resource.RLIM_INFINITY and open_now + 2 * wanted > soft:
        words = "That leaves few for the files of your dataset and for a second loader, say for validation."
        yield Finding("open-files", WARNING, title, evidence, words, "raise the limit.", OPEN_FILES)
    elif soft != resource.RLIM_INFINITY and soft <= COMMON:
        words = "Enough for feedline. torch's own loader takes one for each tensor that is on its way or kept."
        remedy = "nothing for feedline. If torch.utils.data.DataLoader is used as well, raise the limit."
        yield Finding("open-files", NOTE, title, evidence, words, remedy, OPEN_FILES)
    else:
        yield Finding("open-files", OK, title, evidence)


def _count(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit:,}"


def check_temporary_files(plan: WorkerPlan) -> Iterator[Finding]:
    """Workers that are not forked connect to their parent by a socket in a temporary folder: make a similar one."""
    folder, made, evidence = None, "", dict[str, object]()
    try:
        folder = tempfile.gettempdir()
        made = tempfile.mkdtemp(prefix="pymp-", dir=folder)  # the prefix that multiprocessing uses
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(os.path.join(made, "listener-12345678"))
    except OSError as error:
        why = str(error.strerror or error) if folder else str(error)
        evidence = {"folder": folder, "error": str(error)}
        yield _without_socket(folder or "", why, evidence) if made else _without_files(folder, why, evidence)
    else:
        evidence = {"folder": folder, "free": shutil.disk_usage(folder).free}
        yield Finding("temporary-files", OK, f"Temporary files: {folder} can be written", evidence)
    finally:
        if made:
            shutil.rmtree(made, ignore_errors=True)


def _without_files(folder: str | None, why: str, evidence: dict[str, object]) -> Finding:
    return Finding(
        "temporary-files",
        WARNING,
        f"Temporary files cannot be made ({f'{folder}: {why}' if folder else why})",
        evidence,
        "Workers started by spawn or forkserver meet their parent at a socket in a temporary folder. Forked ones and "
        "threads need none.",
        "make /tmp writable, or point TMPDIR to a folder that is.",
        TEMPORARY_FILES,
    )


def _without_socket(folder: str, why: str, evidence: dict[str, object]) -> Finding:
    return Finding(
        "temporary-files",
        WARNING,
        f"No socket can be made in {folder} ({why})",
        {**evidence, "length": len(os.fsencode(folder))},
        "Workers started by spawn or forkserver meet their parent at a socket there. The path of a socket has 107 "
        "bytes at most, of which 32 are needed below the folder, and not every file system can hold one.",
        "point TMPDIR to a local folder with a short name.",
        "export TMPDIR=/tmp",
    )


def check_process_limit(plan: WorkerPlan) -> Iterator[Finding]:
    """The pids cgroup and `ulimit -u`, compared with the plan's workers."""
    wanted = plan.num_workers + HELPERS
    of_cgroup, of_user = _left_in_cgroup(), _left_to_user()
    left = min((count for count in (of_cgroup, of_user) if count is not None), default=None)
    evidence = {"left_in_cgroup": of_cgroup, "left_to_user": of_user, "needed": wanted}
    if left is None:
        yield Finding("process-limit", OK, f"Processes: no limit; {plan.workers} take {wanted}", evidence)
        return
    whose = "container" if left == of_cgroup else "user (ulimit -u)"
    title = f"Processes: {left:,} more allowed to the {whose}; {plan.workers} take {wanted}"
    code = more_processes(4096) if left == of_cgroup else "ulimit -u unlimited"
    if left < wanted:
        words = "The system will refuse to start the workers: 'Resource temporarily unavailable'."
        yield Finding("process-limit", PROBLEM, title, evidence, words, "raise the limit or lower num_workers.", code)
    elif left < wanted + THREADS_OF_A_LIBRARY:
        words = "Threads count, too, and libraries for linear algebra start one per CPU."
        yield Finding("process-limit", WARNING, title, evidence, words, "raise the limit or lower num_workers.", code)
    else:
        yield Finding("process-limit", OK, title, evidence)


def _left_in_cgroup(proc: str = "/proc") -> int | None:
    left = []
    for path, _ in folders("pids", proc):
        most, now = number_of(f"{path}/pids.max"), number_of(f"{path}/pids.current")  # "max" means no limit
        if most is not None and now is not None:
            left.append(max(0, most - now))
    return min(left, default=None)


def _left_to_user() -> int | None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft == resource.RLIM_INFINITY or os.geteuid() == 0:  # the limit does not apply to root
        return None
    return max(0, soft - _threads_of_user(os.getuid()))


def _threads_of_user(uid: int) -> int:
    """The threads that are visible here: the kernel also counts those in other containers."""
    total = 0
    for name in os.listdir("/proc"):
        if name.isdecimal():
            facts = numbers_of(f"/proc/{name}/status", "Uid:", "Threads:")
            if facts.get("Uid") == uid:
                total += facts.get("Threads", 1)
    return total


def check_start_methods(plan: WorkerPlan) -> Iterator[Finding]:
    """How worker processes can be started here, and how they are started by default."""
    methods = multiprocessing.get_all_start_methods()
    default = start_method()
    chosen = multiprocessing.get_start_method(allow_none=True) is not None
    evidence = {"available": methods, "default": default, "set_by_the_program": chosen}
    origin = "set by the program" if chosen else "the default"
    title = f"Start methods: {default} ({origin}); available: {', '.join(methods)}"
    yield Finding("start-methods", OK, title, evidence)


def start_method() -> str:
    """The method that multiprocessing will use. Its own function would fix the method for the whole program."""
    return multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]


def check_fork_hazards(plan: WorkerPlan) -> Iterator[Finding]:
    """Things in this process that would not survive a fork."""
    others = (thread for thread in threading.enumerate() if thread is not threading.main_thread())
    threads = [thread.name for thread in others if thread.name != watchdog.NAME]  # the watchdog stops during forks
    libraries = [name for name in KNOWN_HAZARDS if name in sys.modules]
    cuda = _cuda_is_initialised()
    evidence = {"threads": threads, "libraries": libraries, "cuda_initialised": cuda, "default": start_method()}
    reasons = [KNOWN_HAZARDS[name] for name in libraries]
    if threads:
        names = ", ".join(threads[:5]) + (f" and {len(threads) - 5} more" if len(threads) > 5 else "")
        reasons.insert(0, f"Threads are running ({names}): a lock that one holds at the fork stays held for ever.")
    if cuda:
        reasons.insert(0, "CUDA is initialised, and cannot be used in a process forked after that.")
    if not reasons:
        yield Finding("fork-hazards", OK, "Fork hazards: none in this process", evidence)
        return
    fork = start_method() == "fork"
    yield Finding(
        "fork-hazards",
        WARNING if fork else NOTE,
        f"Fork hazards: {len(reasons)} in this process" + ("" if fork else "; workers are not forked by default"),
        evidence,
        " ".join(reasons),
        "start workers from a clean process (as quick as fork here: one server is started, once), or iterate before "
        "these begin.",
        'DataLoader(…, multiprocessing_context="spawn")',
    )


def _cuda_is_initialised() -> bool:
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return bool(cuda is not None and cuda.is_initialized())
