"""The options that say what to do when things go wrong, the same for every front.

Takes: what the user passed. Gives: a `Care` value. Promises: a wrong one is refused at construction, by name.
Not its job: acting on them (supervise.policy decides, the loop acts).
"""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from feedline.checks import check_choice, check_file, check_seconds, check_whole
from feedline.errors import OptionError, OptionTypeError

ON_ERROR = ("raise", "skip", "replace")
ON_STALL = ("wait", "restart")


@dataclass(frozen=True)
class Care:
    """What to do about slow, bad and deadly samples."""

    stall_warning: float = 30.0
    """Seconds the loop waits for a batch before it says what the workers are at; 0 says nothing."""
    on_stall: str = "wait"
    """"restart" replaces a worker that is stuck in one sample for `timeout` (or else `stall_warning`) seconds."""
    on_error: str = "raise"
    """"skip" makes the batch without a sample that fails, "replace" takes its nearest good neighbour."""
    max_errors: float | None = None
    """How many samples may fail under "skip" and "replace". The same index counts once in all epochs, a
    stream's elements each time. A fraction below 1 is a share of all samples read, judged once 10 bad ones
    would be within it (after 1,000 samples for 0.01) and at the end of each epoch."""
    max_deaths: int = 2
    """So many workers may die at one sample before it is given up."""
    error_log: str | None = None
    """A file that gets one JSON line for each failed sample. If it can't be written to later, that is logged once."""


def check_care(given: dict[str, Any]) -> Care:
    """Check what was passed under the names of `Care`."""
    care = Care(
        stall_warning=check_seconds("stall_warning", given["stall_warning"], "never warn"),
        on_stall=check_choice("on_stall", given["on_stall"], ON_STALL),
        on_error=check_choice("on_error", given["on_error"], ON_ERROR),
        max_errors=_max_errors(given["max_errors"]),
        max_deaths=check_whole("max_deaths", given["max_deaths"], least=1),
        error_log=check_file("error_log", given["error_log"]),
    )
    if care.max_errors is not None and care.on_error == "raise":
        raise OptionError("max_errors needs on_error='skip' or 'replace': with 'raise' the first error is raised")
    return care


def _max_errors(value: Any) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, Real):
        raise OptionTypeError(f"max_errors must be a count, a share below 1, or None for no limit; got {value!r}")
    if isinstance(value, Integral):
        return check_whole("max_errors", value, least=0)
    if not 0 < float(value) < 1:
        raise OptionError(f"max_errors must be a whole number, or a share between 0 and 1; got {value!r}")
    return float(value)
