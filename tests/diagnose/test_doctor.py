"""The doctor, from beginning to end: each fault is found, and nothing else; the healthy are sent home."""

from __future__ import annotations

import contextlib
import signal
import time
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import sick
from examining import examined, found, one
from sick import HEALTHY, SICK, Damaged, Heavy, Map, Slow, SlowOnes, Stream, Stuck, UnbalancedUnseen
from warm_host import host

import feedline
from feedline import DataLoader, get_worker_info
from feedline.diagnose.doctor import examine
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.evidence import Evidence
from feedline.diagnose.target import constructed
from feedline.errors import OptionError
from feedline.supervise import policy


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
    finding = one(SlowOnes(), "samples", "slow", seconds=200)
    assert (finding.id, finding.evidence["indices"]) == ("slow-samples", [40, 41])
    assert "photos/41.jpg" in finding.title
    assert "time.sleep(0.4)" in finding.explanation


class OftenDelayed(SlowOnes):
    """As on a busy machine: more samples seem to be slow than are read again."""

    def __getitem__(self, index: int) -> Any:
        if index < examine.SUSPECTS + 4:
            time.sleep(0.11)
        return super().__getitem__(index)


def test_the_slowest_are_read_again_and_not_the_first() -> None:
    finding = one(OftenDelayed(), "samples", "slow", seconds=200)
    assert {40, 41} < set(finding.evidence["indices"])


def test_a_stuck_sample_is_named_with_its_path_and_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Half of the time is left to the worker for writing down where it is: a quarter of a second may be too short.
    monkeypatch.setattr(policy, "STACK_SECONDS", 100)
    finding = one(Stuck(), "samples", "repeats", seconds=40)
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


class OpenedByWorkers(Map):
    """Of no use before worker_init_fn was called, as with files that are opened in each worker."""

    file: Any = None

    def __getitem__(self, index: int) -> Any:
        self.file.seek(index)
        return np.frombuffer(self.file.read(4), np.uint8).copy(), int(self.y[index])


def open_file(worker: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert type(info.dataset) is OpenedByWorkers
    info.dataset.file = open(__file__, "rb")  # noqa: SIM115


def test_a_dataset_that_worker_init_fn_makes_ready() -> None:
    loader = DataLoader(OpenedByWorkers(), 16, shuffle=True, num_workers=2, worker_init_fn=open_file)
    assert found(loader) == []


class Weighted(Map):
    """A weight that is 1 everywhere, behind the label."""

    def __getitem__(self, index: int) -> Any:
        return self.x[index], int(self.y[index]), 1


class WithLength(Map):
    """Lengths, few of which are long, behind the label."""

    def __getitem__(self, index: int) -> Any:
        return self.x[index], int(self.y[index]), 1 + min(8, abs(int(self.x[index, 0] * 5)))


@pytest.mark.parametrize("kind", [Weighted, WithLength])
def test_the_label_need_not_be_the_last(kind: type[Map]) -> None:
    assert found(kind(), "samples") == []


class FractionZero(Map):
    def __init__(self) -> None:
        super().__init__()
        self.y = np.zeros(len(self.x), np.float32)

    def __getitem__(self, index: int) -> Any:
        return self.x[index], self.y[index]


class OneHot(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index], np.eye(4, dtype=np.float32)[self.y[3]]


class ArrayOfOne(Map):
    def __getitem__(self, index: int) -> Any:
        return {"x": self.x[index], "target": np.array([7.5])}


class OtherColumn(Map):
    """An attribute that is called like the labels, and is something else."""

    def __init__(self) -> None:
        super().__init__(400)
        self.rare = np.where(np.random.default_rng(3).random(400) < 0.04, "rare", "common")

    def __getitem__(self, index: int) -> Any:
        return {"x": self.x[index], "label": str(self.rare[index])}


class Leaves(Map):
    def __getitem__(self, index: int) -> Any:
        raise SystemExit(3) if index % 2 else KeyboardInterrupt


class NaNs(Map):
    def __getitem__(self, index: int) -> Any:
        return {"values": [1.0, float("nan") if index == 9 else 2.0], "label": int(self.y[index])}


class FourDoubles(Map):
    def __getitem__(self, index: int) -> Any:
        return self.x[index][:4].astype(np.float64), int(self.y[index])


class FilledUp(Map):
    def __getitem__(self, index: int) -> Any:
        mask = [1] * 3 + [0] * 13
        return {"input_ids": self.x[index], "attention_mask": mask, "label": int(self.y[index])}


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (FractionZero, "labels-all-zero"),
        (OneHot, "constant-label"),
        (ArrayOfOne, "constant-label"),
        (OtherColumn, "class-imbalance"),
        (Leaves, "failing-samples"),
        (NaNs, "not-finite"),
        (FourDoubles, "float64"),
        (FilledUp, "padding"),
    ],
)
def test_faults(kind: type[Any], said: str) -> None:
    assert one(kind(), "labels", "samples").id == said


