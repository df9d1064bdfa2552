"""The doctor, from beginning to end: each fault is found, and nothing else; the healthy are sent home."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sick
from sick import HEALTHY, SICK, Damaged, Heavy, Map, Slow, SlowOnes, Stream, Stuck, UnbalancedUnseen
from warm_host import host

import feedline
from feedline.diagnose.doctor import examine
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.doctor.examine import Examination
from feedline.diagnose.doctor.patient import patient_of
from feedline.diagnose.findings import Finding
from feedline.diagnose.target import constructed
from feedline.errors import OptionError
from feedline.supervise import policy


def found(what: Any, *parts: str, seconds: float = 30, **options: Any) -> list[Finding]:
    """What is found by these parts of the examination, each of which takes a worker or two; by all if none is named.

    More time than is needed: most end sooner, and a busy machine takes longer.
    """
    if not parts:
        return [each for each in feedline.doctor(what, seconds=seconds, **options) if each.severity != "ok"]
    patient = patient_of(what, None, options.get("label"), None)
    seen = Examination(patient, seconds, options.get("num_workers", 2)).run(*parts)
    return [each for each in judged(seen, options.get("ignore", ())) if each.severity != "ok"]


@pytest.mark.parametrize("name", HEALTHY)
def test_the_healthy(name: str) -> None:
    assert found(HEALTHY[name]()) == []


@pytest.mark.parametrize("name", SICK)
def test_the_sick(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected, make, parts = SICK[name]
    options: dict[str, Any] = {}
    if name == "very slow":  # a sample may take a sixth of the seconds, and the parts take a third of what they do
        options = {"seconds": 6}
        monkeypatch.setattr(examine, "SHARES", {part: share / 3 for part, share in examine.SHARES.items()})
    if name == "keeps":  # by one worker, in equal steps: of two, a busy machine may give one almost all the samples
        options = {"num_workers": 1}
    got = found(make(), *parts, **options)
    assert [each.id for each in got] == [expected], got
    assert got[0].explanation
    assert got[0].remedy


def one(what: Any, *parts: str, **options: Any) -> Finding:
    (finding,) = found(what, *parts, **options)
    return finding


def test_heavy_construction() -> None:
    made, construction = constructed(Heavy)
    assert type(made) is Heavy
    assert construction is not None
    assert 60 << 20 < construction.memory < 90 << 20
    for heavier in (replace(construction, memory=600 << 20), replace(construction, seconds=6.0)):
        (finding,) = [each for each in judged(Evidence(construction=heavier)) if each.severity != "ok"]
        assert finding.id == "heavy-init"
        assert finding.title.startswith("Heavy() took ")
    assert judged(Evidence(construction=construction))[0].id == "examined"
    assert constructed(Map())[1] is None


def test_what_is_slow_is_named_with_its_line() -> None:
    finding = one(Slow(), "samples", seconds=9)
    assert finding.severity == "note"
    assert finding.evidence["lines"][0]["line"].startswith(f"{sick.__file__}:")
    assert "time.sleep(0.015)  # the slow line" in finding.explanation
    assert finding.evidence["lines"][0]["share"] > 0.5


def test_slow_samples_are_read_again_before_they_are_named() -> None:
    finding = one(SlowOnes(), "samples", "slow")
    assert (finding.id, finding.evidence["indices"]) == ("slow-samples", [40, 41])
    assert "photos/41.jpg" in finding.title
    assert "time.sleep(0.12)" in finding.explanation


def test_a_stuck_sample_is_named_with_its_path_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Half of the time is left to the worker for writing down where it is: a quarter of a second may be too short.
    monkeypatch.setattr(policy, "STACK_SECONDS", 100)
    finding = one(Stuck(), "samples", "repeats", seconds=18)
    assert finding.evidence["indices"] == [95]
    assert "photos/95.jpg" in finding.title
    assert f"{sick.__file__}:" in finding.evidence["line"]


def test_bad_samples_are_named_with_their_paths() -> None:
    finding = one(Damaged(), "samples")
    assert finding.evidence["indices"] == [3, 50]
    assert "3 (photos/3.jpg)" in finding.title
    assert [each["what"] for each in finding.evidence["samples"]] == ["photos/3.jpg", "photos/50.jpg"]
    assert "sick.py" in finding.evidence["line"]


class BadElements(Stream):
    def __iter__(self) -> Any:
        return map(self.read, self.numbers)

    def read(self, number: int) -> Any:
        if number % 100 == 17:
            raise OSError(f"element {number}")
        return np.full(4, number, np.float32), number * 7 % 3


def test_a_streams_bad_elements() -> None:
    finding = one(BadElements())
    assert finding.id == "failing-samples"
    assert finding.evidence["indices"] == [17, 117]


def test_the_remedies_of_labels_run() -> None:
    finding = one(UnbalancedUnseen(), "samples")
    names: dict[str, Any] = {"dataset": UnbalancedUnseen(), "feedline": feedline, "DataLoader": feedline.DataLoader}
    exec(finding.code, names)
    _, labels = next(iter(feedline.DataLoader(names["dataset"], 400, sampler=names["sampler"])))
    assert 100 < labels.sum() < 300


def test_findings_can_be_ignored_and_the_label_named() -> None:
    class Odd(Map):
        def __getitem__(self, index: int) -> Any:
            return {"a": 1, "b": int(self.y[index]), "x": self.x[index]}

    assert found(Odd(), "samples") == []
    finding = one(Odd(), "samples", label="a")
    assert finding.evidence["field"] == "['a']"
    assert found(Odd(), label="a", ignore=["constant-label"]) == []


def test_the_loader_is_left_as_it_was() -> None:
    loader = feedline.DataLoader(Map(), batch_size=16, shuffle=True, seed=5)
    before = loader.state_dict()
    assert found(loader) == []
    assert loader.state_dict() == before


def test_options_are_checked() -> None:
    for options in ({"seconds": 0}, {"num_workers": 0}, {"batch_size": 0}, {"label": 1}):
        with pytest.raises(OptionError, match=next(iter(options))):
            feedline.doctor(Map(), **options)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="neither"):
        feedline.doctor(7)


def test_importing_feedline_does_not_import_the_doctor() -> None:
    code = "import sys, feedline; assert not [n for n in sys.modules if 'doctor' in n]; feedline.doctor"
    host("feedline").run(["-c", code], check=True)
