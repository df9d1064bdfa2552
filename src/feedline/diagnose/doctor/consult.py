"""The doctor: examines, runs every check, and sorts the findings.

Takes: a dataset, a loader, or a factory of one. Gives: `Findings`.
Promises: it always ends, whatever the dataset does; a check that fails is a finding, not an exception.
Not its job: observing (examine), judging (the checks by topic), the screen (rendering).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

from feedline.diagnose.deadline import TooLong, patience, within
from feedline.diagnose.doctor import carrying, failures, label_checks, overlap, randomness, sample_values, speed
from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.doctor.examine import Examination
from feedline.diagnose.doctor.patient import Patient, patient_of
from feedline.diagnose.findings import OK, PROBLEM, SEVERITIES, WARNING, Finding
from feedline.diagnose.rendering import Findings
from feedline.diagnose.target import constructed
from feedline.errors import FeedlineError, OptionError, OptionTypeError
from feedline.errors.checks import check_seconds, check_whole
from feedline.errors.counting import counted

Check = Callable[[Evidence], Iterator[Finding]]

CHECKS: tuple[Check, ...] = (
    *failures.CHECKS,
    *label_checks.CHECKS,
    *sample_values.CHECKS,
    *overlap.CHECKS,
    *randomness.CHECKS,
    *carrying.CHECKS,
    *speed.CHECKS,
    *failures.BATCH_CHECKS,
)
SECONDS = 10.0
TIMES = 6.0
"""Importing and making the dataset may take this many times the given seconds."""


def doctor(
    what: Any,
    *,
    seconds: float = SECONDS,
    num_workers: int = 2,
    batch_size: int | None = None,
    label: str | None = None,
    against: Any = None,
    ignore: Collection[str] = (),
) -> Findings:
    """What is wrong with a dataset or loader, why, and what to change; the worst first.

    Samples are read in worker processes, spread over the dataset, some repeatedly; those that hang or crash are named.

    Args:
        what: a dataset, a loader (feedline's or torch's), or a function that makes one and needs no arguments.
        seconds: about how long it may take.
        num_workers: for the run with real workers.
        batch_size: for a dataset; a loader has its own.
        label: which field of a sample is its label (a name, or a place as "1"), if that is not obvious.
        against: another dataset or loader, or a function that makes one: which samples are in both? For training and
            validation; samples are compared by content, as many as there is time for.
        ignore: ids of findings that are not wanted.

    >>> import numpy as np
    >>> class Digits:
    ...     def __len__(self): return 200
    ...     def __getitem__(self, index): return np.zeros(4, np.float32), 7
    >>> found = doctor(Digits())
    >>> found.worst, [finding.id for finding in found if finding.severity == "problem"]
    ('problem', ['constant-label'])
    """
    if not check_seconds("seconds", seconds, ""):
        raise OptionError("seconds must be more than 0: reading takes time")
    check_whole("num_workers", num_workers, least=1)
    if batch_size is not None:
        check_whole("batch_size", batch_size, least=1)
    if label is not None and not isinstance(label, str):
        raise OptionTypeError(f"label must be a field's name, or its place as a string; got {label!r}")
    try:
        with within(patience(seconds, TIMES)):
            patient = _patient(what, batch_size, label)
            other = None if against is None else _patient(against, None, None)
    except TooLong as late:
        return Findings([_stuck(what, late)], f"feedline doctor: {_name(what)}")
    seen = Examination(patient, seconds, num_workers, other).run()
    return Findings(judged(seen, set(ignore)), f"feedline doctor: {patient.name}")


def _patient(what: Any, batch_size: int | None, label: str | None) -> Patient:
    made, construction = constructed(what)
    try:
        return patient_of(made, batch_size, label, construction)
    except FeedlineError:
        raise
    except Exception as error:  # most likely from the user's __len__
        words = f"{type(error).__name__}: {error}"
        raise OptionError(f"{_name(made)} cannot be loaded: asking for its length raised {words}") from error


def _name(what: Any) -> str:
    return str(getattr(what, "__qualname__", type(what).__qualname__))


def _stuck(what: Any, late: TooLong) -> Finding:
    return Finding(
        "stuck-init",
        PROBLEM,
        f"{_name(what)} was not ready after {late.seconds:.0f} s: making it, or asking for its length, does not end",
        {"seconds": late.seconds, "line": late.place},
        f"It was at {late.place}. An endless loop, or a network or lock that does not answer.",
        "look at that line. If it only needs longer, give it more time (--seconds 60).",
    )


def judged(seen: Evidence, ignore: Collection[str] = ()) -> list[Finding]:
    """All findings, the worst first; what is fine comes last."""
    found = [finding for check in CHECKS for finding in _guarded(check, seen) if finding.id not in ignore]
    found.sort(key=lambda finding: -SEVERITIES.index(finding.severity))
    return [*found, *(_trouble(what, why) for what, why in seen.troubles), _examined(seen)]


def _guarded(check: Check, seen: Evidence) -> Iterator[Finding]:
    """An unusual dataset that makes one check fail must not stop the other checks."""
    try:
        yield from check(seen)
    except Exception as error:
        yield _trouble(check.__name__.removeprefix("check_").replace("_", " "), f"{type(error).__name__}: {error}")


def _trouble(what: str, why: str) -> Finding:
    return Finding(
        "could-not-examine",
        WARNING,
        f"Could not examine {what}: {why.splitlines()[0] if why else ''}",
        {"what": what, "error": why},
        "That part of the examination failed; the others are not affected.",
        "if the error is not from your own code, please report it with the output of `feedline doctor --json`.",
    )


def _examined(seen: Evidence) -> Finding:
    """What the findings are based on."""
    length = seen.setting.length
    unknown = f"{counted(len(seen.readings), 'sample')} read"
    parts = [f"{len(seen.readings):,} of {counted(length, 'sample')} read" if length is not None else unknown]
    if seen.again:
        parts.append(f"{len(seen.again) + len(seen.reseeded):,} of them again")
    if seen.run is not None and seen.run.batches:
        parts.append(f"{counted(seen.run.batches, 'batch')} run with workers")
    evidence = {
        "read": len(seen.readings),
        "length": length,
        "again": len(seen.again),
        "batches": seen.run.batches if seen.run else 0,
        "seconds": round(seen.seconds, 2),
    }
    return Finding("examined", OK, f"Examined: {', '.join(parts)}, in {seen.seconds:.1f} s", evidence)
