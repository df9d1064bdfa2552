"""What runs on a machine of a Ray cluster before it is known whether feedline is installed there.

Takes: nothing. Gives: facts about the machine, as plain values; and workers, which load the rest of feedline only when
they are started.
Promises: this module is sent by value, and needs Python and Ray only: so a machine that lacks something can still say
what it lacks.
Not its job: judging the facts (ray_cluster), a worker's work (ray_worker).
"""

from __future__ import annotations

import os
import sys
from typing import Any


def boot() -> str:
    """Which machine this is, until it is started again: all its processes have the same clock."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def facts(packages: list[str], paths: list[str], search: list[str]) -> dict[str, Any]:
    """What this machine has. Packages by name: a version, or None and why not. Paths: None, or why not."""
    import importlib
    import importlib.metadata
    import platform

    sys.path.extend(each for each in search if each not in sys.path)
    versions: dict[str, tuple[str | None, str]] = {}
    for name in packages:
        try:
            module = importlib.import_module(name)
            try:
                version = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                version = ""
            versions[name] = (str(getattr(module, "__version__", version)), "")
        except Exception as error:  # a package may raise anything while it is imported
            versions[name] = (None, f"{type(error).__name__}: {error}")
    missing: dict[str, str] = {}
    for path in paths:
        try:
            if not os.access(path, os.R_OK):
                os.stat(path)
                missing[path] = "may not be read"
        except OSError as error:
            missing[path] = error.strerror or str(error)
    return {
        "python": platform.python_version(),
        "linux": hasattr(os, "memfd_create"),
        "packages": versions,
        "missing": missing,
    }


class Worker:
    """An actor: one worker. Ray calls its methods one after the other."""

    def home(self, search: list[str]) -> dict[str, Any]:
        """Where Ray has started it, and what is there. `search` are folders to import from, if nothing else has it."""
        from importlib import import_module

        node = import_module("ray").get_runtime_context().get_node_id()
        return {"node": node, "pid": os.getpid(), "boot": boot(), **facts(["feedline"], [], search)}

    def start(self, expected: None, *told: Any) -> None:
        """Set up: see `ray_worker.Making`. Its keeper expects it."""
        from feedline.workers.ray_worker import Making

        self._making = Making(*told)

    def work(self, tasks: list[tuple[int, int, bytes]]) -> Any:
        """Make the batches of those parts: serial number, run and task of each."""
        return self._making.work(tasks)
