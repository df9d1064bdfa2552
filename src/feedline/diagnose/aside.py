"""What user code prints while a command examines it goes to standard error.

Takes: a block of code. Gives: nothing.
Promises: within the block nothing that Python code, C code or a worker process writes reaches standard output, so that
it has only the command's answer; afterwards everything is as before.
Not its job: the answer (cli).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

OUTPUT, ERRORS = 1, 2
"""File descriptors: those a process is started with, whatever sys.stdout is."""


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """Within the block, standard output is standard error.

    Both the descriptor and Python's own object are redirected: a worker that is not forked has an object of its own.
    """
    sys.stdout.flush()
    kept = os.dup(OUTPUT)
    try:
        os.dup2(ERRORS, OUTPUT)
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, OUTPUT)
        os.close(kept)
