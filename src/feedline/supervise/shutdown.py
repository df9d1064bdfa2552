"""Ending worker processes: asked first, made to soon after.

Takes: processes. Promises: when it returns, none is left. Not its job: why (workers, supervise.watch).
"""

from __future__ import annotations

import contextlib
import signal
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess

GRACE_SECONDS = 0.5
"""For `finally` blocks and exit handlers of the user's code; a worker stuck in C is then killed."""


TOLD_TO_LEAVE = 128 + signal.SIGTERM
"""A worker's exit code after SIGTERM."""


def end(processes: list[BaseProcess]) -> None:
    """Ask all to leave (SIGTERM becomes SystemExit there), wait a little, kill those that stay."""
    alive = [process for process in processes if process.pid is not None]
    for process in alive:
        if process.exitcode is None:
            process.terminate()
    staying = {process.sentinel for process in alive}
    with contextlib.suppress(InterruptedError):
        while staying and (left := wait(list(staying), GRACE_SECONDS)):
            staying.difference_update(left)
    for process in alive:
        if process.sentinel in staying:
            process.kill()
    for process in alive:
        process.join()
        with contextlib.suppress(ValueError):  # with SIGCHLD ignored its end goes unnoticed
            process.close()


def words_for(exitcode: int | None) -> str:
    """An exit code as the verb of a sentence."""
    if exitcode is None:
        return "ended"
    if exitcode == TOLD_TO_LEAVE:
        return "was told to leave (SIGTERM) by somebody else"
    return f"left with exit code {exitcode}" if exitcode >= 0 else f"was killed by {_signal_name(exitcode)}"


def hint_for(exitcode: int | None) -> str:
    """What such an end most often means; empty if nothing can be said."""
    return {
        "SIGKILL": "most likely the machine or container ran out of memory",
        "SIGSEGV": "a library it uses accessed memory wrongly (segmentation fault)",
        "SIGBUS": "memory it was promised is not there (bus error)",
        "SIGABRT": "a library it uses gave up (abort)",
    }.get(_signal_name(exitcode or 0), "")


def _signal_name(exitcode: int) -> str:
    try:
        return signal.Signals(-exitcode).name
    except ValueError:
        return f"signal {-exitcode}"
