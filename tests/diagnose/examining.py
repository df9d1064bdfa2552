"""What the doctor finds, by the parts of an examination that a test is about."""

from __future__ import annotations

from typing import Any

import feedline
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.doctor.examine import Examination
from feedline.diagnose.doctor.patient import patient_of
from feedline.diagnose.findings import Finding


def found(what: Any, *parts: str, seconds: float = 30, **options: Any) -> list[Finding]:
    """What is found by these parts of the examination, each of which takes a worker or two; by all if none is named.

    More time than is needed: most end sooner, and a busy machine takes longer.
    """
    if not parts:
        return [each for each in feedline.doctor(what, seconds=seconds, **options) if each.severity != "ok"]
    patient = patient_of(what, None, options.get("label"), None)
    seen = Examination(patient, seconds, options.get("num_workers", 2)).run(*parts)
    return [each for each in judged(seen, options.get("ignore", ())) if each.severity != "ok"]


def one(what: Any, *parts: str, **options: Any) -> Finding:
    (finding,) = found(what, *parts, **options)
    return finding


def examined(what: Any, *parts: str) -> Evidence:
    return Examination(patient_of(what, None, None, None), 30, 2).run(*parts)
