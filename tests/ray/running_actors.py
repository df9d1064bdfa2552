"""Which actors of ours run on this machine, whatever Ray says of them."""

from __future__ import annotations

import psutil


def actors() -> list[str]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        name = " ".join(process.info["cmdline"] or ())
        if name.startswith(("ray::Worker", "ray::Keeper")):
            found.append(f"{name} ({process.pid})")
    return found
