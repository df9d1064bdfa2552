"""The process that measures one side: `python -m feedline.diagnose.bench.side SIDE WANTED`.

Takes: the side and, as JSON, the request; then a word on standard input for each thing to do.
Gives: one line of JSON when the loader is made, and one for each word: "warm-up", "epochs" or "window", each with
seconds after it. A failure is such a line, too.
Promises: between two words its workers are stopped, so that what they prepare ahead does not disturb the other side;
what user code prints does not mix with the answers; if the process that asks is gone, this one ends with its workers.
Not its job: whose turn it is (bench_run), counting batches and seconds (consumer).
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from typing import Any, TextIO

from feedline.diagnose.bench.bench_subject import BenchSubject, WantedLoader, subject
from feedline.diagnose.bench.machine import members
from feedline.diagnose.consumer import Consumer, NothingLoaded
from feedline.diagnose.target import where
from feedline.errors import OptionError

_PR_SET_PDEATHSIG = 1
WARM_UP, EPOCHS, WINDOW = "warm-up", "epochs", "window"


def main() -> None:
    """Answer until there are no more requests."""
    _end_with_parent()
    answers = _own_output()
    side, wanted = sys.argv[1], WantedLoader(**json.loads(sys.argv[2]))
    sys.argv = [where(wanted.target), *wanted.arguments]  # what the user's script would see
    try:
        made = subject(side, wanted)
    except Exception as error:
        _write(answers, {"refused" if isinstance(error, OptionError) else "failed": words_of(error)})
        return
    facts = {"num_workers": made.num_workers, "metric": made.metric, "about": made.about, "notes": made.notes}
    _write(answers, {**facts, "version": str(importlib.import_module(side).__version__)})
    try:
        _serve(made, answers)
    finally:
        _signal_workers(signal.SIGCONT)  # before the loader ends: stopped workers cannot be told to end


def _serve(made: BenchSubject, answers: TextIO) -> None:
    consumer = Consumer(made.loader, samples_in=made.samples_in)
    for line in sys.stdin:
        word, seconds = line.split()
        try:
            with moving():
                answer = _measured(made, consumer, word, float(seconds))
        except Exception as error:
            _write(answers, {"failed": words_of(error)})
            return
        _write(answers, answer)


def _measured(made: BenchSubject, consumer: Consumer, word: str, seconds: float) -> dict[str, Any]:
    round_of = max(1, made.num_workers)
    if word == WARM_UP:
        return {"whole": consumer.warm_up(seconds, round_of), "batches": consumer.epoch_batches}
    window = consumer.epochs(seconds) if word == EPOCHS else consumer.window(seconds, round_of)
    return {"value": window.batches_per_second if made.samples is None else window.samples_per_second}


@contextlib.contextmanager
def moving() -> Iterator[None]:
    """Workers run within the block, and are stopped before and after it."""
    _signal_workers(signal.SIGCONT)
    try:
        yield
    finally:
        _signal_workers(signal.SIGSTOP)


def _signal_workers(number: int) -> None:
    """Send a signal to all other processes of the session, which is ours alone."""
    if os.getsid(0) != os.getpid():
        return  # started by hand: the session is that of a shell
    for process in members(os.getpid()):
        if process != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)


def _end_with_parent() -> None:
    """End with the parent, also in the middle of a sample, where the end of our input is not noticed."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _own_output() -> TextIO:
    """The original standard output; from now on, writing to standard output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _write(answers: TextIO, answer: dict[str, Any]) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


def words_of(error: Exception) -> str:
    """One line: what was raised, and the innermost reason. torch puts a worker's whole traceback into the message.

    >>> words_of(OSError("truncated"))
    'OSError: truncated'
    >>> words_of(OSError("Caught OSError in DataLoader worker process 0.\\nOriginal Traceback: …\\nOSError: truncated"))
    'OSError: truncated'
    >>> words_of(OSError("Caught OSError in DataLoader worker process 0.\\n  File …\\nOSError: truncated\\nat byte 7"))
    'OSError: truncated'
    >>> words_of(OptionError("there is no file 'x.py'"))
    "there is no file 'x.py'"
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if lines and lines[0].startswith("Caught "):
        raised = [line for line in lines if re.match(rf"([\w.]+\.)?{re.escape(lines[0].split()[1])}(:|$)", line)]
        return (raised or lines)[-1]
    if isinstance(error, (OptionError, NothingLoaded)) and lines:
        return lines[0]
    where = [note.strip().splitlines()[0] for note in getattr(error, "__notes__", ()) if note.strip()]
    first = ": ".join([type(error).__name__, *lines[:1]])
    return f"{first} ({where[0]})" if where else first


if __name__ == "__main__":
    main()
