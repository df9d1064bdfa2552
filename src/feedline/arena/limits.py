"""How much memory there still is, before a container's limit or the machine's end.

Takes: the files the kernel keeps about it. Gives: a `Room` — bytes free, the limit, and whose limit it is.
Promises: the tightest of the limits that hold for this process (its cgroup and all those around it, version 1 or 2, and
the machine); never an exception: a file that cannot be read says nothing, and if all say nothing the answer is None.
Not its job: where the files are (cgroups), what is done when there is too little (segment).

A cgroup does not refuse memory, it kills: hence a look before asking. What counts as free:
- The page cache and reclaimable kernel memory, as in the kernel's own MemAvailable: they make room when asked. Counting
  the inactive half of the cache alone (as `kubectl top` does) would refuse memory to whoever reads a dataset twice.
- Swap, as far as the machine has some free and the cgroup (version 2: memory.swap.max; version 1: memory.memsw) allows.
Version 2's memory.high is left out: beyond it a process is slowed down, not killed.

One look takes 80 µs on a machine without limits and 150 µs in a container with one (cgroup v1, Linux 6.18).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from feedline.machine.cgroups import folders, number_of, numbers_of

MACHINE, CONTAINER_V1, CONTAINER_V2 = "machine", "container (cgroup v1)", "container (cgroup v2)"
NO_LIMIT = 1 << 62
"""Version 1 writes nearly 2**63 for no limit; no machine has that much."""


class Room(NamedTuple):
    """What is left of which limit, in bytes. Swap counts as free, but the limit is the one that was set."""

    free: int
    limit: int
    which: str


def room(proc: str = "/proc") -> Room | None:
    """The least room that any limit leaves this process; None if nothing is known.

    >>> left = room()
    >>> left is None or left.which in (MACHINE, CONTAINER_V1, CONTAINER_V2)
    True
    """
    machine = numbers_of(f"{proc}/meminfo", "MemTotal:", "MemAvailable:", "SwapFree:")
    spare_swap = machine.get("SwapFree", 0) * 1024
    rooms = list(_of_cgroups(proc, spare_swap))
    if "MemAvailable" in machine:
        rooms.append(Room(machine["MemAvailable"] * 1024 + spare_swap, machine.get("MemTotal", 0) * 1024, MACHINE))
    return min(rooms, default=None)


def _of_cgroups(proc: str, spare_swap: int) -> Iterator[Room]:
    for path, version in folders("memory", proc):
        found = _room_v2(path, spare_swap) if version == 2 else _room_v1(path, spare_swap)
        if found is not None:
            yield found


def _room_v2(folder: str, spare_swap: int) -> Room | None:
    limit = number_of(f"{folder}/memory.max")  # "max" is none
    used = None if limit is None else number_of(f"{folder}/memory.current")
    if limit is None or used is None:
        return None
    cache = numbers_of(f"{folder}/memory.stat", "inactive_file ", "active_file ", "slab_reclaimable ")
    most_swap, used_swap = number_of(f"{folder}/memory.swap.max"), number_of(f"{folder}/memory.swap.current")
    if used_swap is None:  # not kept account of: count on none
        spare_swap = 0
    elif most_swap is not None:  # else the file says "max"
        spare_swap = min(spare_swap, max(0, most_swap - used_swap))
    return Room(max(0, limit - used + min(sum(cache.values()), used) + spare_swap), limit, CONTAINER_V2)


def _room_v1(folder: str, spare_swap: int) -> Room | None:
    limit = number_of(f"{folder}/memory.limit_in_bytes")
    used = None if limit is None or limit >= NO_LIMIT else number_of(f"{folder}/memory.usage_in_bytes")
    if limit is None or used is None:
        return None
    cache = numbers_of(f"{folder}/memory.stat", "total_inactive_file ", "total_active_file ")
    with_swap = number_of(f"{folder}/memory.memsw.limit_in_bytes")
    used_with_swap = number_of(f"{folder}/memory.memsw.usage_in_bytes")
    if with_swap is None or used_with_swap is None:
        spare_swap = 0
    elif with_swap < NO_LIMIT:
        spare_swap = max(0, min(spare_swap, with_swap - used_with_swap - (limit - used)))
    return Room(max(0, limit - used + min(sum(cache.values()), used) + spare_swap), limit, CONTAINER_V1)
