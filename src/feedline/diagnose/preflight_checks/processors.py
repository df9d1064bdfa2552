"""Checks: do programs that count CPUs see the CPU limit? Are there enough CPUs for threads times workers?

Takes: a plan. Gives: findings "cpu-limit" and "threads". Not its job: counting (cpus).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator

from feedline.diagnose.findings import NOTE, OK, WARNING, Finding
from feedline.diagnose.preflight_checks.remedies import more_cpus
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.errors.counting import counted
from feedline.machine.cpus import Cpus
from feedline.workers.one_thread import VARIABLES


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
            f"os.cpu_count() says {os.cpu_count()} here: whoever believes it starts too many threads and workers."
        )
        remedy = "count workers from this limit."
        code = f"DataLoader(…, num_workers={cpus.workers})"
    yield Finding("cpu-limit", severity, _title(cpus), _evidence(cpus), explanation + _throttling(cpus), remedy, code)


def _title(cpus: Cpus) -> str:
    because = []
    if cpus.quota is not None and cpus.quota < cpus.host:
        because.append(f"a quota of {_number(cpus.quota)} (cgroup v{cpus.version})")
    if cpus.allowed < cpus.host:
        because.append(f"affinity to {cpus.allowed}")
    reason = f" because of {' and '.join(because)}" if because else ""
    return f"CPUs: {_number(cpus.usable)} of {cpus.host} usable{reason}; suggested: num_workers={cpus.workers}"


def _evidence(cpus: Cpus) -> dict[str, object]:
    return {
        "host": cpus.host,
        "affinity": cpus.allowed,
        "quota": cpus.quota,
        "usable": cpus.usable,
        "throttled_share": cpus.throttled,
        "suggested_num_workers": cpus.workers,
    }


def _throttling(cpus: Cpus) -> str:
    if not cpus.throttled or cpus.throttled < 0.01:  # below one in a hundred nobody notices
        return ""
    return f" So far the quota was used up, and all stood still, in {cpus.throttled:.0%} of the periods."


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
