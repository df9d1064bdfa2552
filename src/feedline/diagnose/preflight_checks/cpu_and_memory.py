"""Checks: are there enough CPUs and enough memory, and do programs that count CPUs see the limit?

Takes: a plan. Gives: findings "cpu-limit", "threads", "memory-limit", "address-space" (only if limited) and
"shared-memory" (for code that needs /dev/shm).
Not its job: reading the limits (machine/cpus, arena/limits); whether feedline's own segment can be made (kernel).
"""

from __future__ import annotations

import math
import multiprocessing
import os
import resource
from collections.abc import Iterator

from feedline.arena.limits import MACHINE, Room, room
from feedline.arena.segment import reserve_of
from feedline.diagnose.findings import NOTE, OK, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.remedies import SHARED_MEMORY, more_cpus, more_memory
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.errors.counting import counted
from feedline.machine.cpus import Cpus
from feedline.workers.one_thread import VARIABLES

DOCKERS_SHM = 64 << 20
"""The default size of /dev/shm in a container."""
TIGHT = 1 << 30
"""A smaller /dev/shm holds few batches of torch's loader: 64×3×224×224 float32 is 38 MB, and 2 × 8 are made ahead."""


def check_cpus(plan: WorkerPlan) -> Iterator[Finding]:
    """The usable CPUs, compared with the host's and with the plan's workers."""
    cpus = plan.cpus
    severity, explanation, remedy, code = OK, "", "", ""
    if plan.given and plan.num_workers > math.ceil(cpus.usable):
        severity = WARNING
        explanation = (
            f"{plan.workers} are planned, but only {_number(cpus.usable)} CPUs' worth can run at once. The others wait "
            "for their turn and take memory. (If they wait for a disk or a network, more may be right: measure.)"
        )
        could_be_more = cpus.usable < cpus.host
        remedy = f"take num_workers={cpus.workers}{', or raise the limit' if could_be_more else ''}."
        more = f"\n{more_cpus(min(plan.num_workers, cpus.host))}" if could_be_more else ""
        code = f"DataLoader(…, num_workers={cpus.workers}){more}"
    elif cpus.usable < 1:
        severity = WARNING
        explanation = (
            "With less than one CPU the training loop and its workers take turns: every batch is waited for, and the "
            "container stands still for the rest of each 0.1 s once its share is used up."
        )
        remedy = "give the container a CPU at least, and two with a worker process."
        code = more_cpus(2)
    elif cpus.usable < cpus.host:
        severity = NOTE
        explanation = (
            f"os.cpu_count() says {os.cpu_count()} here: programs that use it start too many threads and workers."
        )
        remedy = "count workers from this limit."
        code = f"DataLoader(…, num_workers={cpus.workers})"
    if cpus.throttled and cpus.throttled >= 0.01:  # below one in a hundred nobody notices
        explanation += f" So far the quota was used up, and all stood still, in {cpus.throttled:.0%} of the periods."
    evidence = {
        "host": cpus.host,
        "affinity": cpus.allowed,
        "quota": cpus.quota,
        "usable": cpus.usable,
        "throttled_share": cpus.throttled,
        "suggested_num_workers": cpus.workers,
    }
    yield Finding("cpu-limit", severity, _title(cpus), evidence, explanation, remedy, code)


def _title(cpus: Cpus) -> str:
    because = []
    if cpus.quota is not None and cpus.quota < cpus.host:
        because.append(f"a quota of {_number(cpus.quota)} (cgroup v{cpus.version})")
    if cpus.allowed < cpus.host:
        because.append(f"affinity to {cpus.allowed}")
    reason = f" because of {' and '.join(because)}" if because else ""
    return f"CPUs: {_number(cpus.usable)} of {cpus.host} usable{reason}; suggested: num_workers={cpus.workers}"


def check_threads(plan: WorkerPlan) -> Iterator[Finding]:
    """The threads of linear algebra, in the main process and in each worker, compared with the CPUs."""
    cpus, most = plan.cpus, plan.cpus.workers
    told = {name: count for name in VARIABLES if (count := _told(name)) is not None}
    per_worker = max(told.values(), default=1)
    evidence: dict[str, object] = {**told, "threads_per_worker": per_worker, "num_workers": plan.num_workers}
    if cpus.quota is not None and most < cpus.allowed and "OMP_NUM_THREADS" not in told:
        yield Finding(
            "threads",
            WARNING,
            f"OMP_NUM_THREADS is not set: libraries start {counted(cpus.allowed, 'thread')} on "
            f"{_number(cpus.quota)} CPUs' time",
            evidence,
            "OpenMP, OpenBLAS, MKL and torch count the CPUs they see, not the quota. In the main process their threads "
            "use it up in a fraction of each period, and then everything stands still, workers included. (feedline's "
            "worker processes use one thread each and are not meant.)",
            "set the number of threads in the image or before torch is used.",
            f"ENV OMP_NUM_THREADS={most}          # Dockerfile\ntorch.set_num_threads({most})",
        )
    elif per_worker > 1 and plan.num_workers * per_worker > math.ceil(cpus.usable):
        name = max(told, key=told.__getitem__)
        yield Finding(
            "threads",
            NOTE,
            f"{name}={per_worker} holds for libraries loaded in a worker: {plan.workers}, {per_worker} threads each",
            evidence,
            "Libraries for linear algebra that a worker begins with are held to one thread. Those it loads later "
            "(your dataset's imports, unless it was forked with them) do what the variable says, and more threads than "
            "CPUs wait for one another.",
            "nothing, unless the dataset uses such a library (OpenCV, numexpr); then leave the variable out and set "
            "the main process's threads in code.",
            f"unset {' '.join(told)}\ntorch.set_num_threads({most})",
        )
    else:
        words = ", ".join(f"{name}={count}" for name, count in told.items())
        title = f"Threads: {words or 'one for linear algebra in each worker process'}"
        yield Finding("threads", OK, title, evidence)


