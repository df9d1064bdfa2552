"""Runs a step of training in a process that gets little more memory than it has."""

from __future__ import annotations

from warm_host import host

LIMITED = """
import ctypes, resource, sys
import numpy as np
{imports}
from feedline import largest_batch

MB = 1 << 20
ctypes.CDLL(None).mallopt(-8, 1)  # M_ARENA_MAX: each thread's own would reserve much of what is allowed
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 200 * MB, resource.RLIM_INFINITY))
tried = []

def step(batch_size):
    tried.append(batch_size)
{body}

print(largest_batch(step, **{options}), tried)
"""


def run_limited(body: str, module: str = "feedline", imports: str = "", options: str = "{}") -> tuple[int, list[int]]:
    """A process that gets 200 MB more than it has after its imports."""
    script = LIMITED.format(body=body, imports=imports, options=options)
    done = host(module).run(["-W", "error", "-c", script], timeout=1000)
    assert done.returncode == 0, done.stderr
    found, tried = done.stdout.split(" ", 1)
    return int(found), eval(tried)
