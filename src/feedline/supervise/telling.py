"""Sentences about workers that are stuck or have died, easy to read for a tired person.

Takes: facts. Gives: text that names the worker, the sample, the time, the stack, and what can be done.
Not its job: deciding anything (policy), printing it (engine).
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Sequence

from feedline.messages.progress import (
    AT_ONCE,
    COLLATING,
    IDLE,
    INITIALISING,
    PREPARING,
    SENDING,
    SETTING_UP,
    place_among,
)
from feedline.messages.task import Task
from feedline.reading.fetch import READ_HERE, brief, index_list
from feedline.reading.fetch_threads import READS
from feedline.supervise.asking import asked
from feedline.supervise.last_words import OWN
from feedline.supervise.shutdown import hint_for, words_for
from feedline.supervise.watch import NO_WORKER, Death, Standing

Describe = Callable[[object], str]
"""What a dataset says about an index: its path, key or row; empty if it says nothing."""

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_CRASH = "Fatal Python error"
_MOST_LINES = 40


def sample_name(task: Task, place: int, describe: Describe) -> str:
    """The name of a task's sample: `dataset[17] (photos/17.jpg)`."""
    if task.indices is None:
        # The worker may read the whole stream or a share of it: that is not known here.
        return f"element {place} of the stream as that worker reads it"
    index = index_list(task)[place]
    what = asked(describe, index)
    return f"dataset[{index!r}]" + (f" ({what})" if what else "")


def where(task: Task | None, place: int, describe: Describe, instead: int | None = None) -> str:
    """What a worker is, or was, doing."""
    if place == IDLE or (task is None and place not in (INITIALISING, SETTING_UP)):
        return "waiting for a task"
    if place == SETTING_UP:
        return "being started"
    if place == INITIALISING:
        return "setting up the dataset or in worker_init_fn"
    assert task is not None
    batch = f"batch {task.seq} of epoch {task.epoch}"
    at_once = place_among(place)
    if at_once is not None:
        return f"{where(task, at_once, describe, instead)}, the first of several that it waits for"
    if place >= 0:
        of_how_many = "" if task.indices is None else f", sample {place + 1} of {len(task.indices)}"
        name = sample_name(task, place, describe)
        if instead is not None:
            name = f"dataset[{instead}] instead of {name}"
        return f"reading {name} for {batch}{of_how_many}"
    doing = {PREPARING: "about to begin", AT_ONCE: "reading", COLLATING: "collating", SENDING: "handing over"}[place]
    return f"{doing} {batch}{indices_of(task)}"


def indices_of(task: Task) -> str:
    """The task's indices, in brackets."""
    return "" if task.indices is None else f" (indices {brief(index_list(task))})"


def stall(waited: float, seq: int | None, standings: Sequence[Standing], stacks: dict[int, str], say: Describe) -> str:
    """The report about a loop that waits."""
    waits_for = "" if seq is None else f" (number {seq})"
    lines = [f"the loop has been waiting for a batch{waits_for} for {seconds(waited)}."]
    for at in standings:
        name, doing = name_of(at.worker, at.pid, at.host), where(at.task, at.place, say, at.instead)
        lines.append(f"  {name}: {doing}, for {seconds(at.seconds)}")
        if at.state:
            lines.append(f"    it is {at.state}")
        elif at.place == SETTING_UP:  # the signal that asks for a stack would have ended it
            lines.append("    (too early for a stack)")
        elif at.place != IDLE:
            lines += _stack_lines(stacks.get(at.worker, ""))
    return "\n".join(lines)


STILL_WAITING = (
    "feedline continues to wait. timeout=… would raise an error instead, on_stall='restart' would replace the worker "
    "and try the sample again; stall_warning=… sets when this warning comes."
)
RESTARTS = (
    "A worker that is stuck at one sample is replaced (on_stall='restart'); a worker that makes slow progress is not. "
    "stall_warning=… sets when this warning comes."
)
TIMEOUT_REMEDY = (
    "A sample is stuck or slower than that: see the stacks. Raise timeout, or set on_stall='restart' to have the "
    "worker replaced and the sample tried again."
)


STILL_MAKING = (
    "feedline continues to wait: without workers (num_workers=0) the sample is read in your own process. timeout=… "
    "would raise an error instead; with workers, on_stall='restart' would replace the worker that is stuck. "
    "stall_warning=… sets when this warning comes."
)
TIMEOUT_HERE = (
    "A sample is stuck or slower than that: see the stack. Raise timeout; or use workers (num_workers=1) and "
    "on_stall='restart', which replaces a worker that is stuck and tries the sample again."
)
NOT_INTERRUPTED = (
    "Reading the sample could not be interrupted: the code is not Python code, or it catches every exception. The "
    "error is raised as soon as that code returns. A worker (num_workers=1) would have been ended."
)


def death_notice(death: Death, describe: Describe) -> str:
    """Which worker died, why, and at which sample."""
    doing = where(death.task, death.place, describe, death.instead)
    likely = hint_for(death.exitcode)
    if death.exitcode == -signal.SIGKILL and death.memory:
        likely += f"; when last measured, it used {size(death.memory)}"
    if death.reason:
        likely = death.reason
    end = f"{words_for(death.exitcode)} while {doing}{': ' if likely else ''}{likely}"
    return f"{name_of(death.worker, death.pid, death.host)} {end}.{crash_of(death)}"


def crash_of(death: Death) -> str:
    """The stack a worker left when it crashed, if it did."""
    text = death.last_words
    if _CRASH not in text:
        return ""
    return "\n" + "\n".join(_stack_lines(text[text.index(_CRASH) :]))


def stack(text: str) -> str:
    """The user's part of a stack."""
    return "\n".join(_stack_lines(text))


def name_of(worker: int, pid: int | None, host: str = "") -> str:
    """A worker's name, from its number, its pid and, if it is not on this machine, its machine."""
    if host:
        return f"worker {worker} (on {host})" if pid is None else f"worker {worker} (pid {pid} on {host})"
    if worker == NO_WORKER:
        return f"the main process (pid {pid}, num_workers=0)"
    return f"worker thread {worker}" if pid is None else f"worker {worker} (pid {pid})"


def seconds(value: float) -> str:
    """A time in words."""
    return f"{value:.1f} s" if value < 10 else f"{value:,.0f} s"


def size(value: int) -> str:
    """Bytes in words."""
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"


def _stack_lines(text: str) -> list[str]:
    """The user's lines: those of feedline and of its callers are the same every time."""
    kept: list[str] = []
    ours, theirs = False, 0
    text = text.rpartition(OWN)[2]
    for line in text.splitlines():
        if not line.startswith(" "):  # the next thread begins
            ours, theirs = False, 0
        if not ours and f'File "{_PACKAGE}{os.sep}' in line:
            ours = True
            if not theirs:
                kept.append("    " + _innermost(line))
        if line.strip() and not ours and not line.startswith("Extension modules:"):
            kept.append("    " + line)
            theirs += line.startswith(" ")
    if len(kept) > _MOST_LINES:
        kept = [*kept[:_MOST_LINES], "    …"]
    return kept or ["    (no stack: the worker did not answer in time)"]


def _innermost(line: str) -> str:
    """The line for a stack that ends in feedline: code that is not Python shows no further frames."""
    function = re.search(r"\bin (\w+)$", line)
    if function is not None and function[1] in (*READ_HERE, READS):
        return "  in dataset.__getitem__, which is not Python code"
    return line