def _told(name: str) -> int | None:
    first = os.environ.get(name, "").split(",")[0].strip()  # OpenMP accepts a list, one number for each level
    return int(first) if first.isdecimal() and int(first) else None


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def check_memory(plan: WorkerPlan) -> Iterator[Finding]:
    """What is free under the tightest limit, compared with the memory of the plan's batches."""
    left = room()
    if left is None:
        yield Finding("memory-limit", NOTE, "Memory: no limit could be read (is /proc mounted?)")
        return
    reserve, wanted = reserve_of(left.limit), plan.bytes_of_batches
    evidence = {"free": left.free, "limit": left.limit, "whose": left.which, "reserve": reserve}
    title = f"Memory: {size(left.free)} free of the {size(left.limit)} that the {left.which} may use"
    if wanted is not None:
        evidence |= {"batches": wanted, "num_workers": plan.num_workers, "prefetch_factor": plan.prefetch_factor}
        title += f"; the batches of {plan.workers} take {size(wanted)}"
    yield Finding("memory-limit", *_judged(left, reserve, wanted, title, evidence))


def _judged(
    left: Room, reserve: int, wanted: int | None, title: str, evidence: dict[str, object]
) -> tuple[str, str, dict[str, object], str, str, str]:
    spare = left.free - reserve
    at_least = max(left.limit - spare + 2 * (wanted or 0), left.limit + 1)  # a limit with which all would be well
    where = "free memory on the machine" if left.which == MACHINE else "raise the container's limit"
    code = "" if left.which == MACHINE else more_memory(at_least)
    if spare <= 0:
        words = f"feedline keeps {size(reserve)} in reserve and refuses batches beyond that: a container kills."
        return PROBLEM, title, evidence, words, f"{where}.", code
    if wanted is not None and wanted > spare:
        words = (
            f"Of what is free {size(reserve)} stay in reserve. A batch that does not fit is refused (MemoryShortage). "
            "The dataset and what your code takes are not even counted."
        )
        return PROBLEM, title, evidence, words, f"lower batch_size, num_workers or prefetch_factor, or {where}.", code
    if wanted is not None and wanted > spare // 2:
        words = "More than half of what is free, and the dataset and what your code takes are not counted."
        return WARNING, title, evidence, words, f"lower batch_size, num_workers or prefetch_factor, or {where}.", code
    return OK, title, evidence, "", "", ""


def check_address_space(plan: WorkerPlan) -> Iterator[Finding]:
    """`ulimit -v`, which nobody expects; reported only if it is set."""
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY:
        return
    yield Finding(
        "address-space",
        WARNING,
        f"Address space limited to {size(soft)} (ulimit -v)",
        {"limit": soft},
        "This counts what is mapped, not what is used. Libraries such as torch map many times what they use, and every "
        "batch that is held is mapped.",
        "remove this limit; limit memory through a container instead.",
        "ulimit -v unlimited",
    )


def check_shared_memory(plan: WorkerPlan) -> Iterator[Finding]:
    """/dev/shm: not for feedline, but for torch's loader and for locks in a dataset."""
    try:
        found = os.statvfs("/dev/shm")
        total, free = found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize
    except OSError:
        total = free = 0
    evidence = {"total": total, "free": free, "used_by_feedline": False, "locks_can_be_made": _locks_can_be_made()}
    title = f"/dev/shm: {size(free)} free of {size(total)}" if total else "/dev/shm: there is none"
    if not evidence["locks_can_be_made"]:
        yield Finding(
            "shared-memory",
            WARNING,
            f"{title}; multiprocessing.Lock cannot be made in it",
            evidence,
            "feedline does not use it. A dataset with a Lock, Queue or Value of multiprocessing does, and so does "
            "torch's own loader.",
            "give the container a /dev/shm that this user may write to.",
            SHARED_MEMORY,
        )
    elif free < TIGHT:
        small = " That is Docker's default." if total == DOCKERS_SHM else ""
        yield Finding(
            "shared-memory",
            NOTE,
            f"{title}; feedline does not use it",
            evidence,
            f"torch's own loader does: when it is full, its workers die of a bus error.{small}",
            "nothing for feedline. If torch.utils.data.DataLoader is used as well, make it larger.",
            SHARED_MEMORY,
        )
    else:
        yield Finding("shared-memory", OK, f"{title}; feedline does not use it", evidence)


def _locks_can_be_made() -> bool:
    try:
        multiprocessing.get_context("fork").Lock()  # with fork, its name is removed at once
    except (OSError, ImportError, ValueError):
        return False
    return True


def size(count: int) -> str:
    """A number of bytes in words.

    >>> size(64 << 20), size(5 << 30), size(900)
    ('64 MiB', '5.0 GiB', '900 bytes')
    """
    if count >= 1 << 30:
        return f"{count / (1 << 30):,.1f} GiB"
    if count >= 1 << 20:
        return f"{count / (1 << 20):.0f} MiB"
    return f"{count // 1024} KiB" if count >= 1024 else f"{count} bytes"
