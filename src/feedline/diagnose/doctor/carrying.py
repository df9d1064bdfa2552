"""What a dataset carries into its workers, what making it took, and the memory that batches and workers take.

Takes: evidence. Gives: findings "held-open", "unpicklable", "heavy-init", "heavy-pickle", "large-list", "fork-hazard",
"batch-too-large", "memory-growth".
Not its job: random generators (randomness); the machine (preflight); growth over a long run, which loaders watch
themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from feedline.arena.segment import reserve_of
from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.doctor.wording import lasting, some
from feedline.diagnose.findings import NOTE, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.cpu_and_memory import size
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.machine.cpus import Cpus
from feedline.supervise.growth import Point, steady

SLOW_INIT = 5.0
"""Seconds: longer than starting workers takes on any machine we have seen (benchmarks/first_batch.py)."""
HEAVY = 512 << 20
"""Bytes that construction may take: a dataset that holds less is small compared with a model."""
STEPS = 4
"""Steps in which a worker's memory must grow, one after the other."""
ON_FIRST_USE = """def __getstate__(self):                 # not sent along
    return {**self.__dict__, "_file": None}

def __getitem__(self, index):
    if self._file is None:              # opened by each worker, on first use
        self._file = open(self.path, "rb")"""


def check_held(seen: Evidence) -> Iterator[Finding]:
    """Open files, connections, held locks, running threads."""
    for what, paths in seen.carried.held:
        harm, _, remedy = what.partition(". ")
        yield Finding(
            "held-open",
            WARNING,
            f"{some(paths)} {harm.partition(' that every')[0].partition(', of which')[0]}",
            {"paths": paths},
            f"{paths[0]} {harm}.",
            remedy[:1].lower() + remedy[1:],
            ON_FIRST_USE,
        )


def check_pickle(seen: Evidence) -> Iterator[Finding]:
    """Attributes that cannot be sent, or take long to send."""
    carried = seen.carried
    forked = carried.start_method == "fork"
    if carried.unsendable:
        path, _, rest = carried.unsendable.partition(": ")
        yield Finding(
            "unpicklable",
            WARNING if forked else PROBLEM,
            f"{path} cannot be sent to a worker process",
            {"path": path, "error": carried.unsendable, "start_method": carried.start_method},
            (
                "With fork, the default here, it need not be sent. Python 3.14 and every system but Linux start "
                "workers in other ways, and so does multiprocessing_context='spawn'. "
                if forked
                else "Workers cannot be started. "
            )
            + rest.partition(". ")[0]
            + ".",
            "leave it out of what is sent, and make it in each worker on first use.",
            ON_FIRST_USE,
        )
    if not carried.pickled_all:
        yield Finding(
            "heavy-pickle",
            WARNING,
            f"More than {size(carried.pickled)} of Python objects would be sent to each worker",
            {"bytes": carried.pickled, "largest": carried.largest},
            f"{carried.largest or 'The dataset'}. Each worker that is not forked unpickles them, which takes "
            "seconds, and has them once more. Forked workers share them at first and copy them as they read.",
            "keep large metadata in arrays, or in a SharedList: those are shared by all workers.",
            "self.records = feedline.SharedList(records)",
        )
    elif carried.largest:
        yield Finding(
            "large-list",
            NOTE,
            f"{carried.largest}, all Python objects",
            {"largest": carried.largest},
            "Forked workers share them at first and copy them page by page as they read, because Python counts "
            "references inside of objects: memory seems to leak, in each worker.",
            "keep large metadata in arrays, or in a SharedList: those are shared by all workers.",
            "self.records = feedline.SharedList(records)",
        )


def check_construction(seen: Evidence) -> Iterator[Finding]:
    """Loading in __init__."""
    made = seen.construction
    if made is None or (made.seconds < SLOW_INIT and made.memory < HEAVY):
        return
    yield Finding(
        "heavy-init",
        WARNING,
        f"{made.name}() took {lasting(made.seconds)} and {size(made.memory)}",
        {"seconds": made.seconds, "memory": made.memory, "factory": made.name},
        "What is loaded when the dataset is made is waited for before the first batch, in every process of a training "
        "with several GPUs, and stays in memory whether it is used or not.",
        "keep paths and labels in __init__, and read each sample in __getitem__; or map a file: its pages are shared.",
        'self.data = np.load("data.npy", mmap_mode="r")',
    )


def check_fork(seen: Evidence) -> Iterator[Finding]:
    """Libraries whose threads do not exist in forked workers."""
    if seen.carried.threads and seen.carried.start_method == "fork":
        names, has = " and ".join(seen.carried.threads), "have" if len(seen.carried.threads) > 1 else "has"
        yield Finding(
            "fork-hazard",
            WARNING,
            f"Workers would be forked from a process in which {names} {has} threads",
            {"libraries": seen.carried.threads},
            "Threads do not come along into a forked process, and a lock that one of them held stays held: a call "
            f"into {names} there may wait for ever, or fail.",
            "start workers that inherit nothing from this process, or use the library in workers only.",
            'DataLoader(dataset, num_workers=4, multiprocessing_context="forkserver")',
        )


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


CHECKS = (check_held, check_pickle, check_construction, check_fork, check_batch, check_growth)
