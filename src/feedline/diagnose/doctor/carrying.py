"""What a dataset carries into its workers, and what making it took.

Takes: evidence. Gives: findings "held-open", "unpicklable", "heavy-init", "heavy-pickle", "large-list",
"fork-hazard".
Not its job: random generators (randomness).
"""

from __future__ import annotations

from collections.abc import Iterator

from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.doctor.wording import lasting, some
from feedline.diagnose.findings import NOTE, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.memory_limits import size

SLOW_INIT = 5.0
"""Seconds: longer than starting workers takes on any machine we have seen (benchmarks/first_batch.py)."""
HEAVY = 512 << 20
"""Bytes that construction may take: a dataset that holds less is small compared with a model."""
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
                "With fork, the default here, it need not be. Python 3.14 and every system but Linux start workers "
                "in other ways, and so does multiprocessing_context='spawn'. "
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
            "references inside of objects: memory seems to leak, times the number of workers.",
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
            "start workers that have nothing of this process, or use it in workers only.",
            'DataLoader(dataset, num_workers=4, multiprocessing_context="forkserver")',
        )


CHECKS = (check_held, check_pickle, check_construction, check_fork)
