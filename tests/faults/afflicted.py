"""What comes over a process before its script begins: a small container, a small /dev/shm, few descriptors.

python afflicted.py AFFLICTION SCRIPT      # one of the functions below, pickled, in hexadecimal

Started by `inside.run` in a process that has imported the front already. The script is alone in its session, so that
all it starts can be ended with it.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import resource
import runpy
import sys
from pathlib import Path

NOT_ALLOWED = 77
"""The exit code of a process that may not mount anything."""


def nothing() -> None:
    """No affliction."""


def enter(members: str) -> None:
    """Become a member of the cgroup of which this is the list."""
    Path(members).write_text(str(os.getpid()))


def mount(places: tuple[tuple[str, str, int], ...]) -> None:
    """See a tmpfs at each place (folder, options, flags), alone and with all that is started from here."""
    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private = 0x00020000, 1 << 18 | 1 << 14  # MS_PRIVATE | MS_REC
    if libc.unshare(new_namespace) or libc.mount(b"none", b"/", None, private, None):
        os._exit(NOT_ALLOWED)
    for folder, options, flags in places:
        if libc.mount(b"tmpfs", folder.encode(), b"tmpfs", flags, options.encode()):
            os._exit(NOT_ALLOWED)


def limit_descriptors(count: int) -> None:
    """`ulimit -n`."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, count))


if __name__ == "__main__":
    os.setsid()
    affliction, script = sys.argv[1:]
    pickle.loads(bytes.fromhex(affliction))()
    sys.argv, sys.path[0] = [script], os.path.dirname(script)
    runpy.run_path(script, run_name="__main__")
