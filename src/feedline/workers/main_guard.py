"""A script without a main guard starts workers again when a worker imports it. The worker notices; the parent explains.

Takes: nothing. Gives: an exit code from the worker to its parent, and the sentence for it.
Promises: Python's own errors about this (one per worker) are not printed.
Not its job: what a worker does after its start (process_main).
"""

from __future__ import annotations

import multiprocessing
import os
from typing import NoReturn

from feedline.errors import WorkerError

NAME = "feedline-"
"""The names of worker processes begin with this."""
UNGUARDED = 119
"""A worker's exit code if the script it imported would have started workers of its own."""
EXPLANATION = (
    "the loop is at the top of your script, without a guard. Workers that are not forked import the script to find "
    "the dataset's class, and so run it from the beginning, up to this loop. Put what should run only once under a "
    "guard:\n"
    "    if __name__ == '__main__':\n"
    "        for batch in loader: …\n"
    "and leave classes and functions above it. With multiprocessing_context='fork' no script is imported again."
)


def check_guard() -> None:
    """Called before workers are started: refuse if this process is itself a worker that still imports the script."""
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):
        _refuse(process.name)


def _refuse(name: str) -> NoReturn:
    if name.startswith(NAME):
        os._exit(UNGUARDED)  # the parent explains it; the rest of the script must not run in a worker
    raise WorkerError(EXPLANATION)
