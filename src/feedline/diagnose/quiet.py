"""While a command examines user code, its prints and warnings do not mix with the command's answer.

Takes: a block of code. Gives: `aside`, for what is printed; `quietly`, for warnings.
Promises: in `aside`, nothing that Python code, C code or a worker process writes reaches standard output; in `quietly`,
no warning and nothing that feedline logs is shown; afterwards everything is as before.
Not its job: the answer (cli).
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import warnings
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


@contextlib.contextmanager
def quietly(collect: bool = False) -> Iterator[list[str]]:
    """Within the block no warnings are shown; if they are to be collected, the list has them after it."""
    log, said = logging.getLogger("feedline"), list[str]()
    disabled, log.disabled = log.disabled, True
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always" if collect else "ignore")
            try:
                yield said
            finally:
                said += [str(each.message) for each in caught]
    finally:
        log.disabled = disabled
