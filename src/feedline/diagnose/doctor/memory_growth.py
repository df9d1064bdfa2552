"""Memory: batches that do not fit, and workers that grow.

Takes: evidence. Gives: findings "batch-too-large", "memory-growth".
Not its job: the machine (preflight); growth over a long run, which loaders watch themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from feedline.arena.segment import reserve_of
from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.findings import PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.memory_limits import size
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.machine.cpus import Cpus
from feedline.supervise.growth import Point, steady

STEPS = 4


def check_batch(seen: Evidence) -> Iterator[Finding]:
    """The memory of all batches that exist at once, compared with what is free."""
    setting = seen.setting
    if setting.batch_size is None or not seen.good or seen.free is None:
        return
    sample = sum(field.nbytes for reading in seen.good for field in reading.fields) / len(seen.good)
    batch = int(sample * setting.batch_size)
    plan = WorkerPlan(Cpus(host=1, allowed=1), setting.num_workers, True, setting.prefetch_factor, max(1, batch))
    wanted, spare = plan.bytes_of_batches or 0, seen.free - reserve_of(seen.limit_of_memory)
    if wanted <= spare // 2:
        return
    fitting = max(1, int(setting.batch_size * (spare / 2) / wanted)) if spare > 0 else 1
    yield Finding(
        "batch-too-large",
        PROBLEM if wanted > spare else WARNING,
        f"A batch takes {size(batch)}, all that exist at once {size(wanted)}; {size(max(0, spare))} are free",
        {"batch": batch, "all": wanted, "free": spare, "sample": int(sample), "fitting": fitting},
        "Batches beyond what is free are refused (MemoryShortage); the model and its gradients are not even counted.",
        "take smaller batches, fewer workers or a smaller prefetch_factor; accumulate gradients for the same effect.",
        f"loader = DataLoader(dataset, batch_size={fitting})     # and feedline.accumulate(loader, …)",
    )


def check_growth(seen: Evidence) -> Iterator[Finding]:
    """Memory that grows each time the same samples are read."""
    rounds = seen.rounds
    if len(rounds) <= STEPS + 1:
        return
    # The first rounds may fill a cache.
    marks = [round(1 + step * (len(rounds) - 2) / STEPS) for step in range(STEPS + 1)]
    # A forked worker has all of this process's memory, but reads few samples: growth need not be a share of it.
    growth = steady([Point(mark, rounds[mark]) for mark in marks], STEPS, least_share=0)
    if growth is None:
        return
    each = growth.rate / max(1, seen.round_size)
    yield Finding(
        "memory-growth",
        WARNING,
        f"A worker's memory grows by {size(int(each))} with every sample that is read, also one it has read before",
        {"bytes_per_sample": int(each), "reads": len(rounds) * seen.round_size, "memory": list(rounds)},
        "Something is kept for every sample: a list that is appended to, a cache without a bound, a graph of "
        "gradients. Each worker has its own, and in the end one of them is killed.",
        "keep nothing in __getitem__, or bound it (functools.lru_cache(maxsize=…)).",
    )


CHECKS = (check_batch, check_growth)
