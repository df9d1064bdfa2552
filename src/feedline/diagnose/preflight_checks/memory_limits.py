"""Checks: is there memory for the batches? Is shared memory available, and how much for code that needs /dev/shm?

Takes: a plan. Gives: findings "memory-limit", "address-space" (only if limited) and "shared-memory".
Not its job: reading the limits (arena/limits); whether feedline's own segment can be made (kernel).
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from collections.abc import Iterator

from feedline.arena.limits import MACHINE, Room, room
from feedline.arena.segment import reserve_of
from feedline.diagnose.findings import NOTE, OK, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.remedies import SHARED_MEMORY, more_memory
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan

DOCKERS_SHM = 64 << 20
"""The default size of /dev/shm in a container."""
TIGHT = 1 << 30
"""A smaller /dev/shm holds few batches of torch's loader: 64×3×224×224 float32 is 38 MB, and 2 × 8 are made ahead."""


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
        "lift it; limit memory through a container instead.",
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
