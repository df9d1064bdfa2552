"""Checks: Python, the packages feedline needs, torch and its GPUs; what kind of container this is, and its clock.

Takes: what is installed, from its metadata; files that runtimes leave. Gives: findings "python", "packages", "torch",
"cuda" if requested, "runtime" and "clock".
Promises: torch is not imported, and nothing is initialised in this process: CUDA is queried in a separate process. A
guess is called one.
Not its job: limits (cpu_and_memory, system_limits).
"""

from __future__ import annotations

import glob
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator

from feedline.diagnose.findings import NOTE, OK, PROBLEM, WARNING, Finding
from feedline.diagnose.preflight_checks.remedies import GPUS
from feedline.diagnose.preflight_checks.worker_plan import WorkerPlan
from feedline.machine.cgroups import text_of
from feedline.messages.progress import clock

TRIED_TORCH = (2, 13)
"""The torch that feedline.torch is tested with (pyproject.toml)."""
ASKING_SECONDS = 120
"""Seconds for `import torch` and a look at the GPUs: 12 s on 2 busy cores, more from a network disk."""
GVISOR = "#1 SMP Sun Jan 10 15:06:54 PST 2016"
"""What gVisor has in /proc/version, in every version."""
SLOW_READ = 1000
"""Nanoseconds. Reading the clock takes 66 if the processor's own counter can be used (measured), and more than a system
call if the kernel must be asked; a worker reads the clock twice per sample."""


def check_python(plan: WorkerPlan) -> Iterator[Finding]:
    """The interpreter: its version, and whether threads can run in parallel."""
    version = platform.python_version()
    built = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    evidence = {"version": version, "free_threaded_build": built, "gil": gil, "executable": sys.executable}
    if built and gil:
        yield Finding(
            "python",
            NOTE,
            f"Python {version}, free-threaded, but the GIL is on",
            evidence,
            "Importing a module that is not ready for it switches the GIL on for the whole process.",
            "if you count on workers='thread', find the module in the warning that Python printed.",
            "PYTHON_GIL=0 python …",
        )
    else:
        yield Finding(
            "python", OK, f"Python {version}" + ("" if gil else ", free-threaded: threads run at once"), evidence
        )


def check_packages(plan: WorkerPlan) -> Iterator[Finding]:
    """NumPy and cloudpickle."""
    versions = {name: version_of(name) for name in ("feedline", "numpy", "cloudpickle")}
    if versions["cloudpickle"] is None:
        yield Finding(
            "packages",
            WARNING,
            "cloudpickle is not installed",
            versions,
            "Without it lambdas, and classes from a notebook, do not travel to workers that are not forked.",
            "install it.",
            "pip install cloudpickle",
        )
        return
    title = f"NumPy {versions['numpy']}, cloudpickle {versions['cloudpickle']}"
    yield Finding("packages", OK, title, versions)


def version_of(name: str) -> str | None:
    """The version of an installed package; None if it is not installed."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_torch(plan: WorkerPlan) -> Iterator[Finding]:
    """torch's version, what it was built for, and whether GPUs are visible; without importing it."""
    version, devices = version_of("torch"), _gpu_devices()
    evidence: dict[str, object] = {"version": version, "gpu_devices": devices}
    if version is None:
        yield Finding("torch", OK, "torch is not installed; feedline works without it", evidence)
        return
    evidence["built_for"] = built_for = _built_for()
    title = f"torch {version}, built for {built_for or 'CPUs only'}; {len(devices) or 'no'} GPU device files"
    if devices and not built_for:
        yield Finding(
            "torch",
            WARNING,
            title,
            evidence,
            "This torch cannot use the GPUs of this machine.",
            "install a build of torch for CUDA.",
            "pip install --force-reinstall torch   # not from the index …/whl/cpu",
        )
    elif built_for and not devices:
        words = "This torch can use GPUs, and none can be seen from here."
        yield Finding(
            "torch", NOTE, title, evidence, words, "if there should be GPUs, pass them to the container.", GPUS
        )
    elif tuple(map(int, re.findall(r"\d+", version)[:2])) < TRIED_TORCH:
        words = f"feedline.torch is tested with {'.'.join(map(str, TRIED_TORCH))}; an older one may lack what it uses."
        yield Finding("torch", WARNING, title, evidence, words, "upgrade.", "pip install --upgrade 'feedline[torch]'")
    else:
        yield Finding("torch", OK, title, evidence)


def _gpu_devices() -> list[str]:
    return sorted([*glob.glob("/dev/nvidia[0-9]*"), *glob.glob("/dev/kfd"), *glob.glob("/dev/dxg")])


def _built_for() -> str:
    """ "CUDA 12.8" or "ROCm 6.4": torch writes it into a small file, which can be read without importing torch."""
    place = importlib.util.find_spec("torch")
    if place is None or place.origin is None:
        return ""
    text = text_of(os.path.join(os.path.dirname(place.origin), "version.py"))
    for name, words in (("cuda", "CUDA"), ("hip", "ROCm")):
        found = re.search(rf"^{name}\b[^=\n]*=\s*['\"]([^'\"]+)['\"]", text, re.MULTILINE)
        if found:
            return f"{words} {found[1]}"
    return ""


def check_cuda(plan: WorkerPlan) -> Iterator[Finding]:
    """Ask torch itself, in a separate process: CUDA initialised here would make every fork unsafe."""
    code = "import torch; print(torch.cuda.device_count(), torch.cuda.is_available())"
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, timeout=ASKING_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        yield Finding("cuda", PROBLEM, f"CUDA: torch could not be asked ({error})", {"error": str(error)})
        return
    words = done.stdout.split()
    if done.returncode or len(words) != 2:
        said = (done.stderr.strip() or "nothing").splitlines()[-1]
        yield Finding("cuda", PROBLEM, f"CUDA: torch cannot be imported: {said}", {"stderr": done.stderr[-2000:]})
        return
    evidence = {"devices": int(words[0]), "available": words[1] == "True", "stderr": done.stderr[-2000:]}
    if evidence["available"]:
        yield Finding("cuda", OK, f"CUDA: torch sees {evidence['devices']} devices", evidence)
    else:
        words_for_it = "torch can be imported, but finds no device it can use."
        remedy = "check the driver on the host, and pass the GPUs to the container."
        yield Finding("cuda", PROBLEM, "CUDA: not available to torch", evidence, words_for_it, remedy, GPUS)


def check_runtime(plan: WorkerPlan) -> Iterator[Finding]:
    """Docker, Podman, Kubernetes, gVisor, WSL: what can be recognised from inside."""
    version = text_of("/proc/version")
    found = [name for name, is_it in _signs(version).items() if is_it]
    evidence = {"signs": found, "kernel": platform.release(), "machine": platform.machine()}
    title = f"Runtime: {' in '.join(found) if found else 'no container was recognised'}"
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
    cost = _cost_of_reading()
    source = text_of("/sys/devices/system/clocksource/clocksource0/current_clocksource").strip() or "unknown"
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


def _cost_of_reading() -> int:
    """The minimum of many readings: another process may have used the CPU in between."""
    readings = [clock() for _ in range(2000)]
    return min(later - earlier for earlier, later in zip(readings, readings[20:], strict=False)) // 20
