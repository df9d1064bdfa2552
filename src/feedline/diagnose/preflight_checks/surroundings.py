"""Checks: what kind of container is this, and do its clocks work?

Takes: files that runtimes leave. Gives: findings "runtime" and "clock". Promises: a guess is called one.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator

from feedline.diagnose.findings import NOTE, OK, WARNING, Finding
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.machine.cgroups import text_of
from feedline.messages.progress import clock

GVISOR = "#1 SMP Sun Jan 10 15:06:54 PST 2016"
"""What gVisor has in /proc/version, in every version."""
SLOW_READ = 1000
"""Nanoseconds. Reading the clock takes 66 if the processor's own counter can be used (measured), and more than a system
call if the kernel must be asked; a worker reads the clock twice per sample."""


def check_runtime(plan: WorkerPlan) -> Iterator[Finding]:
    """Docker, Podman, Kubernetes, gVisor, WSL: what can be recognised from inside."""
    version = text_of("/proc/version")
    found = [name for name, is_it in _signs(version).items() if is_it]
    evidence = {"signs": found, "kernel": platform.release(), "machine": platform.machine()}
    title = f"Surroundings: {' in '.join(found) if found else 'no container that can be told'}"
    if "gVisor" in found:
        yield Finding(
            "runtime",
            NOTE,
            title,
            evidence,
            "gVisor answers system calls itself: they cost more than under an ordinary runtime, and not all exist. See "
            "what is said about them here.",
            "if loading is slow, try the ordinary runtime, or read from few large files.",
            "docker run --runtime=runc …\n# Kubernetes:  runtimeClassName: (none)",
        )
    else:
        yield Finding("runtime", OK, title, evidence)


def _signs(version: str) -> dict[str, bool]:
    return {
        "gVisor": GVISOR in version or "gvisor" in version.lower(),
        "WSL": "microsoft" in version.lower(),
        "Docker": os.path.exists("/.dockerenv"),
        "Podman": os.path.exists("/run/.containerenv"),
        "Kubernetes": "KUBERNETES_SERVICE_HOST" in os.environ,
        "Slurm": "SLURM_JOB_ID" in os.environ,
    }


def check_clock(plan: WorkerPlan) -> Iterator[Finding]:
    """The clock that supervision uses, and the date, which object stores check."""
    cost, source = _cost_of_reading(), _source()
    evidence = {"source": source, "nanoseconds_per_reading": cost, "date": time.strftime("%Y-%m-%d %H:%M:%S")}
    written = os.stat(__file__).st_mtime
    if time.time() < written - 86400:
        yield Finding(
            "clock",
            WARNING,
            f"Clock: it says {evidence['date']}, which is before feedline was installed",
            evidence,
            "Object stores and HTTPS refuse requests with a wrong date, and files seem to be from the future.",
            "set the host's clock; a container has its host's.",
            "timedatectl set-ntp true   # on the host",
        )
    elif cost > SLOW_READ:
        yield Finding(
            "clock",
            NOTE,
            f"Clock: a reading takes {cost:,} ns (source {source})",
            evidence,
            "Workers read it twice a sample, and every profiler does all the time.",
            "if samples are tiny, let the host use its processor's counter.",
            "cat /sys/devices/system/clocksource/clocksource0/available_clocksource   # on the host: tsc, kvm-clock?",
        )
    else:
        yield Finding("clock", OK, f"Clock: {cost:,} ns a reading (source {source})", evidence)


def _source() -> str:
    return text_of("/sys/devices/system/clocksource/clocksource0/current_clocksource").strip() or "unknown"


def _cost_of_reading() -> int:
    """The minimum of many readings: another process may have used the CPU in between."""
    readings = [clock() for _ in range(2000)]
    return min(later - earlier for earlier, later in zip(readings, readings[20:], strict=False)) // 20
