"""Preflight: does this machine or container offer what loading needs?

Takes: the planned loading, if it is known. Gives: `Findings`, one or more for each check, in a fixed order.
Promises: it looks and tries, changes nothing, leaves nothing behind; torch is not imported and CUDA not initialised; it
takes well under a second, most of it for the trial; a check that fails is a finding, not an exception.
Not its job: the dataset (doctor), speed (tune), the screen (rendering).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from feedline.diagnose.findings import WARNING, Finding
from feedline.diagnose.preflight_checks import cluster, cpu_and_memory, kernel, software, system_limits
from feedline.diagnose.preflight_checks.cluster import ClusterNeeds
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.diagnose.rendering import Findings
from feedline.errors import OptionError
from feedline.errors.checks import check_flag, check_whole
from feedline.machine import cpus

Check = Callable[[WorkerPlan], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    cpu_and_memory.check_cpus,
    cpu_and_memory.check_threads,
    cpu_and_memory.check_memory,
    cpu_and_memory.check_address_space,
    cpu_and_memory.check_shared_memory,
    system_limits.check_open_files,
    system_limits.check_temporary_files,
    system_limits.check_process_limit,
    system_limits.check_start_methods,
    system_limits.check_fork_hazards,
    kernel.check_kernel,
    software.check_runtime,
    software.check_clock,
    software.check_python,
    software.check_packages,
    software.check_torch,
)


def preflight(
    num_workers: int | None = None,
    prefetch_factor: int | None = None,
    batch_bytes: int | None = None,
    *,
    trial: bool = True,
    cuda: bool = False,
    ray: bool | str = False,
    packages: Sequence[str] = (),
    paths: Sequence[str] = (),
) -> Findings:
    """What this machine or container offers for loading, and what to change.

    Call it in the training script to check that process (threads, CUDA), or run `feedline preflight`.

    Args:
        num_workers: as planned; None: one for each CPU that can be used.
        prefetch_factor: as planned; None: 2, as in DataLoader.
        batch_bytes: the size of a batch; with it, memory is checked for all batches that exist at once.
        trial: also load two batches with a worker process, in a separate process (0.3 s).
        cuda: also ask torch for its GPUs, in a separate process (as long as `import torch` takes).
        ray: also look at each machine of the Ray cluster that this process is connected to, or that RAY_ADDRESS or this
            address names.
        packages: with `ray`: what the dataset imports, and so every machine needs.
        paths: with `ray`: files and folders that every machine needs.

    >>> findings = preflight(num_workers=1, batch_bytes=1 << 20, trial=False)
    >>> findings[0].id
    'cpu-limit'
    >>> findings.worst in ("ok", "note", "warning", "problem")
    True
    """
    plan = _plan(num_workers, prefetch_factor, batch_bytes)
    checks = list(CHECKS)
    checks += [kernel.check_by_trial] if check_flag("trial", trial) else []
    checks += [software.check_cuda] if check_flag("cuda", cuda) else []
    if ray is not False:
        address = ray if isinstance(ray, str) else "auto" if check_flag("ray", ray) else ""
        checks.append(_cluster_check(ClusterNeeds(address, tuple(packages), tuple(paths))))
    elif packages or paths:
        raise OptionError("packages and paths are what machines of a Ray cluster need: set ray=True, too")
    return Findings([finding for check in checks for finding in _guarded(check, plan)], "feedline preflight")


def _cluster_check(needs: ClusterNeeds) -> Check:
    def check_cluster(plan: WorkerPlan) -> Iterator[Finding]:
        yield from cluster.check_cluster(plan, needs)

    return check_cluster


def _plan(num_workers: int | None, prefetch_factor: int | None, batch_bytes: int | None) -> WorkerPlan:
    found = cpus.look()
    return WorkerPlan(
        found,
        found.workers if num_workers is None else check_whole("num_workers", num_workers, least=0),
        num_workers is not None,
        2 if prefetch_factor is None else check_whole("prefetch_factor", prefetch_factor, least=1),
        None if batch_bytes is None else check_whole("batch_bytes", batch_bytes, least=1),
    )


def _guarded(check: Check, plan: WorkerPlan) -> Iterator[Finding]:
    """An unusual system that makes one check fail must not stop the other checks."""
    try:
        yield from check(plan)
    except Exception as error:
        name = check.__name__.removeprefix("check_").replace("_", "-")
        yield Finding(
            f"{name}-unknown",
            WARNING,
            f"The check '{name}' itself failed: {type(error).__name__}: {error}",
            {"error": repr(error)},
            "This system gave an answer that feedline did not expect.",
            "please report it with the output of `feedline preflight --json`.",
        )
