"""What a stranger found wrong with the doctor: healthy datasets it complained of, and faults it did not see."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sick import Map, Stream
from test_doctor import found, one

import feedline
from feedline import DataLoader, cli, get_worker_info
from feedline.diagnose import deadline
from feedline.diagnose.deadline import TooLong, within
from feedline.diagnose.doctor import consult, examine, speed
from feedline.diagnose.doctor.consult import judged
from feedline.diagnose.doctor.evidence import ARRAY, Evidence, Field, LoaderSetting, Reading, Run
from feedline.diagnose.doctor.examine import Examination
from feedline.diagnose.doctor.failures import check_empty
from feedline.diagnose.doctor.patient import patient_of
from feedline.errors import OptionError
from feedline.machine.gil import Looks

# Healthy


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


def test_a_mere_dataset_of_what_nobody_can_stack_is_no_problem() -> None:
    seen = Evidence(run=Run(error="TypeError: default_collate: found <class 'PIL.Image.Image'>"))
    (finding,) = [each for each in consult.judged(seen) if each.severity != "ok"]
    assert (finding.id, finding.severity) == ("collate-fails", "warning")


# Sick


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
    assert failing.title == "2 of 120 elements read cannot be read: 7, 20"
    assert failing.explanation.startswith("Element 7: OSError: damaged")
    assert odd.evidence["indices"] == [40]


def test_the_element_at_which_a_stream_hangs_too() -> None:
    (stuck,) = [each for each in found(DamagedStream(hangs=50), "samples", seconds=9) if each.id == "stuck-samples"]
    assert stuck.evidence["indices"] == [50]
    assert stuck.title.startswith("Element 50 was not read within")


def test_a_stream_that_could_not_be_read_is_not_called_empty() -> None:
    seen = Evidence(LoaderSetting(stream=True))
    assert [each.id for each in check_empty(seen)] == ["empty-dataset"]
    assert list(check_empty(Evidence(LoaderSetting(stream=True), troubles=(("samples", "OSError"),)))) == []


def test_a_label_that_is_not_there() -> None:
    finding = one(Map(), "samples", label="lable")
    assert finding.id == "could-not-examine"
    assert "no sample has a field 'lable'" in finding.title
    assert finding.evidence["fields"] == ["[0]", "[1]"]


def test_a_one_hot_vector_is_its_class() -> None:
    fields = [Field("[1]", ARRAY, "float32", (4,), 16, value=place) for place in (0, 1, 2, 3) * 10]
    seen = Evidence(readings=tuple(Reading(place, fields=(field,)) for place, field in enumerate(fields)))
    assert [each.id for each in consult.judged(seen)] == ["examined"]


# Before there is anything to examine


class NoLength(Map):
    def __len__(self) -> int:
        raise RuntimeError("the database is gone")


def test_a_length_that_fails_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in (NoLength(), NoLength):
        with pytest.raises(OptionError, match=r"NoLength cannot be loaded.*RuntimeError: the database is gone"):
            feedline.doctor(what)
    assert cli.main(["doctor", f"{__file__}:NoLength"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def hanging() -> Any:
    while True:
        with contextlib.suppress(Exception):
            signal.raise_signal(signal.SIGALRM)  # in the factory: all of its time has passed


def test_a_factory_that_hangs_is_a_finding() -> None:
    (finding,) = feedline.doctor(hanging, seconds=0.01)
    assert (finding.id, finding.severity) == ("stuck-init", "problem")
    assert finding.title.startswith("hanging was not there after 60 s")
    assert "raise_signal(signal.SIGALRM)  # in the factory" in finding.evidence["line"]


def test_an_import_that_hangs_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(deadline, "LEAST", 0.1)
    (tmp_path / "endless.py").write_text("while True:\n    pass\n")
    assert cli.main(["doctor", f"{tmp_path}/endless.py:data", "--seconds", "0.01"]) == 1
    assert "endless.py: not done after" in capsys.readouterr().err


def test_the_alarm_rings_again_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline, "AGAIN", 0.01)

    def deaf() -> None:
        for _ in range(2):
            with contextlib.suppress(BaseException):
                time.sleep(60)
        time.sleep(60)

    with pytest.raises(TooLong), within(0.01):
        deaf()
    with pytest.raises(TooLong), within(0.01), within(100):  # the one around it is let be
        time.sleep(60)
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


def test_an_alarm_that_rings_while_it_is_stopped_is_stopped_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Raised there, it would go on ringing, and in whatever is done next."""
    wind = signal.setitimer

    def late(*arguments: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return wind(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(signal, "setitimer", late)
        with within(1000):
            pass
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


# Threads and pickles, seen and not made up


class Waits(Map):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.03)
        return super().__getitem__(index)


class Computes(Map):
    def __getitem__(self, index: int) -> Any:
        sum(range(600_000))
        return super().__getitem__(index)


def examined(what: Any, *parts: str) -> Evidence:
    return Examination(patient_of(what, None, None, None), 30, 2).run(*parts)


def test_threads_help_who_waits() -> None:
    seen = examined(Waits(16), "samples", "threads")
    assert seen.looks is not None
    assert seen.looks.on_cpu < 0.9
    (finding,) = speed.check_threads(replace(seen, looks=Looks(64, 1, 0.3, 0.01)))  # as it is on a quiet machine
    assert finding.id == "threads-help"


def test_threads_do_not_help_python() -> None:
    seen = examined(Computes(16), "samples", "threads")
    assert seen.looks is not None
    assert seen.looks.held > 0
    quiet = replace(seen, looks=Looks(64, 62, 0.3, 0.3), setting=LoaderSetting(threads=True))
    (finding,) = speed.check_threads(quiet)
    assert (finding.id, finding.severity) == ("python-bound", "warning")


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


# Slow, and not stuck


class SlowStart(Map):
    ready = False

    def __getitem__(self, index: int) -> Any:
        if not self.ready:
            time.sleep(1.2)
            self.ready = True
        return super().__getitem__(index)


def test_a_worker_that_loads_something_first_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "SLOW_START", 1.0)
    finding = one(SlowStart(), "samples", seconds=6)  # a sample may take 1 s, the first one 3
    assert (finding.id, finding.severity) == ("slow-start", "note")
    assert finding.evidence["first"] > 1.1


class ImportsFirst(Map):
    """Whichever sample comes first in a worker takes long."""

    first = True

    def __getitem__(self, index: int) -> Any:
        if self.first:
            self.first = False
            time.sleep(0.3)
        return super().__getitem__(index)


def test_the_first_sample_of_a_worker_is_no_slow_one() -> None:
    assert found(ImportsFirst(), "samples", "repeats", "slow") == []


class SlowTogether(Map):
    """Hangs whenever two threads read it."""

    def __getitem__(self, index: int) -> Any:
        while threading.current_thread() is not threading.main_thread():
            time.sleep(0.01)
        time.sleep(0.002)
        return super().__getitem__(index)


def test_what_hangs_in_a_trial_of_ours_is_no_sample() -> None:
    assert found(SlowTogether(), "samples", "threads", seconds=9) == []


class NeverReady(Map):
    def __getitem__(self, index: int) -> Any:
        while True:
            time.sleep(0.01)


def test_a_dataset_that_is_stuck_from_the_first_sample_on() -> None:
    finding = found(NeverReady(), "samples", seconds=1)[0]
    assert finding.id == "stuck-samples"
    assert finding.evidence["limit"] == 0.5
