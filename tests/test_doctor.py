"""The doctor, from beginning to end: each fault is found, and nothing else; the healthy are sent home."""

from __future__ import annotations

from typing import Any

import pytest
from sick import HEALTHY, SICK, SICK_SAMPLES

import feedline
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.examine import MOST, Examination, spread
from feedline.diagnose.doctor.patient import patient_of
from feedline.diagnose.findings import Finding


def found(what: Any, **options: Any) -> list[Finding]:
    return [each for each in feedline.doctor(what, **{"seconds": 2, **options}) if each.severity != "ok"]


def found_in_samples(what: Any) -> list[Finding]:
    """By the part of the examination that reads each sample once: the others take a worker each."""
    patient = patient_of(what, None, None, None)
    examination = Examination(patient, seconds=20, num_workers=1)
    examination.look_at_labels()
    seen = examination.read_spread(spread(len(patient.dataset), MOST))
    return [each for each in judged(seen) if each.severity != "ok"]


@pytest.mark.parametrize("name", HEALTHY)
def test_the_healthy(name: str) -> None:
    assert found(HEALTHY[name]()) == []


@pytest.mark.parametrize("name", SICK_SAMPLES)
def test_samples_with_a_fault(name: str) -> None:
    expected, make = SICK_SAMPLES[name]
    got = found_in_samples(make())
    assert [each.id for each in got] == [expected], got
    assert got[0].explanation
    assert got[0].remedy


@pytest.mark.parametrize("name", SICK)
def test_the_sick(name: str) -> None:
    expected, make = SICK[name]
    got = found(make())
    assert [each.id for each in got] == [expected], got
    assert got[0].explanation
    assert got[0].remedy
