"""A made /proc and the cgroup file systems it speaks of, for tests of what is read there."""

from __future__ import annotations

from pathlib import Path

GB = 1 << 30


class Tree:
    """A made /proc and the cgroup file systems it speaks of."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.proc = base / "proc"
        (self.proc / "self").mkdir(parents=True)
        self.mounts: list[str] = []

    def machine(self, available: int, swap_free: int = 0, total: int = 64 * GB) -> None:
        lines = {"MemTotal": total, "MemFree": 1, "MemAvailable": available, "SwapCached": 7, "SwapFree": swap_free}
        (self.proc / "meminfo").write_text("".join(f"{k}:   {v // 1024} kB\n" for k, v in lines.items()))

    def own(self, *lines: str) -> None:
        (self.proc / "self" / "cgroup").write_text("".join(f"{line}\n" for line in lines))

    def mount(self, place: str, kind: str, options: str, root: str = "/") -> Path:
        folder = self.base / place
        folder.mkdir(parents=True, exist_ok=True)
        target = str(folder).replace(" ", "\\040")
        self.mounts.append(f"35 31 0:32 {root} {target} rw,relatime shared:9 - {kind} {kind} {options}\n")
        (self.proc / "self" / "mountinfo").write_text("22 1 8:1 / / rw - ext4 /dev/sda rw\n" + "".join(self.mounts))
        return folder
