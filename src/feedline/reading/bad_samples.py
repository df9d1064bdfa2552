"""The samples of a loader that failed: kept, logged, written to a file, and limited in number.

Takes: outcomes as they are delivered, and the options. Gives: the list of bad samples; JSON lines in `error_log`.
Promises: each bad sample is reported once, to `logging` and to the file; more than `max_errors` is an error. No file
stays open; a file that can no longer be written to, hours later, is reported once and stops nothing.
Not its job: finding bad samples (reading.salvage, reading.stream_reader).
"""

from __future__ import annotations

import contextlib
import json
import logging
import operator
import os
import threading
from collections import deque
from datetime import datetime, timezone
from typing import Any

import numpy as np

from feedline.errors import TooManyErrors
from feedline.errors.counting import counted
from feedline.messages.outcome import BadSample, Outcome
from feedline.options import ErrorPolicy

log = logging.getLogger("feedline")

KEPT = 10_000
LISTED = 5
JUDGED = 10
"""This many expected failures make a share reliable: with fewer expected, chance decides."""


class BadSamples:
    """The bad samples in the life of a loader."""

    def __init__(self) -> None:
        self._kept: deque[BadSample] = deque(maxlen=KEPT)
        self._bad = 0
        self._read = 0
        self._different: set[Any] = set()
        self._file = _LogLines()
        # Reentrant: the garbage collector may write a dropped loop's recording in a thread that holds the lock.
        self._lock = threading.RLock()

    @property
    def samples(self) -> list[BadSample]:
        """The bad samples, oldest first; the last 10,000."""
        with self._lock:
            return list(self._kept)

    @property
    def count(self) -> int:
        """How many samples have failed so far."""
        return self._bad

    def take(self, outcome: Outcome, error_policy: ErrorPolicy) -> None:
        """Count an outcome's samples and report the bad ones; TooManyErrors if there are too many."""
        bad = outcome.bad
        with self._lock:
            self._count(outcome, error_policy)
        if bad:
            for sample in bad:
                log.warning("%s; %s", _told(sample), _done_about(sample))
            if error_policy.error_log is not None:
                self._file.write(error_policy.error_log, bad)
        self.judge(error_policy)

    def _count(self, outcome: Outcome, error_policy: ErrorPolicy) -> None:
        bad = outcome.bad
        self._read += outcome.size + outcome.dropped + sum(sample.replacement is None for sample in bad)
        self._bad += len(bad)
        self._kept.extend(bad)
        limit = error_policy.max_errors
        if limit is not None and isinstance(limit, int):  # only a count needs the distinct ones; there may be many
            self._different.update(map(_key, bad))

    def judge(self, error_policy: ErrorPolicy, at_end: bool = False) -> None:
        """TooManyErrors above `max_errors`. A share is judged after enough samples, or at an epoch's end."""
        limit = error_policy.max_errors
        if limit is None or not self._bad:
            return
        if isinstance(limit, int):
            if len(self._different) > limit:
                raise TooManyErrors(self._complaint(len(self._different), limit))
        elif self._bad > limit * self._read and (at_end or self._read >= JUDGED / limit):
            raise TooManyErrors(self._complaint(self._bad, limit))

    def _complaint(self, count: int, limit: float) -> str:
        last = "".join(f"\n  {_told(sample)}" for sample in self.samples[-LISTED:])
        return (
            f"{count} of the {counted(self._read, 'sample')} that this loader has read failed, which is more than "
            f"max_errors={limit}. The last ones:{last}\n"
            "loader.errors() has them with their tracebacks. Repair them, leave them out of the dataset or sampler, or "
            "raise max_errors."
        )


class _LogLines:
    """JSON lines in a file that other ranks may append to as well."""

    def __init__(self) -> None:
        self._torn = False
        self._told = False

    def write(self, path: str, bad: tuple[BadSample, ...]) -> None:
        """Append a line for each bad sample."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        try:
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                for sample in bad:
                    self._append(fd, f"{_line(sample, now)}\n".encode("ascii"))
            finally:
                os.close(fd)
        except OSError as error:
            if not self._told:
                self._told = True
                log.warning("error_log=%r cannot be written to, so lines are missing from it: %s", path, error)

    def _append(self, fd: int, line: bytes) -> None:
        rest = b"\n" + line if self._torn else line
        while rest:  # a line in one write, so that no other rank's line gets into it; a full disk may cut it
            written = os.write(fd, rest)
            rest = rest[written:]
            self._torn = bool(rest)


def _key(sample: BadSample) -> Any:
    """What identifies a bad sample; an element of a stream cannot be recognised in the next epoch."""
    if sample.index is None:
        return sample.epoch, sample.seq, sample.place
    key = sample.index
    with contextlib.suppress(Exception):
        key = operator.index(key)  # a tensor that holds a number is a new object each time
    try:
        hash(key)
    except TypeError:
        return repr(key)
    return key


def _told(sample: BadSample) -> str:
    named = f"element {sample.place} of the stream" if sample.index is None else f"sample {_shown(sample.index)}"
    what = f" ({sample.what})" if sample.what else ""
    return f"{named}{what} failed: {sample.error}"


def _done_about(sample: BadSample) -> str:
    where = f"batch {sample.seq} of epoch {sample.epoch}"
    if sample.replacement is None:
        return f"{where} is made without it"
    return f"{where} has sample {_shown(sample.replacement)} instead"


def _shown(index: Any) -> str:
    return repr(index.item() if isinstance(index, np.generic) else index)


def _line(sample: BadSample, now: str) -> str:
    return json.dumps(
        {
            "time": now,
            "epoch": sample.epoch,
            "seq": sample.seq,
            "place": sample.place,
            "index": _plain(sample.index),
            "what": sample.what,
            "error": sample.error,
            "replacement": _plain(sample.replacement),
        }
    )


def _plain(index: Any) -> Any:
    """An index as a JSON value; its `repr` if JSON has no such value."""
    try:
        return json.loads(json.dumps(index, allow_nan=False, default=_number))
    except Exception:  # the index's own code may raise anything
        return repr(index)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else operator.index(value)
