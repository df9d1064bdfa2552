"""What the user's code prints while a command looks at it: aside, on standard error.

Takes: a stretch of code. Gives: nothing.
Promises: meanwhile nothing that Python code, C code or a worker process writes to standard output gets there, so that a
command's answer is all that does; afterwards everything is as it was.
Not its job: the answer (cli).
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator

OUTPUT, ERRORS = 1, 2
"""File descriptors: what a process is started with, whatever sys.stdout is."""


@contextlib.contextmanager
def aside() -> Iterator[None]:
    """While this lasts, standard output is standard error.

    Both the descriptor and Python's own object are turned: a worker that is not forked has an object of its own.
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
