"""Where the kernel keeps this process's limits: the folders of its cgroup and the parent cgroups.

Takes: a controller's name (memory, cpu, pids). Gives: for each mount with the controller, its folders from ours up to
the mount, each with its version; and the contents of small files.
Promises: it handles version 1, version 2 and both at once; mounts that show only a part of the hierarchy, as in a
container; a process that is moved. It never raises: a file that cannot be read counts as empty.
Not its job: what the files mean (arena/limits for memory, diagnose/preflight_checks for the rest).
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import NamedTuple


class GroupFolder(NamedTuple):
    """A cgroup's folder, and the version (1 or 2) that says which files are in it."""

    path: str
    version: int


def folders(controller: str, proc: str = "/proc") -> list[GroupFolder]:
    """The folders that may limit this process; a parent's limit also holds for its children.

    >>> all(folder.version in (1, 2) for folder in folders("cpu"))
    True
    """
    return _folders(controller, text_of(f"{proc}/self/cgroup"), f"{proc}/self/mountinfo")


@lru_cache(maxsize=24)  # keyed by our cgroup, because a process may be moved; mounts rarely change
def _folders(controller: str, own: str, mountinfo: str) -> list[GroupFolder]:
    paths = _own_paths(controller, own)
    found: list[GroupFolder] = []
    for line in text_of(mountinfo).splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.split(" ")
        if len(fields) < 5 or len(kind) < 3 or kind[0] not in paths:
            continue
        if kind[0] == "cgroup" and controller not in kind[2].split(","):
            continue
        root, mount = _unescaped(fields[3]), _unescaped(fields[4])
        version = 2 if kind[0] == "cgroup2" else 1
        found.extend(GroupFolder(folder, version) for folder in _upwards(mount, root, paths[kind[0]]))
    return found


def _own_paths(controller: str, own: str) -> dict[str, str]:
    """The path of our cgroup for that controller, by the name of the file system."""
    paths = {}
    for line in own.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            paths["cgroup2"] = path
        elif controller in controllers.split(","):
            paths["cgroup"] = path
    return paths


def _upwards(mount: str, root: str, path: str) -> list[str]:
    """From our folder up to the mount. Inside a container our path may be missing; then the mount is our folder."""
    below = os.path.relpath(path, root) if os.path.isabs(path) and os.path.isabs(root) else ".."
    folder = os.path.normpath(os.path.join(mount, below))
    if below.split("/")[0] == "..":
        folder = mount
    folders = [folder]
    while folder != mount:
        folder = os.path.dirname(folder)
        folders.append(folder)
    return folders


def _unescaped(text: str) -> str:
    for code, character in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, character)
    return text


def numbers_of(path: str, *names: str) -> dict[str, int]:
    """The wanted numbers from a file with a name and a number per line. (Parsing the whole file takes longer.)"""
    text, found = "\n" + text_of(path), {}
    for name in names:
        _, _, rest = text.partition("\n" + name)
        words = rest[:40].split(None, 1)
        if words and words[0].isdecimal():
            found[name.rstrip(": ")] = int(words[0])
    return found


def number_of(path: str) -> int | None:
    """The number in a file that has only one; None for anything else, such as "max"."""
    text = text_of(path).strip()
    return int(text) if text.isdecimal() else None


def text_of(path: str) -> str:
    """All of a small file; empty if it cannot be read."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    pieces = []
    try:
        while piece := os.read(fd, 1 << 16):
            pieces.append(piece)
    except OSError:
        return ""
    finally:
        os.close(fd)
    return b"".join(pieces).decode("utf-8", "replace")
