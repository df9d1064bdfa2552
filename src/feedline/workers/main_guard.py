"""A script that starts workers while a worker imports it: noticed there, and explained in the one that was started.

Takes: nothing. Gives: an exit code from the worker to its parent, and the sentence for it.
Promises: of Python's own errors about this, one for each worker, none is printed.
Not its job: what a worker does once it is there (process_main).
"""

from __future__ import annotations

import multiprocessing
import os
from typing import NoReturn

from feedline.errors import WorkerError

NAME = "feedline-"
"""So the names of worker processes begin."""
UNGUARDED = 119
"""A worker's exit code if the script it imported would have started workers of its own."""
EXPLANATION = (
    "the loop is at the top of your script, without a guard. Workers that are not forked import the script to find the "
    "dataset's class, and so ran it from the beginning, up to this loop. Put what is to run only once under a guard:\n"
    "    if __name__ == '__main__':\n"
    "        for batch in loader: …\n"
    "and leave classes and functions above it. With multiprocessing_context='fork' no script is imported again."
)


def check_guard() -> None:
    """Before workers are started: is this a process that is about to be one, and still imports the script?"""
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):
        _refuse(process.name)


def _refuse(name: str) -> NoReturn:
    if name.startswith(NAME):
        os._exit(UNGUARDED)  # whoever started it says why; what the script does after this loop is not for a worker
    raise WorkerError(EXPLANATION)