class Lengths(Map):
    def __getitem__(self, index: int) -> Any:
        return np.ones(100 if index % 8 == 0 else 10, np.int64)


def fill_up(samples: list[Any]) -> Any:
    batch = np.zeros((len(samples), max(map(len, samples))), np.int64)
    for row, sample in zip(batch, samples, strict=True):
        row[: len(sample)] = sample
    return batch


def test_padding_by_the_users_own_collate_fn() -> None:
    loader = DataLoader(Lengths(), 32, shuffle=True, collate_fn=fill_up)
    finding = one(loader, "samples", "collate")
    assert finding.id == "padding"
    assert 0.6 < finding.evidence["padding"] < 0.85
    rows = DataLoader(Lengths(), 32, shuffle=True, collate_fn=list)
    assert found(rows, "samples", "collate") == []


class HangingStream(Stream):
    def __iter__(self) -> Any:
        while True:
            time.sleep(0.01)
            if self.numbers.start:
                yield 1


def test_a_stream_that_hangs() -> None:
    finding = one(HangingStream(), "samples", "repeats", seconds=9)
    assert (finding.id, finding.evidence["indices"]) == ("stuck-samples", [0])


class DamagedStream(Stream):
    """Two elements fail, one after them has no number, and then one hangs."""

    def __init__(self, numbers: range = range(120), hangs: int = -1) -> None:
        super().__init__(numbers)
        self.hangs = hangs

    def __iter__(self) -> Any:
        return map(self.read, self.numbers)

    def read(self, number: int) -> Any:
        if number in (7, 20):
            raise OSError("damaged")
        if number == self.hangs:
            time.sleep(1000)
        return np.full(4, np.nan if number == 40 else number, np.float32), number * 7 % 3


def test_elements_of_a_stream_are_counted_with_those_that_fail() -> None:
    failing, odd = found(DamagedStream(), "samples")
    assert failing.title == "Reading fails for 2 of 120 elements: 7, 20"
    assert failing.explanation.startswith("Element 7: OSError: damaged")
    assert odd.evidence["indices"] == [40]


def test_the_element_at_which_a_stream_hangs_too() -> None:
    (stuck,) = [each for each in found(DamagedStream(hangs=50), "samples", seconds=9) if each.id == "stuck-samples"]
    assert stuck.evidence["indices"] == [50]
    assert stuck.title.startswith("Element 50 was not read within")


def test_a_label_that_is_not_there() -> None:
    finding = one(Map(), "samples", label="lable")
    assert finding.id == "could-not-examine"
    assert "no sample has a field 'lable'" in finding.title
    assert finding.evidence["fields"] == ["[0]", "[1]"]


def hanging() -> Any:
    while True:
        with contextlib.suppress(Exception):
            signal.raise_signal(signal.SIGALRM)  # in the factory: all of its time has passed


def test_a_factory_that_hangs_is_a_finding() -> None:
    (finding,) = feedline.doctor(hanging, seconds=0.01)
    assert (finding.id, finding.severity) == ("stuck-init", "problem")
    assert finding.title.startswith("hanging was not ready after 60 s")
    assert "raise_signal(signal.SIGALRM)  # in the factory" in finding.evidence["line"]


class ManyRecords(Map):
    def __init__(self) -> None:
        super().__init__()
        self.records = [f"photos/{number:0100d}.jpg" for number in range(30_000)]


def test_a_heavy_pickle_is_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert [each.id for each in judged(examined(ManyRecords(), "held")) if each.severity != "ok"] == []
    monkeypatch.setattr(examine, "PICKLE", 1 << 20)
    (finding,) = [each for each in judged(examined(ManyRecords(), "held")) if each.severity != "ok"]
    assert finding.id == "heavy-pickle"
    assert finding.title.startswith("More than 1 MiB of Python objects")
