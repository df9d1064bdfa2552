"""The samples of a loader that failed: kept, logged, written down, and not too many of them.

Takes: outcomes as they are delivered, and the options. Gives: the list of bad samples; JSON lines in `error_log`.
Promises: each bad sample is told once, to `logging` and to the file; more than `max_errors` is an error. No file stays
open. Not its job: finding bad samples (line.salvage, line.stream).
"""

from __future__ import annotations

import json
import logging
from collections import deque
from datetime import datetime, timezone
from typing import Any

from feedline.care import Care
from feedline.errors import OptionError, TooManyErrors
from feedline.messages import BadSample, Outcome

log = logging.getLogger("feedline")

KEPT = 10_000
LISTED = 5


class Mishaps:
    """What has gone wrong with samples in a loader's life."""

    def __init__(self) -> None:
        self._kept: deque[BadSample] = deque(maxlen=KEPT)
        self._bad = 0
        self._read = 0

    @property
    def samples(self) -> list[BadSample]:
        """The bad samples, oldest first; the last 10,000."""
        return list(self._kept)

    def take(self, outcome: Outcome, care: Care) -> None:
        """Count an outcome's samples and tell of the bad ones; TooManyErrors if that is enough."""
        bad = outcome.bad
        self._read += outcome.size + sum(sample.replacement is None for sample in bad)
        if bad:
            self._bad += len(bad)
            self._kept.extend(bad)
            for sample in bad:
                log.warning("%s; %s", _told(sample), _done_about(sample))
            if care.error_log is not None:
                _write(care.error_log, bad)
        self.judge(care)

    def judge(self, care: Care, at_end: bool = False) -> None:
        """Were there more than `max_errors`? A share is judged once it can mean less than one sample, or at the end."""
        limit = care.max_errors
        if limit is None or not self._bad:
            return
        if isinstance(limit, int):
            too_many = self._bad > limit
        else:
            too_many = self._bad > limit * self._read and (at_end or self._read * limit >= 1)
        if too_many:
            raise TooManyErrors(self._complaint(limit))

    def _complaint(self, limit: float) -> str:
        last = "".join(f"\n  {_told(sample)}" for sample in self.samples[-LISTED:])
        return (
            f"{self._bad} of the {self._read} samples that this loader has read failed, which is more than "
            f"max_errors={limit}. The last ones:{last}\n"
            "loader.errors has them with their tracebacks. Repair them, leave them out of the dataset or sampler, or "
            "raise max_errors."
        )


def _told(sample: BadSample) -> str:
    named = f"element {sample.place} of the stream" if sample.index is None else f"sample {sample.index!r}"
    what = f" ({sample.what})" if sample.what else ""
    return f"{named}{what} failed: {sample.error}"


def _done_about(sample: BadSample) -> str:
    where = f"batch {sample.seq} of epoch {sample.epoch}"
    if sample.replacement is None:
        return f"{where} goes without it"
    return f"{where} has sample {sample.replacement!r} instead"


def _write(path: str, bad: tuple[BadSample, ...]) -> None:
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    lines = "".join(_line(sample, now) + "\n" for sample in bad)
    try:
        # Opened each time, and written at once: other ranks may append to the same file.
        with open(path, "ab", buffering=0) as file:
            file.write(lines.encode("ascii"))
    except OSError as error:
        raise OptionError(f"error_log={path!r} cannot be written to: {error}") from error


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
    """An index as JSON has it; one that JSON has no way to say, by its `repr`."""
    try:
        json.dumps(index, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return repr(index)
    return index
