"""What a worker process of this front sets up: freed memory stays in the process for the next sample.

Takes: a new worker process. Promises: blocks of up to 32 MB come from the heap, and the heap keeps up to 64 MB that are
free at its end. Otherwise the C library gives back the memory of each batch's samples, and the system clears it again
for the next one: a worker that has imported little, as ours have, read samples of 150 kB at half the speed
(benchmarks/jax_grain.py, "large"). Where the C library has no `mallopt`, nothing is changed.
Not its job: the memory of batches (arena).
"""

from __future__ import annotations

import contextlib
import ctypes

from feedline.machine.worker_info import WorkerInfo

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
"""glibc's numbers (malloc.h). Whoever sets one must set the other: that ends its adjusting them by itself."""
KEPT, LARGEST = 64 << 20, 32 << 20


def enter_worker(info: WorkerInfo) -> None:
    """Called once in each new worker process."""
    with contextlib.suppress(AttributeError, OSError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(M_TRIM_THRESHOLD, KEPT)
        mallopt(M_MMAP_THRESHOLD, LARGEST)
